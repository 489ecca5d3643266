// tiled: a block stages square tiles of A and B in shared memory and computes one tile of D from them.
// Each element is read from global memory once per tile instead of once per thread.
#include "products.cu"

extern "C" __global__ __launch_bounds__(TS * TS)
void tiled(GEMM_ARGUMENTS)
{
    __shared__ acc_t a_tile[TS][TS + PAD]; // [row][term]
    __shared__ acc_t b_tile[TS][TS + PAD]; // [term][column]

    const tile_t tile = this_tile(TS, TS, m, n);
    const int x = (int)threadIdx.x;
    const int y = (int)threadIdx.y;
    const int i = tile.row + y;
    const int j = tile.column + x;
    SELECT_BATCH(tile.batch);

    acc_t sum = ACC_ZERO;
    int start = 0;
    do {
        // Each thread brings one element of each tile; x runs along memory, whichever way the operand is stored.
        const int a_row = A_RUNS_ALONG_K ? y : x, a_term = A_RUNS_ALONG_K ? x : y;
        const int b_term = B_RUNS_ALONG_K ? x : y, b_column = B_RUNS_ALONG_K ? y : x;
        a_tile[a_row][a_term] = INSIDE(tile.row + a_row < m && start + a_term < k)
            ? LOAD_A(tile.row + a_row, start + a_term) : ACC_ZERO;
        b_tile[b_term][b_column] = INSIDE(start + b_term < k && tile.column + b_column < n)
            ? LOAD_B(start + b_term, tile.column + b_column) : ACC_ZERO;
        __syncthreads(); // the tiles are complete

        #pragma unroll
        for (int p = 0; p < TS; ++p)
            sum = mul_add(a_tile[y][p], b_tile[p][x], sum);
        __syncthreads(); // nobody reads them any more
    } while ((start += TS) < k); // once without terms, too, as in OpenCL

    if (INSIDE(i < m && j < n))
        store(D + i * ld_d + j, C + i * ld_c + j, sum, alpha, beta);
}
