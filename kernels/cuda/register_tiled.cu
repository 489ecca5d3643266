// register_tiled: as tiled, but a thread keeps a WPTM × WPTN block of sums in registers.
// WPTM + WPTN loads from shared memory feed WPTM · WPTN multiply-adds, so shared memory is no longer what bounds the kernel.
#include "products.cu"

#define RTSM (TSM / WPTM) // threads along the rows of the tile
#define RTSN (TSN / WPTN) // threads along its columns
#define THREADS (RTSM * RTSN)
#define LOADS(elements) (((elements) + THREADS - 1) / THREADS) // of each, to bring a tile together

// Which row of the tile is the w-th of thread y, and likewise which column of thread x.
#if defined(ARRANGE_STRIDED)      // y, y + RTSM, …: neighbours read neighbours
#define ROW_OF(y, w) ((w) * RTSM + (y))
#define COLUMN_OF(x, w) ((w) * RTSN + (x))
#elif defined(ARRANGE_CONTIGUOUS) // WPTM in a row: wide loads become possible
#define ROW_OF(y, w) ((y) * WPTM + (w))
#define COLUMN_OF(x, w) ((x) * WPTN + (w))
#elif defined(ARRANGE_QUADS)      // fours in a row, the fours strided: both
#define ROW_OF(y, w) ((w) / 4 * (4 * RTSM) + (y) * 4 + (w) % 4)
#define COLUMN_OF(x, w) ((w) / 4 * (4 * RTSN) + (x) * 4 + (w) % 4)
#endif

extern "C" __global__ __launch_bounds__(THREADS)
void register_tiled(GEMM_ARGUMENTS)
{
    // Both tiles are stored by term, so that the rows or columns of one term lie side by side.
    __shared__ acc_t a_tile[TSK][TSM + PAD];
    __shared__ acc_t b_tile[TSK][TSN + PAD];

    const tile_t tile = this_tile(TSM, TSN, m, n);
    const int x = (int)threadIdx.x;
    const int y = (int)threadIdx.y;
    const int thread = y * RTSN + x;
    SELECT_BATCH(tile.batch);

    acc_t sum[WPTM][WPTN];
    #pragma unroll
    for (int r = 0; r < WPTM; ++r)
        #pragma unroll
        for (int c = 0; c < WPTN; ++c)
            sum[r][c] = ACC_ZERO;

    int start = 0;
    do {
        // All threads together bring the tiles; threads side by side read along memory, whichever way it is stored.
        #pragma unroll
        for (int l = 0; l < LOADS(TSM * TSK); ++l) {
            const int e = l * THREADS + thread;
            if ((TSM * TSK) % THREADS != 0 && e >= TSM * TSK)
                break;
            const int row = A_RUNS_ALONG_K ? e / TSK : e % TSM;
            const int term = A_RUNS_ALONG_K ? e % TSK : e / TSM;
            a_tile[term][row] = INSIDE(tile.row + row < m && start + term < k)
                ? LOAD_A(tile.row + row, start + term) : ACC_ZERO;
        }
        #pragma unroll
        for (int l = 0; l < LOADS(TSN * TSK); ++l) {
            const int e = l * THREADS + thread;
            if ((TSN * TSK) % THREADS != 0 && e >= TSN * TSK)
                break;
            const int column = B_RUNS_ALONG_K ? e / TSK : e % TSN;
            const int term = B_RUNS_ALONG_K ? e % TSK : e / TSN;
            b_tile[term][column] = INSIDE(start + term < k && tile.column + column < n)
                ? LOAD_B(start + term, tile.column + column) : ACC_ZERO;
        }
        __syncthreads(); // the tiles are complete

        // Per term: a column of A and a row of B into registers, then their outer product.
        for (int p = 0; p < TSK; ++p) {
            acc_t a[WPTM], b[WPTN];
            #pragma unroll
            for (int r = 0; r < WPTM; ++r)
                a[r] = a_tile[p][ROW_OF(y, r)];
            #pragma unroll
            for (int c = 0; c < WPTN; ++c)
                b[c] = b_tile[p][COLUMN_OF(x, c)];
            #pragma unroll
            for (int r = 0; r < WPTM; ++r)
                #pragma unroll
                for (int c = 0; c < WPTN; ++c)
                    sum[r][c] = mul_add(a[r], b[c], sum[r][c]);
        }
        __syncthreads(); // nobody reads them any more
    } while ((start += TSK) < k); // once without terms, too, as in OpenCL

    #pragma unroll
    for (int r = 0; r < WPTM; ++r) {
        const int i = tile.row + ROW_OF(y, r);
        #pragma unroll
        for (int c = 0; c < WPTN; ++c) {
            const int j = tile.column + COLUMN_OF(x, c);
            if (INSIDE(i < m && j < n))
                store(D + i * ld_d + j, C + i * ld_c + j, sum[r][c], alpha, beta);
        }
    }
}
