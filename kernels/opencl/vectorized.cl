// vectorized: as tiled, but a work-item moves WIDTH neighbours at once and computes WIDTH neighbouring columns of D.
// A quarter (with WIDTH 4) of the loads brings the tiles, and one number of A feeds WIDTH multiply-adds.
#include "runs.cl"

__kernel __attribute__((reqd_work_group_size(TS / WIDTH, TS, 1)))
void vectorized(GEMM_ARGUMENTS)
{
    __local wide_t a_tile[TS][TS / WIDTH]; // [row][terms]
    __local wide_t b_tile[TS][TS / WIDTH]; // [term][columns]

    const tile_t tile = this_tile(TS, TS, m, n);
    const int x = (int)get_local_id(0);
    const int y = (int)get_local_id(1);
    const int i = tile.row + y;
    const int j = tile.column + x * WIDTH;
    SELECT_BATCH(tile.batch);

    wide_t sum = WIDE_ZERO;
    int start = 0;
    do {
        // Each work-item brings one run of each tile, along memory: x counts runs, y the lines that they lie on.
        const int a_row = A_RUNS_ALONG_K ? y : x * WIDTH, a_term = A_RUNS_ALONG_K ? x * WIDTH : y;
        const int b_term = B_RUNS_ALONG_K ? x * WIDTH : y, b_column = B_RUNS_ALONG_K ? y : x * WIDTH;
        wide_t a = LOAD_RUN_A(tile.row + a_row, start + a_term);
        wide_t b = LOAD_RUN_B(start + b_term, tile.column + b_column);
        // A run along the lines of its tile is stored as it is, one across them element by element.
        if (A_RUNS_ALONG_K)
            STORE_LOCAL(a_tile[a_row][x], a);
        else
            #pragma unroll
            for (int w = 0; w < WIDTH; ++w)
                LOCAL_ELEMENT(a_tile[a_row + w][a_term / WIDTH], a_term % WIDTH) = ELEMENT(a, w);
        if (!B_RUNS_ALONG_K)
            STORE_LOCAL(b_tile[b_term][x], b);
        else
            #pragma unroll
            for (int w = 0; w < WIDTH; ++w)
                LOCAL_ELEMENT(b_tile[b_term + w][b_column / WIDTH], b_column % WIDTH) = ELEMENT(b, w);
        barrier(CLK_LOCAL_MEM_FENCE); // the tiles are complete

        #pragma unroll
        for (int p = 0; p < TS; ++p)
            sum = wide_mul_add(LOCAL_ELEMENT(a_tile[y][p / WIDTH], p % WIDTH), b_tile[p][x], sum);
        barrier(CLK_LOCAL_MEM_FENCE); // nobody reads them any more
    } while ((start += TS) < k); // once without terms, too: PoCL runs on twice after a loop that is left out (pocl-skipped-loop)

    store_run(D + i * ld_d + j, C + i * ld_c + j, sum, alpha, beta, PRESENT(i < m, n - j));
}
