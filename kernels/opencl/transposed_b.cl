// transposed_b: as tiled, but op(B) runs along k like a row-major A, and tiles are rectangular: TS × TSDK of either operand.
// A work-item computes WPT rows of one column: a word of B from local memory feeds WPT multiply-adds.
#include "products.cl"

#define RTS (TS / WPT) // work-items along the rows of the tile
#define THREADS (TS * RTS)
#define LOADS ((TS * TSDK + THREADS - 1) / THREADS) // of each, to bring a tile together

__kernel __attribute__((reqd_work_group_size(TS, RTS, 1)))
void transposed_b(GEMM_ARGUMENTS)
{
    // Both tiles are stored alike: the terms of one row of op(A), or of one column of op(B), side by side.
    __local acc_t a_tile[TS][TSDK + PAD]; // [row][term]
    __local acc_t b_tile[TS][TSDK + PAD]; // [column][term]

    const tile_t tile = this_tile(TS, TS, m, n);
    const int x = (int)get_local_id(0);
    const int y = (int)get_local_id(1);
    const int item = y * TS + x;
    const int j = tile.column + x;
    SELECT_BATCH(tile.batch);

    acc_t sum[WPT];
    #pragma unroll
    for (int r = 0; r < WPT; ++r)
        sum[r] = ACC_ZERO;

    int start = 0;
    do {
        // All work-items together bring the tiles; items side by side read along k, and along m where A is stored so.
        #pragma unroll
        for (int l = 0; l < LOADS; ++l) {
            const int e = l * THREADS + item;
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
        barrier(CLK_LOCAL_MEM_FENCE); // the tiles are complete

        for (int p = 0; p < TSDK; ++p) {
            const acc_t b = b_tile[x][p];
            #pragma unroll
            for (int r = 0; r < WPT; ++r)
                sum[r] = mul_add(a_tile[r * RTS + y][p], b, sum[r]);
        }
        barrier(CLK_LOCAL_MEM_FENCE); // nobody reads them any more
    } while ((start += TSDK) < k); // once without terms, too: PoCL runs on twice after a loop that is left out (pocl-skipped-loop)

    #pragma unroll
    for (int r = 0; r < WPT; ++r) {
        const int i = tile.row + r * RTS + y;
        if (INSIDE(i < m && j < n))
            store(D + i * ld_d + j, C + i * ld_c + j, sum[r], alpha, beta);
    }
}
