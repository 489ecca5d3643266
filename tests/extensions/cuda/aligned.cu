// aligned: WIDTH elements of a row of A and of a row of B with one load each; WIDTH is 1 where rows are not aligned.
#include "products.cu"

#if WIDTH == 1
typedef in_t wide_t;
#define DOT(a, b, sum) mul_add(a, b, sum)
#elif WIDTH == 2
typedef double2 wide_t;
#define DOT(a, b, sum) mul_add((a).y, (b).y, mul_add((a).x, (b).x, sum))
#elif WIDTH == 4
typedef float4 wide_t;
#define DOT(a, b, sum) \
    mul_add((a).w, (b).w, mul_add((a).z, (b).z, mul_add((a).y, (b).y, mul_add((a).x, (b).x, sum))))
#endif

extern "C" __global__ __launch_bounds__(TS * TS)
void aligned(GEMM_ARGUMENTS)
{
    const tile_t tile = this_tile(TS, TS, m, n);
    const int i = tile.row + (int)threadIdx.y;
    const int j = tile.column + (int)threadIdx.x;
    if (!INSIDE(i < m && j < n))
        return;
    SELECT_BATCH(tile.batch);

    acc_t sum = ACC_ZERO;
    for (int p = 0; p < k; p += WIDTH) {
        const wide_t a = *reinterpret_cast<const wide_t *>(A + INDEX_A(i, p));
        const wide_t b = *reinterpret_cast<const wide_t *>(B + INDEX_B(p, j));
        sum = DOT(a, b, sum);
    }

    store(D + i * ld_d + j, C + i * ld_c + j, sum, alpha, beta);
}
