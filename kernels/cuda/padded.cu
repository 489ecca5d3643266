// padded: as register_tiled, but A and B come in whole tiles, padded with zeros and stored along m and along n beforehand.
// The loop has no edge to check and nothing to choose: each operand has its own loader, and every thread its equal share.
#include "products.cu"

#define RTSM (TSM / WPTM) // threads along the rows of the tile
#define RTSN (TSN / WPTN) // threads along its columns
#define THREADS (RTSM * RTSN)
#define LPTA (TSK * TSM / THREADS) // loads of A per thread
#define LPTB (TSK * TSN / THREADS) // loads of B

extern "C" __global__ __launch_bounds__(THREADS)
void padded(GEMM_ARGUMENTS)
{
    const tile_t tile = this_tile(TSM, TSN, m, n);
    const int x = (int)threadIdx.x;
    const int y = (int)threadIdx.y;
    SELECT_BATCH(tile.batch);

    acc_t sum[WPTM][WPTN];
    #pragma unroll
    for (int r = 0; r < WPTM; ++r)
        #pragma unroll
        for (int c = 0; c < WPTN; ++c)
            sum[r][c] = ACC_ZERO;

#if TERMS // else A and B are not there
    __shared__ acc_t a_tile[TSK][TSM]; // [term][row]
    __shared__ acc_t b_tile[TSK][TSN]; // [term][column]
    const int thread = y * RTSN + x;
    int start = 0;
    do {
        // Threads side by side bring what lies side by side, in memory as in the tile.
        #pragma unroll
        for (int l = 0; l < LPTA; ++l) {
            const int e = l * THREADS + thread;
            a_tile[e / TSM][e % TSM] = LOAD_A(tile.row + e % TSM, start + e / TSM);
        }
        #pragma unroll
        for (int l = 0; l < LPTB; ++l) {
            const int e = l * THREADS + thread;
            b_tile[e / TSN][e % TSN] = LOAD_B(start + e / TSN, tile.column + e % TSN);
        }
        __syncthreads(); // the tiles are complete

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
        __syncthreads(); // nobody reads them any more
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
