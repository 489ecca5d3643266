/* Copies within the host's memory, shared by threads: one moves a fifth of what the memory does.

   Helpers are threads of Python, which come by `serve` once and never leave: they wait, and copy, without the interpreter's lock.
   A caller opens a job, takes chunks of it like every helper that joins, closes it, and waits for those who are still at a chunk.
   It waits for nobody who has not joined: one who sleeps too long, or is not there after a fork, has no part in it. Where another
   caller has the helpers, it copies alone.

   Linux: who has waited a while sleeps by futex(2). Of the C library `memcpy`, `syscall` and `sched_yield` are used. */

#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHUNK ((size_t)256 << 10)
#define SPINS 4000 /* about 50 us on x86: several blocks of one copy come one after another */

/* turn: odd while a job is open. joined: helpers at the job. helped: chunks that they copied of it. */
static uint32_t turn, joined, sleeping, taken, helped;
static uint32_t most;
static char *target;
static const char *source;
static size_t size, next;

static uint32_t load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static uint32_t add(uint32_t *word, uint32_t by)
{
    return __atomic_fetch_add(word, by, __ATOMIC_SEQ_CST);
}

static void rest(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits until a word is another. */
static void await_change(uint32_t *word, uint32_t seen)
{
    for (int spin = 0; spin < SPINS; spin++) {
        if (load(word) != seen)
            return;
        rest();
    }
    add(&sleeping, 1);
    while (load(word) == seen)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    add(&sleeping, -1u);
}

static uint32_t copy_chunks(void)
{
    char *to = target;
    const char *from = source;
    size_t all = size, at;
    uint32_t copied = 0;
    for (; (at = __atomic_fetch_add(&next, CHUNK, __ATOMIC_SEQ_CST)) < all; copied++)
        memcpy(to + at, from + at, all - at < CHUNK ? all - at : CHUNK);
    return copied;
}

/* serve(): helps, and never returns. */
static PyObject *serve(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    Py_BEGIN_ALLOW_THREADS
    for (;;) {
        uint32_t seen = load(&turn);
        if (seen & 1) {
            /* Who joins first and then finds the job open is waited for; `turn` is closed before `joined` is looked at. */
            if (add(&joined, 1) < load(&most) && load(&turn) == seen)
                add(&helped, copy_chunks());
            add(&joined, -1u);
        }
        await_change(&turn, seen);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static uint32_t copy_shared(char *to, const char *from, size_t count, uint32_t helpers)
{
    uint32_t nobody = 0, by_helpers;
    if (helpers == 0 || count <= CHUNK
        || !__atomic_compare_exchange_n(&taken, &nobody, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        memcpy(to, from, count);
        return 0;
    }
    target = to, source = from, size = count, helped = 0;
    __atomic_store_n(&most, helpers, __ATOMIC_SEQ_CST);
    __atomic_store_n(&next, 0, __ATOMIC_SEQ_CST);
    add(&turn, 1);
    if (load(&sleeping))
        syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    copy_chunks();
    add(&turn, 1);
    for (unsigned long spin = 0; load(&joined); spin++)
        if (spin < SPINS)
            rest();
        else
            sched_yield();
    by_helpers = load(&helped);
    __atomic_store_n(&taken, 0, __ATOMIC_SEQ_CST);
    return by_helpers;
}

/* copy(target, source, nbytes, helpers): copies between two addresses, of memory that does not overlap, by this thread and so
   many others at most. Returns how many chunks the others copied. */
static PyObject *copy(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    void *to, *from;
    size_t count, helpers;
    uint32_t by_helpers;
    (void)module;
    if (given != 4) {
        PyErr_Format(PyExc_TypeError, "copy must be given 4 arguments; got %zd", given);
        return NULL;
    }
    to = PyLong_AsVoidPtr(arguments[0]);
    from = PyLong_AsVoidPtr(arguments[1]);
    count = PyLong_AsSize_t(arguments[2]);
    helpers = PyLong_AsSize_t(arguments[3]);
    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    by_helpers = copy_shared(to, from, count, (uint32_t)helpers);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLong(by_helpers);
}

/* forget(): after a fork no helper is here, nor another caller. */
static PyObject *forget(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    turn &= ~1u;
    joined = sleeping = taken = 0;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"copy", (PyCFunction)(void (*)(void))copy, METH_FASTCALL, "copy(target, source, nbytes, helpers) -> chunks by helpers"},
    {"forget", forget, METH_NOARGS, "forget()"},
    {"serve", serve, METH_NOARGS, "serve()"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_copying", "Copies within the host's memory, shared by threads.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__copying(void)
{
    return PyModule_Create(&definition);
}
