// per_architecture_sm_90: the source for sm_90: two sums at a time.
#include "products.cl"

__kernel __attribute__((reqd_work_group_size(TS, TS, 1)))
void per_architecture(GEMM_ARGUMENTS)
{
    const tile_t tile = this_tile(TS, TS, m, n);
    const int i = tile.row + (int)get_local_id(1);
    const int j = tile.column + (int)get_local_id(0);
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
