// times_vector: a matrix times a vector, or the squared norms of its rows, in sums wider than those of a product.
// Threads side by side read along memory: parts of one row's sum, or neighbouring columns where the matrix is transposed.
#include "arithmetic.cu"

typedef PASTE(SUM_, REAL) real_t;

#if PAIRS // double-float: a number is the sum of two floats, .x the larger (Joldes, Muller & Popescu 2017)
typedef float2 wide_t; // the intrinsics are never fused by the compiler
__device__ inline wide_t widened(float x) { return {x, 0}; }
__device__ inline wide_t fast_two_sum(float a, float b) // sum and error, for |a| ≥ |b| (Dekker 1971)
{
    const float s = __fadd_rn(a, b);
    return {s, __fsub_rn(b, __fsub_rn(s, a))};
}
__device__ inline wide_t two_sum(float a, float b) // sum and error (Knuth)
{
    const float s = __fadd_rn(a, b), t = __fsub_rn(s, a);
    return {s, __fadd_rn(__fsub_rn(a, __fsub_rn(s, t)), __fsub_rn(b, t))};
}
__device__ inline wide_t two_product(float a, float b) // product and error
{
    const float p = __fmul_rn(a, b);
    return {p, __fmaf_rn(a, b, -p)};
}
__device__ inline wide_t plus(wide_t a, wide_t b)
{
    const wide_t s = two_sum(a.x, b.x), t = two_sum(a.y, b.y), r = fast_two_sum(s.x, __fadd_rn(s.y, t.x));
    return fast_two_sum(r.x, __fadd_rn(t.y, r.y));
}
__device__ inline wide_t plus_product(wide_t sum, float a, wide_t x)
{
    const wide_t p = two_product(a, x.x), r = fast_two_sum(p.x, __fmul_rn(a, x.y));
    return plus(sum, fast_two_sum(r.x, __fadd_rn(p.y, r.y)));
}
#else
typedef real_t wide_t;
__device__ inline wide_t widened(real_t x) { return x; }
__device__ inline wide_t plus(wide_t a, wide_t b) { return a + b; }
__device__ inline wide_t plus_product(wide_t sum, real_t a, wide_t x) { return sum + a * x; }
#endif

struct number_t { wide_t value[PARTS]; };

// sum + a · x for an element a of the matrix and a number x of the vector; the number that an element, conjugated, is.
#if PARTS == 2
__device__ inline number_t added_product(number_t sum, acc_t a, number_t x)
{
    sum.value[0] = plus_product(plus_product(sum.value[0], a.x, x.value[0]), -a.y, x.value[1]);
    sum.value[1] = plus_product(plus_product(sum.value[1], a.x, x.value[1]), a.y, x.value[0]);
    return sum;
}
__device__ inline number_t conjugate_number(acc_t a) { return {{widened(a.x), widened(-a.y)}}; }
#else
__device__ inline number_t added_product(number_t sum, acc_t a, number_t x)
{
    return {{plus_product(sum.value[0], a, x.value[0])}};
}
__device__ inline number_t conjugate_number(acc_t a) { return {{widened(a)}}; }
#endif

#if CONJUGATE
#define ELEMENT(p) conjugated(load(p))
#else
#define ELEMENT(p) load(p)
#endif

// Of the threads of a block: how many results they have, how many add up each, and how far these stand apart.
#if TRANSPOSE
#define RESULTS SIDE
#define ADDERS (ITEMS / SIDE)
#define APART SIDE
#define OWN(item) ((item) % SIDE)
#define ADDER(item) ((item) / SIDE)
#define INDEX(i, j) ((index_t)(j) * ld + (i))
#else
#define RESULTS (ITEMS / SIDE)
#define ADDERS SIDE
#define APART 1
#define OWN(item) ((item) / SIDE)
#define ADDER(item) ((item) % SIDE)
#define INDEX(i, j) ((index_t)(i) * ld + (j))
#endif

extern "C" __global__ __launch_bounds__(ITEMS)
void times_vector(const in_t *matrix, index_t offset, index_t ld, index_t stride,
                  const number_t *vector, index_t vector_stride,
                  number_t *result, int rows, int columns)
{
    __shared__ number_t sums[ITEMS];
    const int item = (int)threadIdx.x;
    const unsigned groups = ((unsigned)rows + RESULTS - 1) / RESULTS; // of one matrix
    const unsigned batch = blockIdx.x / groups;
    const int i = (int)(blockIdx.x % groups) * RESULTS + OWN(item);
    matrix += offset + (index_t)batch * stride;
    vector += (index_t)batch * vector_stride;

    number_t sum;
    for (int c = 0; c < PARTS; ++c)
        sum.value[c] = widened(0);
    if (i < rows) {
        #pragma unroll 4
        for (int j = ADDER(item); j < columns; j += ADDERS) {
            const acc_t a = ELEMENT(matrix + INDEX(i, j));
            sum = added_product(sum, a, SQUARES ? conjugate_number(a) : vector[j]);
        }
    }
    sums[item] = sum;

    for (int half_of_them = ADDERS / 2; half_of_them > 0; half_of_them /= 2) {
        __syncthreads(); // the sums of the step before are complete
        if (ADDER(item) < half_of_them)
            for (int c = 0; c < PARTS; ++c)
                sums[item].value[c] = plus(sums[item].value[c], sums[item + half_of_them * APART].value[c]);
    }
    if (ADDER(item) == 0 && i < rows)
        result[(index_t)batch * rows + i] = sums[item];
}
