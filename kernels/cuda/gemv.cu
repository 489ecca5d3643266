// gemv: products with few columns, which memory bounds. A is read once, by many threads at once and several runs ahead; the columns
// of B, the vectors, come through the caches. Where A lies along k, the threads of one row are side by side along k and add up
// products in each lane of a run; where it lies across, threads side by side have neighbouring rows, and others have other terms.
// Blocks may share a sum: each leaves its part, and a second launch adds up the parts in their order.
#include "early.cu"
#include "ptx.cu"
#include "unaligned.cu"

// What a thread has: RUNS runs for each of its terms, with the sums of so many rows; and how many threads add up the same rows.
#if A_RUNS_ALONG_K
#define ROWS RUNS
#define RUN_ROWS 1 // of a run
#define TERMS WIDTH // of a run
#define ADDERS SIDE
#define ADDER(thread) ((thread) % SIDE)
#define OWNER(thread) ((thread) / SIDE)
#define APART 1 // from one adder to the next
#define NEXT_TERM 1
#else
#define ROWS (RUNS * WIDTH)
#define RUN_ROWS WIDTH
#define TERMS 1
#define ADDERS (ITEMS / SIDE)
#define ADDER(thread) ((thread) / SIDE)
#define OWNER(thread) ((thread) % SIDE)
#undef APART // which the runs of the prelude had
#define APART SIDE
#define NEXT_TERM ld_a
#endif
#define GROUP_ROWS (ITEMS / ADDERS * ROWS)
#define STEP (ADDERS * TERMS) // terms from a run of a thread to its next

// Which row the r-th run begins with at most, and which sum of a thread is that of its r-th row. Where runs are not whole beyond the
// edge, the last block reads the last ROWS rows, some of which are the block's before: SHIFTED, which spares code for parts of runs.
#if defined(SHIFTED)
#define LAST_RUN(r) (m - ROWS + (r) * RUN_ROWS)
#define PLACE(r) min((r) + max(row + ROWS - m, 0), ROWS - 1)
#else
#define LAST_RUN(r) (m - 1) / RUN_ROWS * RUN_ROWS
#define PLACE(r) r
#endif

// D is computed as it is, or transposed.
#define INDEX_D(i, j, ld) (TRANSPOSED ? (index_t)(j) * (ld) + (i) : (index_t)(i) * (ld) + (j))

// The first `present` elements of a run as sums, zeros for the rest.
__device__ inline wide_t run_at(const in_t *p, int present, bool aligned)
{
    return !aligned && present >= WIDTH ? load_run_anywhere(p) : to_sums(fetch_run(p, present, aligned));
}

// What a run of A is multiplied by, and what comes of it.
#if DOTS // bytes, of which one instruction multiplies four by four and adds up: a run is words, for compilers take bytes apart
#define DOT PASTE(DOT_, DOT_TYPE)
struct alignas(WIDTH) words_t { unsigned word[WIDTH / 4]; };
#define WORD(run, w) (run).word[w]
__device__ inline words_t words_at(const in_t *p, int present, bool aligned)
{
    words_t run;
    if (aligned && present >= WIDTH)
        run = *(const words_t *)p;
    else
        #pragma unroll
        for (int w = 0; w < WIDTH / 4; ++w) {
            unsigned word = 0;
            #pragma unroll
            for (int e = 0; e < 4; ++e)
                word |= w * 4 + e < present ? (unsigned)(unsigned char)p[w * 4 + e] << e * 8 : 0;
            WORD(run, w) = word;
        }
    return run;
}
typedef words_t factor_t;
__device__ inline factor_t factor(const in_t *B, index_t ld_b, int p, int j, int present)
{
    return words_at(B + INDEX_B(p, j), present, ALIGNED_B);
}
#define SUM acc_t
#define SUM_ZERO ACC_ZERO
__device__ inline acc_t plus_product(acc_t sum, words_t a, factor_t b)
{
    #pragma unroll
    for (int w = 0; w < WIDTH / 4; ++w)
        DOT(sum, WORD(a, w), WORD(b, w));
    return sum;
}
#else
#define SUM wide_t
#define SUM_ZERO WIDE_ZERO
#if A_RUNS_ALONG_K
typedef wide_t factor_t;
__device__ inline factor_t factor(const in_t *B, index_t ld_b, int p, int j, int present)
{
#if B_RUNS_ALONG_K
    return OF_B(rounded_numbers(run_at(B + INDEX_B(p, j), present, ALIGNED_B)));
#elif defined(LOADS_HALVES) // which are converted at once
    in_run_t run;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        RUN_ELEMENT(in_t, run, w) = w < present ? B[INDEX_B(p + w, j)] : in_t{};
    return to_sums(run);
#else
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = w < present ? LOAD_B(p + w, j) : ACC_ZERO;
    return rounded_numbers(x);
#endif
}
__device__ inline wide_t plus_product(wide_t sum, wide_t a, factor_t b) { return lanes_mul_add(a, b, sum); }
#else
typedef acc_t factor_t;
__device__ inline factor_t factor(const in_t *B, index_t ld_b, int p, int j, int present) { return rounded_number(LOAD_B(p, j)); }
__device__ inline wide_t plus_product(wide_t sum, wide_t a, factor_t b) { return wide_mul_add(b, a, sum); }
#endif
#endif

// The r-th sum of a thread.
__device__ inline acc_t total(const SUM *sum, int r)
{
#if DOTS
    return sum[r];
#elif A_RUNS_ALONG_K
    acc_t of_lanes = ELEMENT(sum[r], 0);
    #pragma unroll
    for (int w = 1; w < WIDTH; ++w)
        of_lanes = sum_of(of_lanes, ELEMENT(sum[r], w));
    return of_lanes;
#else
    return ELEMENT(sum[r / WIDTH], r % WIDTH);
#endif
}

// Adds up `rows` sums of each of the threads whose adders they are, a power of two: the first one has what comes of it.
__device__ inline void add_up(acc_t *sums, int rows, int thread, int adder, int adders, int apart)
{
    for (int half_of_them = adders / 2; half_of_them > 0; half_of_them /= 2) {
        __syncthreads(); // the sums of the step before are complete
        if (adder < half_of_them)
            for (int r = 0; r < rows; ++r) {
                const int place = r * ITEMS + thread;
                sums[place] = sum_of(sums[place], sums[place + half_of_them * apart]);
            }
    }
}

// A thread's runs of one step, from term p on; those of A that are on their way stay as they are stored.
#if DOTS
typedef words_t ahead_t;
__device__ inline ahead_t read_ahead(const in_t *p, int present) { return words_at(p, present, true); }
__device__ inline words_t arrived(ahead_t run) { return run; }
#elif ALIGNED_A
typedef in_run_t ahead_t;
__device__ inline ahead_t read_ahead(const in_t *p, int present) { return fetch_run(p, present, true); }
__device__ inline wide_t arrived(ahead_t run) { return OF_A(rounded_numbers(to_sums(run))); }
#else
typedef wide_t ahead_t;
__device__ inline ahead_t read_ahead(const in_t *p, int present) { return run_at(p, present, false); }
__device__ inline wide_t arrived(ahead_t run) { return OF_A(rounded_numbers(run)); }
#endif
__device__ __forceinline__ void read_step(
    ahead_t *ahead, const in_t *const *from, index_t ld_a, const int *rows_left, int p, int terms_left)
{
    #pragma unroll
    for (int r = 0; r < RUNS; ++r)
        ahead[r] = read_ahead(from[r] + p * (index_t)NEXT_TERM, A_RUNS_ALONG_K ? terms_left : rows_left[r]);
}
__device__ __forceinline__ void multiply_step(
    SUM (*sum)[RUNS], const ahead_t *ahead, const in_t *B, index_t ld_b, int column, int n, int p, int terms_left)
{
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const factor_t b = factor(B, ld_b, p, min(column + v, n - 1), terms_left);
        #pragma unroll
        for (int r = 0; r < RUNS; ++r)
            sum[v][r] = plus_product(sum[v][r], arrived(ahead[r]), b);
    }
}

// A part of the terms, `depth` of them or what is left, for one block of rows and of columns. Where there are more parts than one,
// `results` sums of each stand in part_sums.
extern "C" __global__ __launch_bounds__(ITEMS)
void gemv(GEMM_ARGUMENTS, acc_t *part_sums, int parts, int depth, index_t results)
{
    __shared__ acc_t sums[ROWS * ITEMS];
    LET_NEXT()
    const int thread = (int)threadIdx.x;
    const int part = (int)(blockIdx.x % parts);
    const unsigned number = blockIdx.x / parts;
    const unsigned down = ((unsigned)m + GROUP_ROWS - 1) / GROUP_ROWS;
    const unsigned across = ((unsigned)n + VECTORS - 1) / VECTORS;
    const int row = (int)(number % down) * GROUP_ROWS + OWNER(thread) * ROWS;
    const int column = (int)(number / down % across) * VECTORS;
    const index_t batch = number / down / across;
    SELECT_BATCH(batch);

    // Its rows, of which those beyond the edge are the last ones once more; its terms.
    const in_t *from[RUNS];
    int rows_left[RUNS];
    #pragma unroll
    for (int r = 0; r < RUNS; ++r) {
        const int i = min(row + r * RUN_ROWS, LAST_RUN(r));
        from[r] = A + INDEX_A(i, 0);
        rows_left[r] = PRESENT(1, m - i);
    }
    const int begin = part * depth;
    const int end = begin + min(k - begin, depth);
    int p = begin + ADDER(thread) * TERMS;
    AWAIT_BEFORE()

    SUM sum[VECTORS][RUNS];
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v)
        #pragma unroll
        for (int r = 0; r < RUNS; ++r)
            sum[v][r] = SUM_ZERO;

    // The runs of UNROLL steps are on their way at once: each place is read again as soon as what was there is multiplied. Then come
    // single steps, the last of which may not be whole.
#define READ(ahead, p, terms_left) read_step(ahead, from, ld_a, rows_left, p, terms_left)
#define MULTIPLY(ahead, p, terms_left) multiply_step(sum, ahead, B, ld_b, column, n, p, terms_left)
#define ALL_WHOLE(p) (end - (p) >= (UNROLL - 1) * STEP + TERMS)
    if (ALL_WHOLE(p)) {
        ahead_t ahead[UNROLL][RUNS];
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            READ(ahead[u], p + u * STEP, WIDTH);
        for (p += UNROLL * STEP; ALL_WHOLE(p); p += UNROLL * STEP)
            #pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                MULTIPLY(ahead[u], p + (u - UNROLL) * STEP, WIDTH);
                READ(ahead[u], p + u * STEP, WIDTH);
            }
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            MULTIPLY(ahead[u], p + (u - UNROLL) * STEP, WIDTH);
    }
    #pragma unroll 1
    for (; p < end; p += STEP) {
        ahead_t last[RUNS];
        READ(last, p, end - p);
        MULTIPLY(last, p, end - p);
    }

    #pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        if (v > 0)
            __syncthreads(); // the sums of the vector before have been read
        #pragma unroll
        for (int r = 0; r < ROWS; ++r)
            sums[r * ITEMS + thread] = total(sum[v], r);
#if ADDERS > 1
        add_up(sums, ROWS, thread, ADDER(thread), ADDERS, APART);
#endif
        const int j = column + v;
        if (ADDER(thread) == 0 && j < n)
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const int i = row + r;
                const acc_t x = sums[PLACE(r) * ITEMS + thread];
                if (i < m && parts > 1)
                    part_sums[part * results + (batch * n + j) * m + i] = x;
                else if (i < m)
                    store(D + INDEX_D(i, j, ld_d), C + INDEX_D(i, j, ld_c), x, alpha, beta);
            }
    }
}

// The sum of the parts of each result, in their order: a block has so many results side by side, and so many threads for each.
#define SIDE_RESULTS 8
#define PART_ADDERS 16
extern "C" __global__ __launch_bounds__(SIDE_RESULTS * PART_ADDERS)
void add_parts(GEMM_ARGUMENTS, const acc_t *part_sums, int parts, int depth, index_t results)
{
    __shared__ acc_t sums[SIDE_RESULTS * PART_ADDERS];
    LET_NEXT()
    AWAIT_BEFORE()
    const int thread = (int)threadIdx.x;
    const int adder = thread / SIDE_RESULTS;
    const index_t result = (index_t)blockIdx.x * SIDE_RESULTS + thread % SIDE_RESULTS;
    acc_t sum = ACC_ZERO;
    if (result < results)
        #pragma unroll 4
        for (int part = adder; part < parts; part += PART_ADDERS)
            sum = sum_of(sum, part_sums[part * results + result]);
    sums[thread] = sum;
    add_up(sums, 1, thread, adder, PART_ADDERS, SIDE_RESULTS);
    if (adder == 0 && result < results) {
        const int i = (int)(result % m);
        const int j = (int)(result / m % n);
        SELECT_BATCH(result / m / n);
        store(D + INDEX_D(i, j, ld_d), C + INDEX_D(i, j, ld_c), sums[thread], alpha, beta);
    }
}
