// unaligned: runs that begin anywhere in memory. What is loaded must be inside; a store may be partial.
//
// With WIDTH = 4 and float32, load_run_anywhere(A + 5) reads bytes 20 to 35, which no aligned load of 16 bytes does: those begin at
// multiples of 16.
#include "runs.cu"

// A run all of which is inside, wherever it lies in memory. `store_run`, likewise.
__device__ inline wide_t load_run_anywhere(const in_t *p)
{
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = load(p + w);
    return x;
}
__device__ inline void store_run_anywhere(out_t *d, const out_t *c, wide_t sum, acc_t alpha, acc_t beta, int present)
{
    store_run(d, c, sum, alpha, beta, present);
}
