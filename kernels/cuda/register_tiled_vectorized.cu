// register_tiled_vectorized: as register_tiled, but everything moves in runs of WIDTH neighbours.
// (WPTM + WPTN) / WIDTH loads from shared memory feed WPTM · WPTN multiply-adds.
#include "runs.cu"

#define RTSM (TSM / WPTM) // threads along the rows of the tile
#define RTSN (TSN / WPTN) // threads along its columns
#define THREADS (RTSM * RTSN)
#define LOADS(runs) (((runs) + THREADS - 1) / THREADS) // of each, to bring a tile together

// Runs in a row of a tile: of rows of A, of columns of B, and of terms where an operand runs along k.
#define ROW_RUNS (TSM / WIDTH)
#define COLUMN_RUNS (TSN / WIDTH)
#define TERM_RUNS (TSK / WIDTH)

// Which run of rows is the r-th of thread y, and which of columns the c-th of x: strided, so that neighbours read neighbours.
#define ROW_RUN_OF(y, r) ((r) * RTSM + (y))
#define COLUMN_RUN_OF(x, c) ((c) * RTSN + (x))

extern "C" __global__ __launch_bounds__(THREADS)
void register_tiled_vectorized(GEMM_ARGUMENTS)
{
    // Both tiles are stored by term, so that the rows or columns of one term lie side by side.
    __shared__ wide_t a_tile[TSK][(TSM + PAD) / WIDTH];
    __shared__ wide_t b_tile[TSK][(TSN + PAD) / WIDTH];

    const tile_t tile = this_tile(TSM, TSN, m, n);
    const int x = (int)threadIdx.x;
    const int y = (int)threadIdx.y;
    const int thread = y * RTSN + x;
    SELECT_BATCH(tile.batch);

    wide_t sum[WPTM][WPTN / WIDTH];
    #pragma unroll
    for (int r = 0; r < WPTM; ++r)
        #pragma unroll
        for (int c = 0; c < WPTN / WIDTH; ++c)
            sum[r][c] = WIDE_ZERO;

    int start = 0;
    do {
        // All threads together bring the tiles run by run; threads side by side read along memory, whichever way it is stored.
        // A run along k is spread over as many terms.
        #pragma unroll
        for (int l = 0; l < LOADS(ROW_RUNS * TSK); ++l) {
            const int e = l * THREADS + thread;
            if ((ROW_RUNS * TSK) % THREADS != 0 && e >= ROW_RUNS * TSK)
                break;
            const int row = A_RUNS_ALONG_K ? e / TERM_RUNS : e % ROW_RUNS * WIDTH;
            const int term = A_RUNS_ALONG_K ? e % TERM_RUNS * WIDTH : e / ROW_RUNS;
            wide_t a = LOAD_RUN_A(tile.row + row, start + term);
            if (A_RUNS_ALONG_K)
                #pragma unroll
                for (int w = 0; w < WIDTH; ++w)
                    LOCAL_ELEMENT(a_tile[term + w][row / WIDTH], row % WIDTH) = ELEMENT(a, w);
            else
                STORE_LOCAL(a_tile[term][row / WIDTH], a);
        }
        #pragma unroll
        for (int l = 0; l < LOADS(COLUMN_RUNS * TSK); ++l) {
            const int e = l * THREADS + thread;
            if ((COLUMN_RUNS * TSK) % THREADS != 0 && e >= COLUMN_RUNS * TSK)
                break;
            const int column = B_RUNS_ALONG_K ? e / TERM_RUNS : e % COLUMN_RUNS * WIDTH;
            const int term = B_RUNS_ALONG_K ? e % TERM_RUNS * WIDTH : e / COLUMN_RUNS;
            wide_t b = LOAD_RUN_B(start + term, tile.column + column);
            if (B_RUNS_ALONG_K)
                #pragma unroll
                for (int w = 0; w < WIDTH; ++w)
                    LOCAL_ELEMENT(b_tile[term + w][column / WIDTH], column % WIDTH) = ELEMENT(b, w);
            else
                STORE_LOCAL(b_tile[term][column / WIDTH], b);
        }
        __syncthreads(); // the tiles are complete

        // Per term: a column of A and a row of B into registers, then their outer product, a number of A times a run of B.
        for (int p = 0; p < TSK; ++p) {
            wide_t a[WPTM / WIDTH], b[WPTN / WIDTH];
            #pragma unroll
            for (int r = 0; r < WPTM / WIDTH; ++r)
                a[r] = a_tile[p][ROW_RUN_OF(y, r)];
            #pragma unroll
            for (int c = 0; c < WPTN / WIDTH; ++c)
                b[c] = b_tile[p][COLUMN_RUN_OF(x, c)];
            #pragma unroll
            for (int r = 0; r < WPTM; ++r)
                #pragma unroll
                for (int c = 0; c < WPTN / WIDTH; ++c)
                    sum[r][c] = wide_mul_add(ELEMENT(a[r / WIDTH], r % WIDTH), b[c], sum[r][c]);
        }
        __syncthreads(); // nobody reads them any more
    } while ((start += TSK) < k); // once without terms, too, as in OpenCL

    #pragma unroll
    for (int r = 0; r < WPTM; ++r) {
        const int i = tile.row + ROW_RUN_OF(y, r / WIDTH) * WIDTH + r % WIDTH;
        #pragma unroll
        for (int c = 0; c < WPTN / WIDTH; ++c) {
            const int j = tile.column + COLUMN_RUN_OF(x, c) * WIDTH;
            store_run(D + i * ld_d + j, C + i * ld_c + j, sum[r][c], alpha, beta, PRESENT(i < m, n - j));
        }
    }
}
