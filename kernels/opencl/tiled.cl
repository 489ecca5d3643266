// tiled: a group stages square tiles of A and B in local memory and computes one tile of D from them.
// Each element is read from global memory once per tile instead of once per work-item.
#include "products.cl"

__kernel __attribute__((reqd_work_group_size(TS, TS, 1)))
void tiled(GEMM_ARGUMENTS)
{
    __local acc_t a_tile[TS][TS + PAD]; // [row][term]
    __local acc_t b_tile[TS][TS + PAD]; // [term][column]

    const tile_t tile = this_tile(TS, TS, m, n);
    const int x = (int)get_local_id(0);
    const int y = (int)get_local_id(1);
    const int i = tile.row + y;
    const int j = tile.column + x;
    SELECT_BATCH(tile.batch);

    acc_t sum = ACC_ZERO;
    int start = 0;
    do {
        // Each work-item brings one element of each tile; x runs along memory, whichever way the operand is stored.
        const int a_row = A_RUNS_ALONG_K ? y : x, a_term = A_RUNS_ALONG_K ? x : y;
        const int b_term = B_RUNS_ALONG_K ? x : y, b_column = B_RUNS_ALONG_K ? y : x;
        a_tile[a_row][a_term] = INSIDE(tile.row + a_row < m && start + a_term < k)
            ? LOAD_A(tile.row + a_row, start + a_term) : ACC_ZERO;
        b_tile[b_term][b_column] = INSIDE(start + b_term < k && tile.column + b_column < n)
            ? LOAD_B(start + b_term, tile.column + b_column) : ACC_ZERO;
        barrier(CLK_LOCAL_MEM_FENCE); // the tiles are complete

        #pragma unroll
        for (int p = 0; p < TS; ++p)
            sum = mul_add(a_tile[y][p], b_tile[p][x], sum);
        barrier(CLK_LOCAL_MEM_FENCE); // nobody reads them any more
    } while ((start += TS) < k); // once without terms, too: PoCL runs on twice after a loop that is left out (pocl-skipped-loop)

    if (INSIDE(i < m && j < n))
        store(D + i * ld_d + j, C + i * ld_c + j, sum, alpha, beta);
}
