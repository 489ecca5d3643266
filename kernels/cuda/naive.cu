// naive: one thread computes one element of D, straight from global memory.
// Threads side by side take columns side by side, so that a warp's reads of B and writes of D are contiguous.
#include "products.cu"

extern "C" __global__ __launch_bounds__(TS * TS)
void naive(GEMM_ARGUMENTS)
{
    const tile_t tile = this_tile(TS, TS, m, n);
    const int i = tile.row + (int)threadIdx.y;
    const int j = tile.column + (int)threadIdx.x;
    if (!INSIDE(i < m && j < n))
        return;
    SELECT_BATCH(tile.batch);

    acc_t sum = ACC_ZERO;
    for (int p = 0; p < k; ++p)
        sum = mul_add(LOAD_A(i, p), LOAD_B(p, j), sum);

    store(D + i * ld_d + j, C + i * ld_c + j, sum, alpha, beta);
}
