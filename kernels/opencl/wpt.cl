// wpt: as tiled, but a work-item computes WPT rows of D, TS / WPT apart.
// A number of B is read from local memory once and feeds WPT multiply-adds; one of A is read by a whole row of work-items at once.
#include "products.cl"

#define RTS (TS / WPT) // work-items along the rows of the tile

__kernel __attribute__((reqd_work_group_size(TS, RTS, 1)))
void wpt(GEMM_ARGUMENTS)
{
    __local acc_t a_tile[TS][TS + PAD]; // [row][term]
    __local acc_t b_tile[TS][TS + PAD]; // [term][column]

    const tile_t tile = this_tile(TS, TS, m, n);
    const int x = (int)get_local_id(0);
    const int y = (int)get_local_id(1);
    const int j = tile.column + x;
    SELECT_BATCH(tile.batch);

    acc_t sum[WPT];
    #pragma unroll
    for (int w = 0; w < WPT; ++w)
        sum[w] = ACC_ZERO;

    int start = 0;
    do {
        // Each work-item brings WPT elements of each tile; x runs along memory, whichever way the operand is stored.
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
        barrier(CLK_LOCAL_MEM_FENCE); // the tiles are complete

        for (int p = 0; p < TS; ++p) {
            const acc_t b = b_tile[p][x];
            #pragma unroll
            for (int w = 0; w < WPT; ++w)
                sum[w] = mul_add(a_tile[w * RTS + y][p], b, sum[w]);
        }
        barrier(CLK_LOCAL_MEM_FENCE); // nobody reads them any more
    } while ((start += TS) < k); // once without terms, too: PoCL runs on twice after a loop that is left out (pocl-skipped-loop)

    #pragma unroll
    for (int w = 0; w < WPT; ++w) {
        const int i = tile.row + w * RTS + y;
        if (INSIDE(i < m && j < n))
            store(D + i * ld_d + j, C + i * ld_c + j, sum[w], alpha, beta);
    }
}
