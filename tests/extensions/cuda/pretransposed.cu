// pretransposed: reads B along k, as the pass before it has laid it out.
#include "products.cu"

extern "C" __global__ __launch_bounds__(TS * TS)
void pretransposed(GEMM_ARGUMENTS)
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
