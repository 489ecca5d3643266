// runs: WIDTH neighbours in memory, moved at once where they are aligned and all inside, and element by element elsewhere.
//
// With WIDTH = 4 and float32, a run has 16 bytes. Of an A of 3 × 10 that is not transposed, and whose rows are aligned (ALIGNED_A):
//     PRESENT_A(0, 4) is 10 - 4 = 6:   LOAD_RUN_A(0, 4) is {A[0, 4], A[0, 5], A[0, 6], A[0, 7]}, one load of 16 bytes
//     PRESENT_A(0, 8) is 10 - 8 = 2:   LOAD_RUN_A(0, 8) is {A[0, 8], A[0, 9], 0, 0}, two loads
//     PRESENT_A(3, 0) is 0, for there is no row 3:   LOAD_RUN_A(3, 0) is {0, 0, 0, 0}, and nothing is read
// store_part_of_run(d, c, sum, alpha, beta, 1, 3) writes d[1] and d[2]. With APART = 8, a run has the columns 0, 8, 16 and
// 24: store_part_of_run(d, c, sum, alpha, beta, 1, 20) writes d[8] and d[16].
#include "products.cl"
#include "vectors.cl"

// The first `present` elements of a run as they are stored, zeros for the rest; and as sums.
inline in_run_t fetch_run(__global const in_t *p, int present, int aligned)
{
    in_run_t run;
    if (aligned && present >= WIDTH)
        run = *(__global const in_run_t *)p;
    else
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            RUN_ELEMENT(in_t, run, w) = w < present ? p[w] : (in_t)0;
    return run;
}
inline wide_t to_sums(in_run_t run)
{
#if defined(LOADS_HALVES)
    return WIDENED(IN, run);
#else
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = to_sum(RUN_ELEMENT(const in_t, run, w));
    return x;
#endif
}

// `store` for the elements of a run from column `begin` to before column `end`, counted from its first, in two steps: what C holds,
// with zeros for the rest, and D with what C held. `store_part_of_run` does both, and `store_run` for the first `present` columns.
// Where rows of D are not aligned, a kernel may choose runs of columns that lie APART. Kernels that need NVIDIA's matrix unit round floats to
// halves two at a time (STORES_PAIRS; ptx.cl).
#if defined(STORES_PAIRS)
#define PAIR_OF_float16 FLOATS_TO_HALVES
#define PAIR_OF_bfloat16 FLOATS_TO_BFLOATS
#endif
#if !defined(APART)
#define APART 1
#endif
inline out_run_t read_before(__global const out_t *c, int begin, int end)
{
    out_run_t run;
    if (ALIGNED_D && begin <= 0 && end >= WIDTH)
        run = *(__global const out_run_t *)c;
    else
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            RUN_ELEMENT(out_t, run, w) = w * APART >= begin && w * APART < end ? c[w * APART] : (out_t)0;
    return run;
}
inline void store_over(__global out_t *d, out_run_t before, wide_t sum, acc_t alpha, acc_t beta, int begin, int end)
{
    wide_t value;
    out_run_t run;
#if defined(STORES_HALVES)
    value = alpha * sum;
    if (!LEAVES_C_OUT(beta))
        value += beta * WIDENED(OUT, before);
    run = ROUNDED(OUT, value);
#else
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(value, w) = scaled(alpha, ELEMENT(sum, w));
    if (!LEAVES_C_OUT(beta))
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            ELEMENT(value, w) = plus_scaled(ELEMENT(value, w), beta, RUN_ELEMENT(const out_t, before, w));
#if defined(STORES_PAIRS)
    #pragma unroll
    for (int w = 0; w < WIDTH; w += 2) {
        uint pair;
        PASTE(PAIR_OF_, OUT)(pair, ELEMENT(value, w), ELEMENT(value, w + 1));
        ((uint *)&run)[w / 2] = pair;
    }
#else
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        RUN_ELEMENT(out_t, run, w) = to_stored(ELEMENT(value, w));
#endif
#endif
    if (ALIGNED_D && begin <= 0 && end >= WIDTH)
        *(__global out_run_t *)d = run;
    else
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            if (w * APART >= begin && w * APART < end)
                d[w * APART] = RUN_ELEMENT(const out_t, run, w);
}
inline void store_part_of_run(__global out_t *d, __global const out_t *c, wide_t sum, acc_t alpha, acc_t beta, int begin, int end)
{
    out_run_t before = (out_run_t)0; // PoCL 3.1 writes nothing where it is left undefined
    if (!LEAVES_C_OUT(beta))
        before = read_before(c, begin, end);
    store_over(d, before, sum, alpha, beta, begin, end);
}
inline void store_run(__global out_t *d, __global const out_t *c, wide_t sum, acc_t alpha, acc_t beta, int present)
{
    store_part_of_run(d, c, sum, alpha, beta, 0, present);
}

#if CONJUGATE_A
#define OF_A(run) wide_conjugated(run)
#else
#define OF_A(run) run
#endif
#if CONJUGATE_B
#define OF_B(run) wide_conjugated(run)
#else
#define OF_B(run) run
#endif

// The run of op(A) that begins at [i, p], and of op(B) at [p, j], along memory: as it is stored, and as sums; and how many of so
// many elements are inside.
#if defined(EDGES) && !EDGES
#define PRESENT(line_is_inside, left) (WIDTH * APART)
#else
#define PRESENT(line_is_inside, left) ((line_is_inside) ? (left) : 0)
#endif
#define PRESENT_A(i, p) (A_RUNS_ALONG_K ? PRESENT((i) < m, k - (p)) : PRESENT((p) < k, m - (i)))
#define PRESENT_B(p, j) (B_RUNS_ALONG_K ? PRESENT((j) < n, k - (p)) : PRESENT((p) < k, n - (j)))
#define FETCH_RUN_A(i, p) fetch_run(A + INDEX_A(i, p), PRESENT_A(i, p), ALIGNED_A)
#define FETCH_RUN_B(p, j) fetch_run(B + INDEX_B(p, j), PRESENT_B(p, j), ALIGNED_B)
#define LOAD_RUN_A(i, p) OF_A(to_sums(FETCH_RUN_A(i, p)))
#define LOAD_RUN_B(p, j) OF_B(to_sums(FETCH_RUN_B(p, j)))
