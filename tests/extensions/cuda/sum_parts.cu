// sum_parts: adds up the parts of every sum, the first part first, and writes D.
#include "arithmetic.cu"
#include "tiles.cu"

extern "C" __global__ __launch_bounds__(TS * TS)
void sum_parts(
    const acc_t *parts, int count,
    const out_t *C, index_t offset_c, index_t ld_c, index_t stride_c,
    out_t *D, index_t offset_d, index_t ld_d, index_t stride_d,
    acc_t alpha, acc_t beta, int m, int n, int batch)
{
    const tile_t tile = this_tile(TS, TS, m, n);
    const int i = tile.row + (int)threadIdx.y;
    const int j = tile.column + (int)threadIdx.x;
    if (i >= m || j >= n)
        return;
    C += offset_c + (index_t)tile.batch * stride_c;
    D += offset_d + (index_t)tile.batch * stride_d;

    acc_t sum = ACC_ZERO;
    for (int p = 0; p < count; ++p)
        sum += parts[(((index_t)p * batch + tile.batch) * m + i) * n + j];

    store(D + i * ld_d + j, C + i * ld_c + j, sum, alpha, beta);
}
