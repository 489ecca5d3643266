// wpt: as tiled, but a thread computes WPT rows of D, TS / WPT apart.
// A number of B is read from shared memory once and feeds WPT multiply-adds; one of A is read by a whole row of threads at once.
#include "products.cu"

#define RTS (TS / WPT) // threads along the rows of the tile

extern "C" __global__ __launch_bounds__(TS * RTS)
void wpt(GEMM_ARGUMENTS)
{
    __shared__ acc_t a_tile[TS][TS + PAD]; // [row][term]
    __shared__ acc_t b_tile[TS][TS + PAD]; // [term][column]

    const tile_t tile = this_tile(TS, TS, m, n);
    const int x = (int)threadIdx.x;
    const int y = (int)threadIdx.y;
    const int j = tile.column + x;
    SELECT_BATCH(tile.batch);

    acc_t sum[WPT];
    #pragma unroll
    for (int w = 0; w < WPT; ++w)
        sum[w] = ACC_ZERO;

    int start = 0;
    do {
        // Each thread brings WPT elements of each tile; x runs along memory, whichever way the operand is stored.
        #pragma unroll
        for (int w = 0; w < WPT; ++w) {
            const int line = w * RTS + y;
            const int a_row = A_RUNS_ALONG_K ? line : x, a_term = A_RUNS_ALONG_K ? x : line;
            const int b_term = B_RUNS_ALONG_K ? x : line, b_column = B_RUNS_ALONG_K ? line : x;
            a_tile[a_row][a_term] = INSIDE(tile.row + a_row < m && start + a_term < k)
                ? LOAD_A(tile.row + a_row, start + a_term) : ACC_ZERO;
            b_tile[b_term][b_column] = INSIDE(start + b_term < k && tile.column + b_column < n)
                ? LOAD_B(start + b_term, tile.column + b_column) : ACC_ZERO;
        }
        __syncthreads(); // the tiles are complete

        for (int p = 0; p < TS; ++p) {
            const acc_t b = b_tile[p][x];
            #pragma unroll
            for (int w = 0; w < WPT; ++w)
                sum[w] = mul_add(a_tile[w * RTS + y][p], b, sum[w]);
        }
        __syncthreads(); // nobody reads them any more
    } while ((start += TS) < k); // once without terms, too, as in OpenCL

    #pragma unroll
    for (int w = 0; w < WPT; ++w) {
        const int i = tile.row + w * RTS + y;
        if (INSIDE(i < m && j < n))
            store(D + i * ld_d + j, C + i * ld_c + j, sum[w], alpha, beta);
    }
}
