// transposed_b: as tiled, but op(B) runs along k like a row-major A, and tiles are rectangular: TS × TSDK of either operand.
// A thread computes WPT rows of one column: a word of B from shared memory feeds WPT multiply-adds.
#include "products.cu"

#define RTS (TS / WPT) // threads along the rows of the tile
#define THREADS (TS * RTS)
#define LOADS ((TS * TSDK + THREADS - 1) / THREADS) // of each, to bring a tile together

extern "C" __global__ __launch_bounds__(THREADS)
void transposed_b(GEMM_ARGUMENTS)
{
    // Both tiles are stored alike: the terms of one row of op(A), or of one column of op(B), side by side.
    __shared__ acc_t a_tile[TS][TSDK + PAD]; // [row][term]
    __shared__ acc_t b_tile[TS][TSDK + PAD]; // [column][term]

    const tile_t tile = this_tile(TS, TS, m, n);
    const int x = (int)threadIdx.x;
    const int y = (int)threadIdx.y;
    const int thread = y * TS + x;
    const int j = tile.column + x;
    SELECT_BATCH(tile.batch);

    acc_t sum[WPT];
    #pragma unroll
    for (int r = 0; r < WPT; ++r)
        sum[r] = ACC_ZERO;

    int start = 0;
    do {
        // All threads together bring the tiles; items side by side read along k, and along m where A is stored so.
        #pragma unroll
        for (int l = 0; l < LOADS; ++l) {
            const int e = l * THREADS + thread;
            if ((TS * TSDK) % THREADS != 0 && e >= TS * TSDK)
                break;
            const int row = A_RUNS_ALONG_K ? e / TSDK : e % TS;
            const int a_term = A_RUNS_ALONG_K ? e % TSDK : e / TS;
            a_tile[row][a_term] = INSIDE(tile.row + row < m && start + a_term < k)
                ? LOAD_A(tile.row + row, start + a_term) : ACC_ZERO;
            const int column = e / TSDK;
            const int b_term = e % TSDK;
            b_tile[column][b_term] = INSIDE(start + b_term < k && tile.column + column < n)
                ? LOAD_B(start + b_term, tile.column + column) : ACC_ZERO;
        }
        __syncthreads(); // the tiles are complete

        for (int p = 0; p < TSDK; ++p) {
            const acc_t b = b_tile[x][p];
            #pragma unroll
            for (int r = 0; r < WPT; ++r)
                sum[r] = mul_add(a_tile[r * RTS + y][p], b, sum[r]);
        }
        __syncthreads(); // nobody reads them any more
    } while ((start += TSDK) < k); // once without terms, too, as in OpenCL

    #pragma unroll
    for (int r = 0; r < WPT; ++r) {
        const int i = tile.row + r * RTS + y;
        if (INSIDE(i < m && j < n))
            store(D + i * ld_d + j, C + i * ld_c + j, sum[r], alpha, beta);
    }
}
