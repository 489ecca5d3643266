// split_k: the terms from first to last of every sum, one work-item per element, into one part of the scratch memory.
#include "products.cl"

__kernel __attribute__((reqd_work_group_size(TS, TS, 1)))
void split_k(
    __global const in_t *A, index_t offset_a, index_t ld_a, index_t stride_a,
    __global const in_t *B, index_t offset_b, index_t ld_b, index_t stride_b,
    __global acc_t *part, index_t offset_part, int m, int n, int first, int last)
{
    const tile_t tile = this_tile(TS, TS, m, n);
    const int i = tile.row + (int)get_local_id(1);
    const int j = tile.column + (int)get_local_id(0);
    if (i >= m || j >= n)
        return;
    A += offset_a + (index_t)tile.batch * stride_a;
    B += offset_b + (index_t)tile.batch * stride_b;

    acc_t sum = ACC_ZERO;
    for (int p = first; p < last; ++p)
        sum = mul_add(LOAD_A(i, p), LOAD_B(p, j), sum);

    part[offset_part + ((index_t)tile.batch * m + i) * n + j] = sum;
}
