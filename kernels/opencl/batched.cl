// batched: small products, several of them at once. A group brings the matrices of PRODUCTS products, or a tile of each, to local
// memory as they lie, and a work-item computes WPTM x WPTN sums of one product. Where matrices are whole and dense, those of neighbours
// follow each other in memory without a gap, and are read and written as one row of runs.
#include "runs.cl"

#define BLOCKS_M ((TSM + WPTM - 1) / WPTM)
#define BLOCKS_N ((TSN + WPTN - 1) / WPTN)
#define PRODUCT_THREADS (BLOCKS_M * BLOCKS_N)
#define THREADS (PRODUCTS * PRODUCT_THREADS)
#define RUNS_M ((TSM + WIDTH - 1) / WIDTH)
#define RUNS_N ((TSN + WIDTH - 1) / WIDTH)
#define RUNS_K ((TSK + WIDTH - 1) / WIDTH)

// A tile of an operand has LINES of LENGTH neighbours in memory, PITCH numbers apart: an odd number of runs along k, so that the same
// term of neighbouring lines is in different banks; for the same reason, of neighbouring products, a tile is an odd number of runs.
// A work-item reads WIDTH terms at once: along k a run of each of its lines, across k a run of its lines for each term. PLACES are
// the first of what it reads.
#if TRANSPOSE_A
#define LINES_A TSK
#define LENGTH_A TSM
#define PITCH_A (RUNS_M * WIDTH)
#define PLACES_A (WPTM / WIDTH)
#define PLACE_A(block, i) (min((block) + (i) * BLOCKS_M, RUNS_M - 1) * WIDTH)
#define ROW_OF(block, r) (((block) + (r) / WIDTH * BLOCKS_M) * WIDTH + (r) % WIDTH)
#define READ_A(i, p, w) (a_from[(i) % PLACES_A] + ((p) + (w)) * PITCH_A)
#define NUMBER_A(r, w) ELEMENT(a[(w) * PLACES_A + (r) / WIDTH], (r) % WIDTH)
#else
#define LINES_A TSM
#define LENGTH_A TSK
#define PITCH_A ((RUNS_K / 2 * 2 + 1) * WIDTH)
#define PLACES_A WPTM
#define PLACE_A(block, i) (min((block) + (i) * BLOCKS_M, TSM - 1) * PITCH_A)
#define ROW_OF(block, r) ((block) + (r) * BLOCKS_M)
#define READ_A(i, p, w) (a_from[i] + (p))
#define NUMBER_A(r, w) ELEMENT(a[r], w)
#endif
#if TRANSPOSE_B
#define LINES_B TSN
#define LENGTH_B TSK
#define PITCH_B ((RUNS_K / 2 * 2 + 1) * WIDTH)
#define PLACES_B WPTN
#define PLACE_B(block, i) (min((block) + (i) * BLOCKS_N, TSN - 1) * PITCH_B)
#define COLUMN_OF(block, c) ((block) + (c) * BLOCKS_N)
#define READ_B(i, p, w) (b_from[i] + (p))
#define NUMBER_B(c, w) ELEMENT(b[c], w)
#else
#define LINES_B TSK
#define LENGTH_B TSN
#define PITCH_B (RUNS_N * WIDTH)
#define PLACES_B (WPTN / WIDTH)
#define PLACE_B(block, i) (min((block) + (i) * BLOCKS_N, RUNS_N - 1) * WIDTH)
#define COLUMN_OF(block, c) (((block) + (c) / WIDTH * BLOCKS_N) * WIDTH + (c) % WIDTH)
#define READ_B(i, p, w) (b_from[(i) % PLACES_B] + ((p) + (w)) * PITCH_B)
#define NUMBER_B(c, w) ELEMENT(b[(w) * PLACES_B + (c) / WIDTH], (c) % WIDTH)
#endif
#define SIZE_A ((LINES_A * PITCH_A / WIDTH / 2 * 2 + 1) * WIDTH)
#define SIZE_B ((LINES_B * PITCH_B / WIDTH / 2 * 2 + 1) * WIDTH)
#define TILES (PRODUCTS * (SIZE_A + SIZE_B))
#define RESULTS (PRODUCTS * TSM * TSN)
#define EXTENT MOST(TILES, (RESULTS + WIDTH - 1) / WIDTH * WIDTH) // numbers of local memory
#define IN_TILES(e) ((e) / length * pitch + (e) / (lines * length) * (size - lines * pitch) + (e) % length) // of the e-th element

// Brings a tile of each product, `run` elements at once, with zeros for what is not there; `flat` where tiles follow each other in
// memory without a gap. All but what is left is known to the compiler, so that divisions are by constants.
inline __attribute__((always_inline)) void bring(
    __local acc_t *tile, int size, int pitch, __global const in_t *from, index_t ld, index_t stride, int lines, int length, int flat,
    int run, int products_left, int lines_left, int length_left, int item)
{
    const int elements = PRODUCTS * lines * length;
    #pragma unroll 4
    for (int e = item * run; e < elements; e += THREADS * run) {
        const int product = e / (lines * length);
        const int line = e / length % lines;
        const int place = e % length;
        const int inside = product < products_left && INSIDE(line < lines_left);
        const int present = flat ? products_left * lines * length - e : inside ? length_left - place : 0;
        __global const in_t *p = from + (flat ? e : product * stride + line * ld + place);
        if (run == 1)
            tile[IN_TILES(e)] = present > 0 ? load(p) : ACC_ZERO;
        else {
            const wide_t x = to_sums(fetch_run(p, present, 1));
            if (length % WIDTH == 0)
                STORE_LOCAL(*(__local wide_t *)(tile + IN_TILES(e)), x);
            else // only where tiles are flat: a run may go on in the next line
                #pragma unroll
                for (int w = 0; w < WIDTH; ++w)
                    if (elements % WIDTH == 0 || e + w < elements)
                        tile[IN_TILES(e + w)] = ELEMENT(x, w);
        }
    }
}

// Adds the products of `terms` terms, WIDTH or what is left of a tile, to a work-item's sums.
inline __attribute__((always_inline)) void multiply(
    acc_t (*sum)[WPTN], __local const acc_t *const *a_from, __local const acc_t *const *b_from, int p, int terms)
{
    wide_t a[WPTM], b[WPTN];
    #pragma unroll
    for (int i = 0; i < WPTM; ++i)
        if (A_RUNS_ALONG_K || i / PLACES_A < terms)
            a[i] = OF_A(*(__local const wide_t *)READ_A(i, p, i / PLACES_A));
    #pragma unroll
    for (int i = 0; i < WPTN; ++i)
        if (B_RUNS_ALONG_K || i / PLACES_B < terms)
            b[i] = OF_B(*(__local const wide_t *)READ_B(i, p, i / PLACES_B));
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        if (w < terms)
            #pragma unroll
            for (int r = 0; r < WPTM; ++r)
                #pragma unroll
                for (int c = 0; c < WPTN; ++c)
                    sum[r][c] = mul_add(NUMBER_A(r, w), NUMBER_B(c, w), sum[r][c]);
}

__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void batched(GEMM_ARGUMENTS, int batch)
{
    __local acc_t numbers[EXTENT] __attribute__((aligned(16)));
    __local acc_t *const a_tile = numbers;
    __local acc_t *const b_tile = numbers + PRODUCTS * SIZE_A;
    const int item = (int)get_local_id(0);
    const int product = item / PRODUCT_THREADS;
    const int row_block = item % PRODUCT_THREADS / BLOCKS_N;
    const int column_block = item % PRODUCT_THREADS % BLOCKS_N;
    const tile_t tile = this_tile(TSM, TSN, m, n);
    const int first = tile.batch * PRODUCTS;
    const int products_left = min(batch - first, PRODUCTS);
    const int rows_left = m - tile.row;
    const int columns_left = n - tile.column;
    SELECT_BATCH(first);
    A += INDEX_A(tile.row, 0);
    B += INDEX_B(0, tile.column);
    C += tile.row * ld_c + tile.column;
    D += tile.row * ld_d + tile.column;

    __local const acc_t *a_from[PLACES_A], *b_from[PLACES_B];
    #pragma unroll
    for (int i = 0; i < PLACES_A; ++i)
        a_from[i] = a_tile + product * SIZE_A + PLACE_A(row_block, i);
    #pragma unroll
    for (int i = 0; i < PLACES_B; ++i)
        b_from[i] = b_tile + product * SIZE_B + PLACE_B(column_block, i);
    acc_t sum[WPTM][WPTN];
    #pragma unroll
    for (int r = 0; r < WPTM; ++r)
        #pragma unroll
        for (int c = 0; c < WPTN; ++c)
            sum[r][c] = ACC_ZERO;

    int start = 0;
    do {
        const int terms_left = k - start;
        bring(
            a_tile, SIZE_A, PITCH_A, A, ld_a, stride_a, LINES_A, LENGTH_A, FLAT_A, RUN_A, products_left,
            A_RUNS_ALONG_K ? rows_left : terms_left, A_RUNS_ALONG_K ? terms_left : rows_left, item);
        bring(
            b_tile, SIZE_B, PITCH_B, B, ld_b, stride_b, LINES_B, LENGTH_B, FLAT_B, RUN_B, products_left,
            B_RUNS_ALONG_K ? columns_left : terms_left, B_RUNS_ALONG_K ? terms_left : columns_left, item);
        A += TSK * (A_RUNS_ALONG_K ? 1 : ld_a);
        B += TSK * (B_RUNS_ALONG_K ? 1 : ld_b);
        barrier(CLK_LOCAL_MEM_FENCE); // the tiles are there
#ifdef POCL_DEVICE_ADDRESS_BITS // 5.0 and 6.0 cannot compile five rounds behind a barrier, four of them at once (pocl-left-rounds)
        #pragma unroll 1
#else
        #pragma unroll 4
#endif
        for (int p = 0; p < TSK / WIDTH * WIDTH; p += WIDTH)
            multiply(sum, a_from, b_from, p, WIDTH);
#if TSK % WIDTH
        multiply(sum, a_from, b_from, TSK / WIDTH * WIDTH, TSK % WIDTH);
#endif
        barrier(CLK_LOCAL_MEM_FENCE); // they have been read
    } while ((start += TSK) < k);

    // The sums, where the tiles were, in the order in which the results lie.
    #pragma unroll
    for (int r = 0; r < WPTM; ++r)
        #pragma unroll
        for (int c = 0; c < WPTN; ++c) {
            const int i = ROW_OF(row_block, r);
            const int j = COLUMN_OF(column_block, c);
            if (i < TSM && j < TSN)
                numbers[(product * TSM + i) * TSN + j] = sum[r][c];
        }
    barrier(CLK_LOCAL_MEM_FENCE); // they are there
    #pragma unroll 4
    for (int e = item * RUN_D; e < RESULTS; e += THREADS * RUN_D) {
#if FLAT_D && RUN_D > 1
        store_run(D + e, C + e, *(__local const wide_t *)(numbers + e), alpha, beta, products_left * TSM * TSN - e);
#else
        const int other = e / (TSM * TSN); // product
        const int i = e / TSN % TSM;
        const int j = e % TSN;
        if (other < products_left && INSIDE(i < rows_left && j < columns_left))
            store(
                D + other * stride_d + i * ld_d + j, C + other * stride_c + i * ld_c + j, numbers[e], alpha, beta);
#endif
    }
}
