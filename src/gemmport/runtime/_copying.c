/* Copies of rows within the host's memory, shared by threads: one moves a fifth of what the memory does, or less.

   Helpers are threads of Python, which come by `serve` once and never leave: they wait, and copy, without the interpreter's lock.
   A caller opens a job, takes pieces of it like every helper that joins, closes it, and waits for those who are still at a piece.
   It waits for nobody who has not joined: one who sleeps too long, or is not there after a fork, has no part in it. Several
   callers have a job each, and a helper joins the one that has the fewest; where all jobs are taken, a caller copies alone.

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

#define PIECE ((size_t)256 << 10)
#define SPINS 4000 /* about 50 us on x86: several blocks of one copy come one after another */
#define JOBS 16

/* Rows of one size, copied between two memories, in each of which they lie so many bytes apart.

   turn: odd while the job is open. joined: helpers at it, `most` at the most. helped: pieces that they copied. A piece is
   `together` rows, or one of the `pieces` of a row that is longer than a piece. */
static struct job {
    uint32_t turn, joined, taken, helped, most;
    char *target;
    const char *source;
    size_t row, rows, target_step, source_step, together, pieces, count, next;
} jobs[JOBS];

/* opened: how many jobs have been, which helpers wait for. */
static uint32_t opened, sleeping;

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

static void copy_piece(const struct job *job, size_t piece)
{
    size_t first = piece / job->pieces * job->together, last = first + job->together;
    size_t begin = piece % job->pieces * PIECE, bytes = job->row - begin;
    if (job->pieces > 1 && bytes > PIECE)
        bytes = PIECE;
    if (last > job->rows)
        last = job->rows;
    for (size_t row = first; row < last; row++)
        memcpy(job->target + row * job->target_step + begin, job->source + row * job->source_step + begin, bytes);
}

static uint32_t copy_pieces(struct job *job)
{
    uint32_t copied = 0;
    for (size_t piece; (piece = __atomic_fetch_add(&job->next, 1, __ATOMIC_SEQ_CST)) < job->count; copied++)
        copy_piece(job, piece);
    return copied;
}

/* Joins a job that it finds open, as one of so many at most. Returns whether there was anything left to copy. */
static int help(struct job *job)
{
    uint32_t seen = load(&job->turn), copied = 0;
    if (seen & 1) {
        /* Who joins first and then finds the job open is waited for; `turn` is closed before `joined` is looked at. */
        if (add(&job->joined, 1) < load(&job->most) && load(&job->turn) == seen) {
            copied = copy_pieces(job);
            add(&job->helped, copied);
        }
        add(&job->joined, -1u);
    }
    return copied != 0;
}

/* The open job that has pieces left and the fewest helpers, if there is one that may have one more. */
static struct job *neediest(void)
{
    struct job *found = NULL;
    uint32_t fewest = UINT32_MAX;
    for (struct job *job = jobs; job < jobs + JOBS; job++) {
        uint32_t joined = load(&job->joined);
        if ((load(&job->turn) & 1) && joined < load(&job->most) && joined < fewest
            && __atomic_load_n(&job->next, __ATOMIC_SEQ_CST) < __atomic_load_n(&job->count, __ATOMIC_SEQ_CST))
            fewest = joined, found = job;
    }
    return found;
}

/* serve(): helps, and never returns. */
static PyObject *serve(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    Py_BEGIN_ALLOW_THREADS
    for (;;) {
        uint32_t seen = load(&opened);
        struct job *job;
        while ((job = neediest()) != NULL)
            help(job);
        await_change(&opened, seen);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static struct job *take_job(void)
{
    for (struct job *job = jobs; job < jobs + JOBS; job++) {
        uint32_t nobody = 0;
        if (!load(&job->taken) && __atomic_compare_exchange_n(&job->taken, &nobody, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return job;
    }
    return NULL;
}

/* Copies what `asked` says, by this thread and its helpers. Returns how many pieces these copied. */
static uint32_t copy_shared(const struct job *asked)
{
    struct job *job = asked->most && asked->count > 1 ? take_job() : NULL;
    uint32_t by_helpers;
    if (job == NULL) {
        for (size_t piece = 0; piece < asked->count; piece++)
            copy_piece(asked, piece);
        return 0;
    }
    job->target = asked->target, job->source = asked->source;
    job->row = asked->row, job->rows = asked->rows;
    job->target_step = asked->target_step, job->source_step = asked->source_step;
    job->together = asked->together, job->pieces = asked->pieces;
    job->helped = 0;
    __atomic_store_n(&job->most, asked->most, __ATOMIC_SEQ_CST);
    __atomic_store_n(&job->count, asked->count, __ATOMIC_SEQ_CST);
    __atomic_store_n(&job->next, 0, __ATOMIC_SEQ_CST);
    add(&job->turn, 1);
    add(&opened, 1);
    if (load(&sleeping))
        syscall(SYS_futex, &opened, FUTEX_WAKE_PRIVATE, asked->most, NULL, NULL, 0);
    copy_pieces(job);
    add(&job->turn, 1);
    for (unsigned long spin = 0; load(&job->joined); spin++)
        if (spin < SPINS)
            rest();
        else
            sched_yield();
    by_helpers = load(&job->helped);
    __atomic_store_n(&job->taken, 0, __ATOMIC_SEQ_CST);
    return by_helpers;
}

/* copy(target, source, row, rows, target_step, source_step, helpers): copies so many rows of so many bytes between two addresses,
   from which on they lie so many bytes apart, in memory that does not overlap, by this thread and so many others at most. Returns
   how many pieces the others copied. */
static PyObject *copy(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    struct job asked = {0};
    size_t helpers;
    uint32_t by_helpers;
    (void)module;
    if (given != 7) {
        PyErr_Format(PyExc_TypeError, "copy must be given 7 arguments; got %zd", given);
        return NULL;
    }
    asked.target = PyLong_AsVoidPtr(arguments[0]);
    asked.source = PyLong_AsVoidPtr(arguments[1]);
    asked.row = PyLong_AsSize_t(arguments[2]);
    asked.rows = PyLong_AsSize_t(arguments[3]);
    asked.target_step = PyLong_AsSize_t(arguments[4]);
    asked.source_step = PyLong_AsSize_t(arguments[5]);
    helpers = PyLong_AsSize_t(arguments[6]);
    if (PyErr_Occurred())
        return NULL;
    if (asked.row == 0 || asked.rows == 0)
        return PyLong_FromUnsignedLong(0);
    asked.most = (uint32_t)helpers;
    asked.pieces = (asked.row + PIECE - 1) / PIECE;
    asked.together = asked.pieces > 1 ? 1 : PIECE / asked.row;
    asked.count = (asked.rows + asked.together - 1) / asked.together * asked.pieces;
    Py_BEGIN_ALLOW_THREADS
    by_helpers = copy_shared(&asked);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLong(by_helpers);
}

/* forget(): after a fork no helper is here, nor another caller. */
static PyObject *forget(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    memset(jobs, 0, sizeof jobs);
    sleeping = 0;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"copy", (PyCFunction)(void (*)(void))copy, METH_FASTCALL, "copy(target, source, row, rows, target_step, source_step, helpers) -> pieces by helpers"},
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
