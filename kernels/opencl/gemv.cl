// gemv: products with few columns, which memory bounds. A is read once, by many work-items at once and several runs ahead; the columns
// of B, the vectors, come through the caches. Where A lies along k, the work-items of one row are side by side along k and add up
// products in each lane of a run; where it lies across, work-items side by side have neighbouring rows, and others have other terms.
// Groups may share a sum: each leaves its part, and a second launch adds up the parts in their order.
#include "early.cl"
#include "ptx.cl"
#include "unaligned.cl"

// What a work-item has: RUNS runs for each of its terms, with the sums of so many rows; and how many work-items add up the same rows.
#if A_RUNS_ALONG_K
#define ROWS RUNS
#define RUN_ROWS 1 // of a run
#define TERMS WIDTH // of a run
#define ADDERS SIDE
#define ADDER(item) ((item) % SIDE)
#define OWNER(item) ((item) / SIDE)
#define APART 1 // from one adder to the next
#define NEXT_TERM 1
#else
#define ROWS (RUNS * WIDTH)
#define RUN_ROWS WIDTH
#define TERMS 1
#define ADDERS (ITEMS / SIDE)
#define ADDER(item) ((item) / SIDE)
#define OWNER(item) ((item) % SIDE)
#undef APART // which the runs of the prelude had
#define APART SIDE
#define NEXT_TERM ld_a
#endif
#define GROUP_ROWS (ITEMS / ADDERS * ROWS)
#define STEP (ADDERS * TERMS) // terms from a run of a work-item to its next

// Which row the r-th run begins with at most, and which sum of a work-item is that of its r-th row. Where runs are not whole beyond the
// edge, the last group reads the last ROWS rows, some of which are the group's before: SHIFTED, which spares code for parts of runs.
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
inline wide_t run_at(__global const in_t *p, int present, int aligned)
{
    return !aligned && present >= WIDTH ? load_run_anywhere(p) : to_sums(fetch_run(p, present, aligned));
}

// What a run of A is multiplied by, and what comes of it.
#if DOTS // bytes, of which one instruction multiplies four by four and adds up: a run is words, for compilers take bytes apart
#define DOT PASTE(DOT_, DOT_TYPE)
typedef PASTE(MOVE_, WIDTH) words_t;
#define WORD(run, w) ((uint *)&(run))[w]
inline words_t words_at(__global const in_t *p, int present, int aligned)
{
    words_t run;
    if (aligned && present >= WIDTH)
        run = *(__global const words_t *)p;
    else
        #pragma unroll
        for (int w = 0; w < WIDTH / 4; ++w) {
            uint word = 0;
            #pragma unroll
            for (int e = 0; e < 4; ++e)
                word |= w * 4 + e < present ? (uint)(uchar)p[w * 4 + e] << e * 8 : 0;
            WORD(run, w) = word;
        }
    return run;
}
typedef words_t factor_t;
inline factor_t factor(__global const in_t *B, index_t ld_b, int p, int j, int present)
{
    return words_at(B + INDEX_B(p, j), present, ALIGNED_B);
}
#define SUM acc_t
#define SUM_ZERO ACC_ZERO
inline acc_t plus_product(acc_t sum, words_t a, factor_t b)
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
inline factor_t factor(__global const in_t *B, index_t ld_b, int p, int j, int present)
{
#if B_RUNS_ALONG_K
    return OF_B(rounded_numbers(run_at(B + INDEX_B(p, j), present, ALIGNED_B)));
#elif defined(LOADS_HALVES) // which are converted at once
    in_run_t run;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        RUN_ELEMENT(in_t, run, w) = w < present ? B[INDEX_B(p + w, j)] : (in_t)0;
    return to_sums(run);
#else
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = w < present ? LOAD_B(p + w, j) : ACC_ZERO;
    return rounded_numbers(x);
#endif
}
inline wide_t plus_product(wide_t sum, wide_t a, factor_t b) { return lanes_mul_add(a, b, sum); }
#else
typedef acc_t factor_t;
inline factor_t factor(__global const in_t *B, index_t ld_b, int p, int j, int present) { return rounded_number(LOAD_B(p, j)); }
inline wide_t plus_product(wide_t sum, wide_t a, factor_t b) { return wide_mul_add(b, a, sum); }
#endif
#endif

// The r-th sum of a work-item.
inline acc_t total(const SUM *sum, int r)
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

// Adds up `rows` sums of each of the work-items whose adders they are, a power of two: the first one has what comes of it.
inline void add_up(__local acc_t *sums, int rows, int item, int adder, int adders, int apart)
{
    for (int half_of_them = adders / 2; half_of_them > 0; half_of_them /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE); // the sums of the step before are complete
        if (adder < half_of_them)
            for (int r = 0; r < rows; ++r) {
                const int place = r * ITEMS + item;
                sums[place] = sum_of(sums[place], sums[place + half_of_them * apart]);
            }
    }
}

// A work-item's runs of one step, from term p on; those of A that are on their way stay as they are stored.
#if DOTS
typedef words_t ahead_t;
inline ahead_t read_ahead(__global const in_t *p, int present) { return words_at(p, present, 1); }
inline words_t arrived(ahead_t run) { return run; }
#elif ALIGNED_A
typedef in_run_t ahead_t;
inline ahead_t read_ahead(__global const in_t *p, int present) { return fetch_run(p, present, 1); }
inline wide_t arrived(ahead_t run) { return OF_A(rounded_numbers(to_sums(run))); }
#else
typedef wide_t ahead_t;
inline ahead_t read_ahead(__global const in_t *p, int present) { return run_at(p, present, 0); }
inline wide_t arrived(ahead_t run) { return OF_A(rounded_numbers(run)); }
#endif
inline __attribute__((always_inline)) void read_step(
    ahead_t *ahead, __global const in_t *const *from, index_t ld_a, const int *rows_left, int p, int terms_left)
{
    #pragma unroll
    for (int r = 0; r < RUNS; ++r)
        ahead[r] = read_ahead(from[r] + p * (index_t)NEXT_TERM, A_RUNS_ALONG_K ? terms_left : rows_left[r]);
}
inline __attribute__((always_inline)) void multiply_step(
    SUM (*sum)[RUNS], const ahead_t *ahead, __global const in_t *B, index_t ld_b, int column, int n, int p, int terms_left)
{
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const factor_t b = factor(B, ld_b, p, min(column + v, n - 1), terms_left);
        #pragma unroll
        for (int r = 0; r < RUNS; ++r)
            sum[v][r] = plus_product(sum[v][r], arrived(ahead[r]), b);
    }
}

// A part of the terms, `depth` of them or what is left, for one group of rows and of columns. Where there are more parts than one,
// `results` sums of each stand in part_sums.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void gemv(GEMM_ARGUMENTS, __global acc_t *part_sums, int parts, int depth, index_t results)
{
    __local acc_t sums[ROWS * ITEMS];
    LET_NEXT()
    const int item = (int)get_local_id(0);
    const int part = (int)(get_group_id(0) % parts);
    const size_t number = get_group_id(0) / parts;
    const size_t down = ((size_t)m + GROUP_ROWS - 1) / GROUP_ROWS;
    const size_t across = ((size_t)n + VECTORS - 1) / VECTORS;
    const int row = (int)(number % down) * GROUP_ROWS + OWNER(item) * ROWS;
    const int column = (int)(number / down % across) * VECTORS;
    const index_t batch = number / down / across;
    SELECT_BATCH(batch);

    // Its rows, of which those beyond the edge are the last ones once more; its terms.
    __global const in_t *from[RUNS];
    int rows_left[RUNS];
    #pragma unroll
    for (int r = 0; r < RUNS; ++r) {
        const int i = min(row + r * RUN_ROWS, LAST_RUN(r));
        from[r] = A + INDEX_A(i, 0);
        rows_left[r] = PRESENT(1, m - i);
    }
    const int begin = part * depth;
    const int end = begin + min(k - begin, depth);
    int p = begin + ADDER(item) * TERMS;
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
            barrier(CLK_LOCAL_MEM_FENCE); // the sums of the vector before have been read
        #pragma unroll
        for (int r = 0; r < ROWS; ++r)
            sums[r * ITEMS + item] = total(sum[v], r);
#if ADDERS > 1
        add_up(sums, ROWS, item, ADDER(item), ADDERS, APART);
#endif
        const int j = column + v;
        if (ADDER(item) == 0 && j < n)
            #pragma unroll 16 // all rows of a GPU's work-items; a CPU's may have 128, which take its compiler seconds
            for (int r = 0; r < ROWS; ++r) {
                const int i = row + r;
                const acc_t x = sums[PLACE(r) * ITEMS + item];
                if (i < m && parts > 1)
                    part_sums[part * results + (batch * n + j) * m + i] = x;
                else if (i < m)
                    store(D + INDEX_D(i, j, ld_d), C + INDEX_D(i, j, ld_c), x, alpha, beta);
            }
    }
}

// The sum of the parts of each result, in their order: a group has so many results side by side, and so many work-items for each.
#define SIDE_RESULTS 8
#define PART_ADDERS 16
__kernel __attribute__((reqd_work_group_size(SIDE_RESULTS * PART_ADDERS, 1, 1)))
void add_parts(GEMM_ARGUMENTS, __global const acc_t *part_sums, int parts, int depth, index_t results)
{
    __local acc_t sums[SIDE_RESULTS * PART_ADDERS];
    LET_NEXT()
    AWAIT_BEFORE()
    const int item = (int)get_local_id(0);
    const int adder = item / SIDE_RESULTS;
    const index_t result = (index_t)get_group_id(0) * SIDE_RESULTS + item % SIDE_RESULTS;
    acc_t sum = ACC_ZERO;
    if (result < results)
        #pragma unroll 4
        for (int part = adder; part < parts; part += PART_ADDERS)
            sum = sum_of(sum, part_sums[part * results + result]);
    sums[item] = sum;
    add_up(sums, 1, item, adder, PART_ADDERS, SIDE_RESULTS);
    if (adder == 0 && result < results) {
        const int i = (int)(result % m);
        const int j = (int)(result / m % n);
        SELECT_BATCH(result / m / n);
        store(D + INDEX_D(i, j, ld_d), C + INDEX_D(i, j, ld_c), sums[item], alpha, beta);
    }
}
