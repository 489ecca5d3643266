// per_architecture_sm_90: the source for sm_90: two sums at a time.
#include "products.cu"

extern "C" __global__ __launch_bounds__(TS * TS)
void per_architecture(GEMM_ARGUMENTS)
{
    const tile_t tile = this_tile(TS, TS, m, n);
    const int i = tile.row + (int)threadIdx.y;
    const int j = tile.column + (int)threadIdx.x;
    if (!INSIDE(i < m && j < n))
        return;
    SELECT_BATCH(tile.batch);

    acc_t sum = ACC_ZERO, odd = ACC_ZERO;
    int p = 0;
    for (; p + 1 < k; p += 2) {
        sum = mul_add(LOAD_A(i, p), LOAD_B(p, j), sum);
        odd = mul_add(LOAD_A(i, p + 1), LOAD_B(p + 1, j), odd);
    }
    if (p < k)
        sum = mul_add(LOAD_A(i, p), LOAD_B(p, j), sum);
    sum += odd;

    store(D + i * ld_d + j, C + i * ld_c + j, sum, alpha, beta);
}
