// unaligned: runs that begin anywhere in memory. What is loaded must be inside; a store may be partial.
//
// With WIDTH = 4 and float32, load_run_anywhere(A + 5) reads bytes 20 to 35, which no aligned load of 16 bytes does: those begin at
// multiples of 16.
#include "runs.cl"

// A run all of which is inside, wherever it lies in memory: CPUs move vectors so. `store_run`, likewise; a part of a run goes element
// by element, because Intel's compiler keeps fewer sums in registers beside masks: `packed` took a tenth longer (docs/cpu.md).
// Compilers differ in what they make of the two ways to move a vector (MOVES of `packed`).
#if defined(MOVES_VLOAD) && SUM_LANES > 1 && __clang_major__ != 14 // which does not compile some of these (pocl-vector-loads)
#define LOAD_ANYWHERE(type, p) PASTE(vload, SUM_LANES)(0, p)
#define STORE_ANYWHERE(type, x, p) PASTE(vstore, SUM_LANES)(x, 0, p)
#else
typedef struct __attribute__((packed)) { wide_t run; } anywhere_t;
#define LOAD_ANYWHERE(type, p) (((__global const type *)(p))->run)
#define STORE_ANYWHERE(type, x, p) (((__global type *)(p))->run = (x))
#if defined(LOADS_HALVES) || defined(STORES_HALVES)
typedef struct __attribute__((packed)) { halves_t run; } halves_anywhere_t;
#endif
#endif
inline wide_t load_run_anywhere(__global const in_t *p)
{
#if LOADS_SUMS
    return LOAD_ANYWHERE(anywhere_t, p);
#elif defined(LOADS_HALVES)
    return WIDENED(IN, LOAD_ANYWHERE(halves_anywhere_t, p));
#else
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = load(p + w);
    return x;
#endif
}
inline void store_run_anywhere(
    __global out_t *d, __global const out_t *c, wide_t sum, acc_t alpha, acc_t beta, int present)
{
#if STORES_SUMS
    if (WIDTH <= present) {
        wide_t value = alpha * sum;
        if (!is_zero(beta))
            value += beta * LOAD_ANYWHERE(anywhere_t, c);
        STORE_ANYWHERE(anywhere_t, value, d);
        return;
    }
#elif defined(STORES_HALVES)
    if (WIDTH <= present) {
        wide_t value = alpha * sum;
        if (!is_zero(beta))
            value += beta * WIDENED(OUT, LOAD_ANYWHERE(halves_anywhere_t, c));
        STORE_ANYWHERE(halves_anywhere_t, ROUNDED(OUT, value), d);
        return;
    }
#else
    if (ALIGNED_D && WIDTH <= present) {
        store_run(d, c, sum, alpha, beta, WIDTH);
        return;
    }
#endif
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        if (w < present)
            store(d + w, c + w, ELEMENT(sum, w), alpha, beta);
}
