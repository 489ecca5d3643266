/* Launches what a prepared call consists of, without a step of Python between its kernels.

   A script is a bytes object of 64-bit words, which is written once, in _cudamodules.py and _opencldriver.py. Operands are told
   by number: each launch names the arguments that are memory, and which operand each is. What follows a launch that is refused
   is not launched.

   The runtimes' functions come as addresses in the script: nothing is linked, and none of their headers is needed. */

#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define MOST_OPERANDS 8

/* CUlaunchConfig of cuda.h. */
typedef struct {
    unsigned groups[3], work_group[3], shared_bytes;
    void *stream, *attributes;
    unsigned number_of_attributes;
} LaunchConfig;

typedef int (*LaunchKernelEx)(const LaunchConfig *, void *, void **, void **);
typedef int (*CtxGetCurrent)(void **);
typedef int (*AskStream)(void *, uint64_t *);
typedef int32_t (*SetKernelArg)(void *, uint32_t, size_t, const void *);
typedef int32_t (*SetKernelArgPointer)(void *, uint32_t, const void *);
typedef int32_t (*ReleaseEvent)(void *);
typedef int32_t (*EnqueueNDRangeKernel)(
    void *, void *, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t, const void *, void *);

static PyObject *int_ptr;

/* A word of a script. Its bytes may lie anywhere. */
static uint64_t next(const char **words)
{
    uint64_t word;
    memcpy(&word, *words, sizeof word);
    *words += sizeof word;
    return word;
}

static void *pointer(const char **words)
{
    return (void *)(uintptr_t)next(words);
}

static int check_count(Py_ssize_t given, Py_ssize_t wanted, const char *what)
{
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s must be given %zd arguments; got %zd", what, wanted, given);
    return 0;
}

static int check_operands(PyObject *operands, Py_ssize_t *count)
{
    if (!PyTuple_Check(operands) || (*count = PyTuple_Size(operands)) > MOST_OPERANDS) {
        PyErr_Format(PyExc_TypeError, "operands must be a tuple of at most %d", MOST_OPERANDS);
        return 0;
    }
    return 1;
}

/* cuda(script, stream, operands): operands are device pointers. -1 where another context is current, which is nothing that
   the driver returns: nothing was launched then. The interpreter's lock is given up: where the driver's queue is full, a launch
   waits, perhaps for a function of the host that needs the lock. */
static PyObject *cuda(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    char *words;
    const char *at;
    uint64_t memory[MOST_OPERANDS];
    Py_ssize_t size, count;
    void *stream, *current = NULL;
    int result = 0;
    (void)module;
    if (!check_count(given, 3, "cuda") || PyBytes_AsStringAndSize(arguments[0], &words, &size) < 0
        || !check_operands(arguments[2], &count))
        return NULL;
    stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(arguments[1]);
    for (Py_ssize_t i = 0; i < count; i++)
        memory[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(arguments[2], i));
    if (PyErr_Occurred())
        return NULL;
    at = words;
    LaunchKernelEx launch = (LaunchKernelEx)pointer(&at);
    CtxGetCurrent get_current = (CtxGetCurrent)pointer(&at);
    void *context = pointer(&at);
    uint64_t launches = next(&at);
    if (get_current(&current) != 0 || current != context)
        return PyLong_FromLong(-1);
    Py_BEGIN_ALLOW_THREADS
    while (launches-- && !result) {
        LaunchConfig *config = pointer(&at);
        void *kernel = pointer(&at);
        void **parameters = pointer(&at);
        for (uint64_t places = next(&at); places--;) {
            uint64_t *word = pointer(&at);
            *word = memory[next(&at)];
        }
        config->stream = stream;
        result = launch(config, kernel, parameters, NULL);
    }
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(result);
}

/* opencl(script, queue, operands, marked): how many launches were made, and the handle of the last one's event, which is the
   caller's to release; 0 where it is not wanted (`marked`) or the last launch was not made. The queue is told by its handle; an
   operand is an object of PyOpenCL, which has the handle of a cl_mem, or the address of memory that host and device share. The
   interpreter's lock is held, as by PyOpenCL: to get it back may take longer than the launch. */
static PyObject *opencl(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    char *words;
    const char *at;
    void *memory[MOST_OPERANDS];
    int is_address[MOST_OPERANDS];
    Py_ssize_t size, count;
    void *queue, *last = NULL;
    long made = 0;
    int32_t result = 0;
    int marked;
    (void)module;
    if (!check_count(given, 4, "opencl") || (marked = PyObject_IsTrue(arguments[3])) < 0 || PyBytes_AsStringAndSize(arguments[0], &words, &size) < 0
        || !check_operands(arguments[2], &count))
        return NULL;
    queue = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(arguments[1]);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *operand = PyTuple_GetItem(arguments[2], i);
        is_address[i] = PyLong_Check(operand);
        PyObject *handle = is_address[i] ? Py_NewRef(operand) : PyObject_GetAttr(operand, int_ptr);
        if (!handle)
            return NULL;
        memory[i] = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(handle);
        Py_DECREF(handle);
    }
    if (PyErr_Occurred())
        return NULL;
    at = words;
    SetKernelArg set_memory = (SetKernelArg)pointer(&at);
    SetKernelArgPointer set_address = (SetKernelArgPointer)pointer(&at);
    EnqueueNDRangeKernel enqueue = (EnqueueNDRangeKernel)pointer(&at);
    ReleaseEvent release = (ReleaseEvent)pointer(&at); /* NULL where launches have no events */
    for (uint64_t launches = next(&at); launches-- && !result;) {
        void *kernel = pointer(&at);
        size_t extent[3], work_group[3];
        for (int i = 0; i < 3; i++)
            extent[i] = next(&at);
        for (int i = 0; i < 3; i++)
            work_group[i] = next(&at);
        for (uint64_t places = next(&at); places-- && !result;) {
            uint32_t number = (uint32_t)next(&at);
            uint64_t operand = next(&at);
            result = is_address[operand] ? set_address(kernel, number, memory[operand])
                                         : set_memory(kernel, number, sizeof(void *), &memory[operand]);
        }
        void *event = NULL;
        int is_last = marked && !launches;
        if (!result)
            result = enqueue(queue, kernel, 3, NULL, extent, work_group, 0, NULL, release || is_last ? &event : NULL);
        if (is_last)
            last = event;
        else if (event)
            release(event);
        made += !result;
    }
    return Py_BuildValue("lK", made, (unsigned long long)(uintptr_t)last);
}

/* asked(function, stream): what a function of CUDA's driver tells of a stream, as a number; None where it refuses. */
static PyObject *asked(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    uint64_t told = 0;
    (void)module;
    if (!check_count(given, 2, "asked"))
        return NULL;
    AskStream ask = (AskStream)(uintptr_t)PyLong_AsUnsignedLongLong(arguments[0]);
    void *stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(arguments[1]);
    if (PyErr_Occurred())
        return NULL;
    return ask(stream, &told) ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(told);
}

/* Sets a word of 64 bits. CUDA calls it when a graph is gone, in a thread of its own, which must not wait for the interpreter. */
static void set_word(void *word)
{
    *(volatile uint64_t *)word = 1;
}

/* word_setter(): the address of `set_word`. */
static PyObject *word_setter(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    (void)arguments;
    if (!check_count(given, 0, "word_setter"))
        return NULL;
    return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)set_word);
}

static PyMethodDef functions[] = {
    {"asked", (PyCFunction)(void (*)(void))asked, METH_FASTCALL, "asked(function, stream) -> int or None"},
    {"cuda", (PyCFunction)(void (*)(void))cuda, METH_FASTCALL, "cuda(script, stream, operands) -> CUresult, or -1"},
    {"opencl", (PyCFunction)(void (*)(void))opencl, METH_FASTCALL, "opencl(script, queue, operands, marked) -> launches made, event"},
    {"word_setter", (PyCFunction)(void (*)(void))word_setter, METH_FASTCALL, "word_setter() -> address of a C function that sets a word"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_launching", "Launches of prepared calls, in C.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__launching(void)
{
    if (!int_ptr && !(int_ptr = PyUnicode_InternFromString("int_ptr")))
        return NULL;
    return PyModule_Create(&definition);
}
