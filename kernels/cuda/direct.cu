// direct: no shared memory. Each thread reads runs of A and B from global memory into its registers, RK terms at a time, and
// computes RY × RX elements of D from them; what its neighbours have read, the caches give it.
#include "runs.cu"

// Which row of the tile is the r-th of thread y, and which column the c-th of x, in runs: strided, so that neighbours read
// neighbours.
#define ROW_OF(y, r) (((r) / WIDTH * THREADSY + (y)) * WIDTH + (r) % WIDTH)
#define COLUMN_OF(x, c) (((c) / WIDTH * THREADSX + (x)) * WIDTH + (c) % WIDTH)

extern "C" __global__ __launch_bounds__(THREADSX * THREADSY)
void direct(GEMM_ARGUMENTS)
{
    const tile_t tile = this_tile(THREADSY * RY, THREADSX * RX, m, n);
    const int x = (int)threadIdx.x;
    const int y = (int)threadIdx.y;
    SELECT_BATCH(tile.batch);

    wide_t sum[RY][RX / WIDTH];
    #pragma unroll
    for (int r = 0; r < RY; ++r)
        #pragma unroll
        for (int c = 0; c < RX / WIDTH; ++c)
            sum[r][c] = WIDE_ZERO;

    for (int start = 0; start < k; start += RK) {
        // Runs lie along memory. Those along k are turned, so that the rows, or columns, of one term become runs.
        wide_t a[RK][RY / WIDTH], b[RK][RX / WIDTH];
        if (A_RUNS_ALONG_K) {
            #pragma unroll
            for (int r = 0; r < RY; ++r)
                #pragma unroll
                for (int p = 0; p < RK; p += WIDTH) {
                    wide_t run = LOAD_RUN_A(tile.row + ROW_OF(y, r), start + p);
                    #pragma unroll
                    for (int w = 0; w < WIDTH; ++w)
                        ELEMENT(a[p + w][r / WIDTH], r % WIDTH) = ELEMENT(run, w);
                }
        } else {
            #pragma unroll
            for (int p = 0; p < RK; ++p)
                #pragma unroll
                for (int r = 0; r < RY; r += WIDTH)
                    a[p][r / WIDTH] = LOAD_RUN_A(tile.row + ROW_OF(y, r), start + p);
        }
        if (B_RUNS_ALONG_K) {
            #pragma unroll
            for (int c = 0; c < RX; ++c)
                #pragma unroll
                for (int p = 0; p < RK; p += WIDTH) {
                    wide_t run = LOAD_RUN_B(start + p, tile.column + COLUMN_OF(x, c));
                    #pragma unroll
                    for (int w = 0; w < WIDTH; ++w)
                        ELEMENT(b[p + w][c / WIDTH], c % WIDTH) = ELEMENT(run, w);
                }
        } else {
            #pragma unroll
            for (int p = 0; p < RK; ++p)
                #pragma unroll
                for (int c = 0; c < RX; c += WIDTH)
                    b[p][c / WIDTH] = LOAD_RUN_B(start + p, tile.column + COLUMN_OF(x, c));
        }

        #pragma unroll
        for (int p = 0; p < RK; ++p)
            #pragma unroll
            for (int r = 0; r < RY; ++r)
                #pragma unroll
                for (int c = 0; c < RX / WIDTH; ++c)
                    sum[r][c] = wide_mul_add(ELEMENT(a[p][r / WIDTH], r % WIDTH), b[p][c], sum[r][c]);
    }

    #pragma unroll
    for (int r = 0; r < RY; ++r) {
        const int i = tile.row + ROW_OF(y, r);
        #pragma unroll
        for (int c = 0; c < RX; c += WIDTH) {
            const int j = tile.column + COLUMN_OF(x, c);
            store_run(D + i * ld_d + j, C + i * ld_c + j, sum[r][c / WIDTH], alpha, beta, PRESENT(i < m, n - j));
        }
    }
}
