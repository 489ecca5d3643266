// sum_parts: adds up the parts of every sum, the first part first, and writes D.
#include "arithmetic.cl"
#include "tiles.cl"

__kernel __attribute__((reqd_work_group_size(TS, TS, 1)))
void sum_parts(
    __global const acc_t *parts, int count,
    __global const out_t *C, index_t offset_c, index_t ld_c, index_t stride_c,
    __global out_t *D, index_t offset_d, index_t ld_d, index_t stride_d,
    acc_t alpha, acc_t beta, int m, int n, int batch)
{
    const tile_t tile = this_tile(TS, TS, m, n);
    const int i = tile.row + (int)get_local_id(1);
    const int j = tile.column + (int)get_local_id(0);
    if (i >= m || j >= n)
        return;
    C += offset_c + (index_t)tile.batch * stride_c;
    D += offset_d + (index_t)tile.batch * stride_d;

    acc_t sum = ACC_ZERO;
    for (int p = 0; p < count; ++p)
        sum += parts[(((index_t)p * batch + tile.batch) * m + i) * n + j];

    store(D + i * ld_d + j, C + i * ld_c + j, sum, alpha, beta);
}
