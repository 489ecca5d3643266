// naive: one work-item computes one element of D, straight from global memory.
// Work-items side by side take columns side by side, so that a group's reads of B and writes of D are contiguous.
#include "products.cl"

__kernel __attribute__((reqd_work_group_size(TS, TS, 1)))
void naive(GEMM_ARGUMENTS)
{
    const tile_t tile = this_tile(TS, TS, m, n);
    const int i = tile.row + (int)get_local_id(1);
    const int j = tile.column + (int)get_local_id(0);
    if (!INSIDE(i < m && j < n))
        return;
    SELECT_BATCH(tile.batch);

    acc_t sum = ACC_ZERO;
    for (int p = 0; p < k; ++p)
        sum = mul_add(LOAD_A(i, p), LOAD_B(p, j), sum);

    store(D + i * ld_d + j, C + i * ld_c + j, sum, alpha, beta);
}
