/* How arrays lie, and where: what adapters.py finds in reads of attributes, found in C.

   Each function returns (key, memory), with all that a plan depends on of the arrays in the key; or None where one of them
   must be looked at more closely. Nothing is kept of the arrays. */

#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define MOST_ARRAYS 4 /* A, B, C and out */
#define OUT 3
#define MOST_DIMENSIONS 8
#define ALIGNED 127 /* ALLOCATION_ALIGNMENT - 1 of core/problem.py */

enum { REQUIRES_GRAD, IS_CONJ, IS_NEG, INT_PTR, QUEUE, BASE_DATA, EVENTS, DTYPE, SHAPE, STRIDES, OFFSET, NAMES };

static PyObject *names[NAMES]; /* of attributes */

static const char *const spelled[NAMES] = {
    "requires_grad", "is_conj", "is_neg", "int_ptr", "queue", "base_data", "events", "dtype", "shape", "strides", "offset",
};

/* A key is built of words: of each array its kind and place, and shape and strides. */
typedef struct {
    int64_t words[MOST_ARRAYS * (4 + 2 * MOST_DIMENSIONS)];
    Py_ssize_t count;
} Key;

static void add(Key *key, int64_t word)
{
    key->words[key->count++] = word;
}

/* DLTensor, and DLPackExchangeAPI of version 1, of dlpack.h. */
enum { CUDA = 2, COMPLEX = 5 };

typedef struct {
    void *data;
    int32_t device, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct {
    uint32_t major, minor;
    void *previous, *allocate, *from_object, *to_object;
    int (*tensor_of)(void *, Tensor *);
    int (*stream_of)(int32_t, int32_t, void **);
} Exchange;

static int is_true(PyObject *value)
{
    int found = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return found;
}

/* Whether a tensor's numbers are not those in its memory, or gradients are recorded of it; -1 on an error. */
static int is_more_than_memory(PyObject *array, const Tensor *tensor)
{
    int found = is_true(PyObject_GetAttr(array, names[REQUIRES_GRAD]));
    if (!found)
        found = is_true(PyObject_CallMethodObjArgs(array, names[IS_NEG], NULL));
    if (!found && tensor->code == COMPLEX)
        found = is_true(PyObject_CallMethodObjArgs(array, names[IS_CONJ], NULL));
    return found;
}

static PyObject *result(const Key *key, PyObject *addresses, PyObject *stream)
{
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)key->words, key->count * (Py_ssize_t)sizeof *key->words);
    if (!bytes)
        return NULL;
    PyObject *found = stream ? PyTuple_Pack(3, bytes, addresses, stream) : PyTuple_Pack(2, bytes, addresses);
    Py_DECREF(bytes);
    return found;
}

/* of_tensors(exchange, a, b, c, out): exchange is the capsule of the library's DLPackExchangeAPI. C and out may be None. Returns
   the stream, too, that is current there on the arrays' device. */
static PyObject *of_tensors(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    Key key = {.count = 0};
    Tensor tensor;
    void *stream;
    int32_t device = -1;
    PyObject *addresses, *found = NULL;
    (void)module;
    if (given != 1 + MOST_ARRAYS) {
        PyErr_SetString(PyExc_TypeError, "of_tensors must be given a capsule and four arrays");
        return NULL;
    }
    const Exchange *exchange = PyCapsule_GetPointer(arguments[0], "dlpack_exchange_api");
    if (!exchange || !(addresses = PyTuple_New(MOST_ARRAYS)))
        return NULL;
    for (Py_ssize_t i = 0; i < MOST_ARRAYS; i++) {
        PyObject *array = arguments[1 + i];
        uintptr_t address = 0;
        if (array == Py_None)
            add(&key, -1);
        else {
            if (exchange->tensor_of(array, &tensor) != 0)
                goto otherwise; /* it has no elements that lie somewhere: it is sparse, say, or mapped over */
            if (tensor.device != CUDA || tensor.ndim > MOST_DIMENSIONS || (device >= 0 && device != tensor.device_id)
                || is_more_than_memory(array, &tensor) != 0)
                goto otherwise;
            device = tensor.device_id;
            address = (uintptr_t)tensor.data + tensor.byte_offset;
            add(&key, tensor.code | tensor.bits << 8 | tensor.lanes << 16 | (int64_t)tensor.ndim << 32
                          | (int64_t)(address & ALIGNED) << 40);
            add(&key, device);
            for (int32_t j = 0; j < tensor.ndim; j++) {
                add(&key, tensor.shape[j]);
                add(&key, tensor.strides[j]);
            }
        }
        PyObject *number = PyLong_FromUnsignedLongLong(address);
        if (!number)
            goto done;
        PyTuple_SetItem(addresses, i, number);
    }
    if (device < 0 || exchange->stream_of(CUDA, device, &stream) != 0)
        goto otherwise;
    PyObject *number = PyLong_FromUnsignedLongLong((uintptr_t)stream);
    if (number)
        found = result(&key, addresses, number);
    Py_XDECREF(number);
    goto done;
otherwise:
    PyErr_Clear();
    found = Py_NewRef(Py_None);
done:
    Py_DECREF(addresses);
    return found;
}

/* What OpenCL is asked of an object, by cl.h: of which memory a memory is a part, and of which queue an event is. */
#define CL_MEM_ASSOCIATED_MEMOBJECT 0x1107
#define CL_EVENT_COMMAND_QUEUE 0x11D0

typedef int32_t (*AskObject)(void *, uint32_t, size_t, void *, size_t *);

typedef struct {
    AskObject of_memory, of_event;
    PyTypeObject *buffers;
} OpenCL;

/* What an object tells of itself: 0 with an error where it does not. */
static void *handle_of(PyObject *object)
{
    PyObject *value = PyObject_GetAttr(object, names[INT_PTR]);
    unsigned long long handle = value ? PyLong_AsUnsignedLongLong(value) : 0;
    Py_XDECREF(value);
    return PyErr_Occurred() ? NULL : (void *)(uintptr_t)handle;
}

/* Adds a tuple of numbers to a key, behind their count. Returns whether it is one, of which none is `never`. */
static int add_numbers(Key *key, PyObject *array, int name, int64_t never)
{
    PyObject *numbers = PyObject_GetAttr(array, names[name]);
    Py_ssize_t count = numbers && PyTuple_Check(numbers) ? PyTuple_Size(numbers) : -1;
    int usable = count >= 0 && count <= MOST_DIMENSIONS;
    add(key, count);
    for (Py_ssize_t i = 0; i < count && usable; i++) {
        int64_t number = PyLong_AsLongLong(PyTuple_GetItem(numbers, i));
        usable = number != never && !PyErr_Occurred();
        add(key, number);
    }
    Py_XDECREF(numbers);
    return usable;
}

/* Whether all events of an array are of its queue, which has waited for them. A list that is more than Python's own tells of
   which queue the event is that it has yet to make. */
static int are_events_of(const OpenCL *cl, PyObject *array, const void *queue)
{
    PyObject *events = PyObject_GetAttr(array, names[EVENTS]);
    int found = events && PyList_Check(events);
    if (found && !PyList_CheckExact(events)) {
        PyObject *other = PyObject_GetAttr(events, names[QUEUE]);
        found = other && (other == Py_None || handle_of(other) == queue);
        Py_XDECREF(other);
    }
    for (Py_ssize_t i = 0; found && i < PyList_Size(events); i++) {
        void *of = NULL, *event = handle_of(PyList_GetItem(events, i));
        found = event && cl->of_event(event, CL_EVENT_COMMAND_QUEUE, sizeof of, &of, NULL) == 0 && of == queue;
    }
    Py_XDECREF(events);
    return found;
}

/* Adds to a key how an array of PyOpenCL's lies. Returns its memory, and its type; NULL where it must be looked at more closely:
   a part of another buffer may overlap what is another object, and events of other queues must be awaited. */
static PyObject *add_cl_array(const OpenCL *cl, Key *key, PyObject *array, PyObject **dtype)
{
    void *handle = NULL, *block, *whole = NULL;
    PyObject *memory = PyObject_GetAttr(array, names[BASE_DATA]), *queue = PyObject_GetAttr(array, names[QUEUE]);
    PyObject *offset = PyObject_GetAttr(array, names[OFFSET]);
    int usable = memory && queue && offset && queue != Py_None && PyType_IsSubtype(Py_TYPE(memory), cl->buffers)
        && (handle = handle_of(queue)) && (block = handle_of(memory))
        && cl->of_memory(block, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof whole, &whole, NULL) == 0 && !whole
        && are_events_of(cl, array, handle) && (*dtype = PyObject_GetAttr(array, names[DTYPE]));
    if (usable) {
        add(key, (int64_t)(uintptr_t)handle);
        add(key, PyLong_AsLongLong(offset));
        usable = add_numbers(key, array, SHAPE, 0) && add_numbers(key, array, STRIDES, INT64_MIN) && !PyErr_Occurred();
    }
    Py_XDECREF(queue);
    Py_XDECREF(offset);
    if (usable)
        return memory;
    Py_XDECREF(memory);
    return NULL;
}

/* of_cl_arrays(opencl, a, b, c, out): of PyOpenCL's arrays. `opencl` has the addresses of clGetMemObjectInfo and clGetEventInfo,
   and the type whose objects have a cl_mem. C and out may be None. Memory is told as the arrays tell it. */
static PyObject *of_cl_arrays(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    Key key = {.count = 0};
    OpenCL cl;
    PyObject *lying, *memory, *found = NULL;
    (void)module;
    if (given != 1 + MOST_ARRAYS || !PyTuple_Check(arguments[0]) || PyTuple_Size(arguments[0]) != 3) {
        PyErr_SetString(PyExc_TypeError, "of_cl_arrays must be given a tuple of three and four arrays");
        return NULL;
    }
    cl.of_memory = (AskObject)(uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GetItem(arguments[0], 0));
    cl.of_event = (AskObject)(uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GetItem(arguments[0], 1));
    cl.buffers = (PyTypeObject *)PyTuple_GetItem(arguments[0], 2);
    lying = PyTuple_New(1 + MOST_ARRAYS);
    memory = PyTuple_New(MOST_ARRAYS);
    if (PyErr_Occurred())
        goto done;
    for (Py_ssize_t i = 0; i < MOST_ARRAYS; i++) {
        PyObject *array = arguments[1 + i], *dtype = NULL;
        PyObject *block = array == Py_None ? PyLong_FromLong(0) : add_cl_array(&cl, &key, array, &dtype);
        if (array == Py_None)
            add(&key, -1);
        PyTuple_SetItem(lying, 1 + i, dtype ? dtype : Py_NewRef(Py_None));
        if (!block) {
            PyErr_Clear();
            found = Py_NewRef(Py_None);
            goto done;
        }
        PyTuple_SetItem(memory, i, block);
    }
    PyObject *words = PyBytes_FromStringAndSize((const char *)key.words, key.count * (Py_ssize_t)sizeof *key.words);
    if (words && PyTuple_SetItem(lying, 0, words) == 0)
        found = PyTuple_Pack(2, lying, memory);
done:
    Py_XDECREF(lying);
    Py_XDECREF(memory);
    return found;
}

/* Where elements of an array lie: the first byte, and the one after the last. */
typedef struct {
    uintptr_t low, high;
} Span;

static Span span_of(const Py_buffer *plain)
{
    Span span = {(uintptr_t)plain->buf, (uintptr_t)plain->buf + (uintptr_t)plain->itemsize};
    for (int i = 0; i < plain->ndim; i++)
        span.high += (uintptr_t)((plain->shape[i] - 1) * plain->strides[i]);
    return span;
}

/* Whether a device can follow: elements lie one after another, or along steps forwards of whole elements. */
static int is_plain(const Py_buffer *view)
{
    if (!view->len || !view->strides || view->suboffsets || view->ndim > MOST_DIMENSIONS || !view->format
        || (uintptr_t)view->buf % (uintptr_t)view->itemsize || strlen(view->format) > 6)
        return 0;
    for (int i = 0; i < view->ndim; i++)
        if (view->shape[i] > 1 && (view->strides[i] < 0 || view->strides[i] % view->itemsize))
            return 0;
    return 1;
}

/* of_buffers(a, b, c, out): of arrays in the host's memory. None where `out` cannot be written, or may lie where an operand does;
   C and out may be None. */
static PyObject *of_buffers(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    Key key = {.count = 0};
    Span spans[MOST_ARRAYS] = {{0, 0}};
    PyObject *addresses, *found = NULL;
    (void)module;
    if (given != MOST_ARRAYS) {
        PyErr_SetString(PyExc_TypeError, "of_buffers must be given four arrays");
        return NULL;
    }
    if (!(addresses = PyTuple_New(MOST_ARRAYS)))
        return NULL;
    for (Py_ssize_t i = 0; i < MOST_ARRAYS; i++) {
        uintptr_t address = 0;
        if (arguments[i] == Py_None)
            add(&key, -1);
        else {
            Py_buffer view;
            if (PyObject_GetBuffer(arguments[i], &view, PyBUF_FULL_RO) < 0)
                goto otherwise; /* of a type that the buffer protocol does not have */
            int usable = is_plain(&view) && !(i == OUT && view.readonly);
            if (usable) {
                char format[8] = "";
                int64_t word;
                strcpy(format, view.format);
                format[7] = (char)view.ndim;
                memcpy(&word, format, sizeof word);
                add(&key, word);
                for (int j = 0; j < view.ndim; j++) {
                    add(&key, view.shape[j]);
                    add(&key, view.strides[j]);
                }
                spans[i] = span_of(&view);
                address = (uintptr_t)view.buf;
            }
            PyBuffer_Release(&view);
            for (int j = 0; j < OUT && i == OUT; j++)
                usable = usable && (spans[OUT].high <= spans[j].low || spans[j].high <= spans[OUT].low);
            if (!usable)
                goto otherwise;
        }
        PyObject *number = PyLong_FromUnsignedLongLong(address);
        if (!number)
            goto done;
        PyTuple_SetItem(addresses, i, number);
    }
    found = result(&key, addresses, NULL);
    goto done;
otherwise:
    PyErr_Clear();
    found = Py_NewRef(Py_None);
done:
    Py_DECREF(addresses);
    return found;
}

/* address(array): of the first element of an array in the host's memory. */
static PyObject *address(PyObject *module, PyObject *array)
{
    Py_buffer view;
    (void)module;
    if (PyObject_GetBuffer(array, &view, PyBUF_FULL_RO) < 0)
        return NULL;
    uintptr_t found = (uintptr_t)view.buf;
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(found);
}

static PyMethodDef functions[] = {
    {"address", address, METH_O, "address(array) -> int"},
    {"of_cl_arrays", (PyCFunction)(void (*)(void))of_cl_arrays, METH_FASTCALL,
     "of_cl_arrays(opencl, a, b, c, out) -> (key, memory) or None"},
    {"of_tensors", (PyCFunction)(void (*)(void))of_tensors, METH_FASTCALL,
     "of_tensors(exchange, a, b, c, out) -> (key, addresses, stream) or None"},
    {"of_buffers", (PyCFunction)(void (*)(void))of_buffers, METH_FASTCALL,
     "of_buffers(a, b, c, out) -> (key, addresses) or None"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_views", "Views of arrays, in C.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__views(void)
{
    for (int i = 0; i < NAMES; i++)
        if (!names[i] && !(names[i] = PyUnicode_InternFromString(spelled[i])))
            return NULL;
    return PyModule_Create(&definition);
}
