// padded: as register_tiled, but A and B come in whole tiles, padded with zeros and stored along m and along n beforehand.
// The loop has no edge to check and nothing to choose: each operand has its own loader, and every work-item its equal share.
#include "products.cl"

#define RTSM (TSM / WPTM) // work-items along the rows of the tile
#define RTSN (TSN / WPTN) // work-items along its columns
#define THREADS (RTSM * RTSN)
#define LPTA (TSK * TSM / THREADS) // loads of A per work-item
#define LPTB (TSK * TSN / THREADS) // loads of B

__kernel __attribute__((reqd_work_group_size(RTSN, RTSM, 1)))
void padded(GEMM_ARGUMENTS)
{
    const tile_t tile = this_tile(TSM, TSN, m, n);
    const int x = (int)get_local_id(0);
    const int y = (int)get_local_id(1);
    SELECT_BATCH(tile.batch);

    acc_t sum[WPTM][WPTN];
    #pragma unroll
    for (int r = 0; r < WPTM; ++r)
        #pragma unroll
        for (int c = 0; c < WPTN; ++c)
            sum[r][c] = ACC_ZERO;

#if TERMS // else A and B are not there
    __local acc_t a_tile[TSK][TSM]; // [term][row]
    __local acc_t b_tile[TSK][TSN]; // [term][column]
    const int item = y * RTSN + x;
    int start = 0;
    do {
        // Work-items side by side bring what lies side by side, in memory as in the tile.
        #pragma unroll
        for (int l = 0; l < LPTA; ++l) {
            const int e = l * THREADS + item;
            a_tile[e / TSM][e % TSM] = LOAD_A(tile.row + e % TSM, start + e / TSM);
        }
        #pragma unroll
        for (int l = 0; l < LPTB; ++l) {
            const int e = l * THREADS + item;
            b_tile[e / TSN][e % TSN] = LOAD_B(start + e / TSN, tile.column + e % TSN);
        }
        barrier(CLK_LOCAL_MEM_FENCE); // the tiles are complete

        // Per term: a column of A and a row of B into registers, then their outer product.
        for (int p = 0; p < TSK; ++p) {
            acc_t a[WPTM], b[WPTN];
            #pragma unroll
            for (int r = 0; r < WPTM; ++r)
                a[r] = a_tile[p][r * RTSM + y];
            #pragma unroll
            for (int c = 0; c < WPTN; ++c)
                b[c] = b_tile[p][c * RTSN + x];
            #pragma unroll
            for (int r = 0; r < WPTM; ++r)
                #pragma unroll
                for (int c = 0; c < WPTN; ++c)
                    sum[r][c] = mul_add(a[r], b[c], sum[r][c]);
        }
        barrier(CLK_LOCAL_MEM_FENCE); // nobody reads them any more
    } while ((start += TSK) < k);
#endif

    // D is as large as it is: its edges are the only ones.
    #pragma unroll
    for (int r = 0; r < WPTM; ++r) {
        const int i = tile.row + r * RTSM + y;
        #pragma unroll
        for (int c = 0; c < WPTN; ++c) {
            const int j = tile.column + c * RTSN + x;
            if (INSIDE(i < m && j < n))
                store(D + i * ld_d + j, C + i * ld_c + j, sum[r][c], alpha, beta);
        }
    }
}
