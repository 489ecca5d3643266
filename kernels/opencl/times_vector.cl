// times_vector: a matrix times a vector, or the squared norms of its rows, in sums wider than those of a product.
// Work-items side by side read along memory: parts of one row's sum, or neighbouring columns where the matrix is transposed.
#include "arithmetic.cl"

#pragma OPENCL FP_CONTRACT OFF // a product that is fused into a sum is not the product whose error two_product tells

typedef PASTE(SUM_, REAL) real_t;

#if PAIRS // double-float: a number is the sum of two floats, .x the larger (Joldes, Muller & Popescu 2017)
typedef float2 wide_t;
inline wide_t widened(float x) { return (wide_t)(x, 0); }
inline wide_t fast_two_sum(float a, float b) // sum and error, for |a| ≥ |b| (Dekker 1971)
{
    const float s = a + b;
    return (wide_t)(s, b - (s - a));
}
inline wide_t two_sum(float a, float b) // sum and error (Knuth)
{
    const float s = a + b, t = s - a;
    return (wide_t)(s, (a - (s - t)) + (b - t));
}
inline float high_half(float x) { return as_float(as_uint(x) & 0xfffff000); } // 12 bits of the significand, as many as the rest
inline wide_t two_product(float a, float b) // product and error: every product of halves is exact
{
    const volatile float p = a * b; // volatile, for compilers that contract whatever the pragma says
    const float a_high = high_half(a), b_high = high_half(b), a_low = a - a_high, b_low = b - b_high;
    return (wide_t)(p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low);
}
inline wide_t plus(wide_t a, wide_t b)
{
    const wide_t s = two_sum(a.x, b.x), t = two_sum(a.y, b.y), r = fast_two_sum(s.x, s.y + t.x);
    return fast_two_sum(r.x, t.y + r.y);
}
inline wide_t plus_product(wide_t sum, float a, wide_t x)
{
    const wide_t p = two_product(a, x.x), r = fast_two_sum(p.x, a * x.y);
    return plus(sum, fast_two_sum(r.x, p.y + r.y));
}
#else
typedef real_t wide_t;
inline wide_t widened(real_t x) { return x; }
inline wide_t plus(wide_t a, wide_t b) { return a + b; }
inline wide_t plus_product(wide_t sum, real_t a, wide_t x) { return sum + a * x; }
#endif

typedef struct { wide_t value[PARTS]; } number_t;

// sum + a · x for an element a of the matrix and a number x of the vector; the number that an element, conjugated, is.
#if PARTS == 2
inline number_t added_product(number_t sum, acc_t a, number_t x)
{
    sum.value[0] = plus_product(plus_product(sum.value[0], a.x, x.value[0]), -a.y, x.value[1]);
    sum.value[1] = plus_product(plus_product(sum.value[1], a.x, x.value[1]), a.y, x.value[0]);
    return sum;
}
inline number_t conjugate_number(acc_t a)
{
    number_t x;
    x.value[0] = widened(a.x);
    x.value[1] = widened(-a.y);
    return x;
}
#else
inline number_t added_product(number_t sum, acc_t a, number_t x)
{
    sum.value[0] = plus_product(sum.value[0], a, x.value[0]);
    return sum;
}
inline number_t conjugate_number(acc_t a)
{
    number_t x;
    x.value[0] = widened(a);
    return x;
}
#endif

#if CONJUGATE
#define ELEMENT(p) conjugated(load(p))
#else
#define ELEMENT(p) load(p)
#endif

// Of the work-items of a group: how many results they have, how many add up each, and how far these stand apart.
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

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void times_vector(__global const in_t *matrix, index_t offset, index_t ld, index_t stride,
                  __global const number_t *vector, index_t vector_stride,
                  __global number_t *result, int rows, int columns)
{
    __local number_t sums[ITEMS];
    const int item = (int)get_local_id(0);
    const size_t groups = ((size_t)rows + RESULTS - 1) / RESULTS; // of one matrix
    const size_t batch = get_group_id(0) / groups;
    const int i = (int)(get_group_id(0) % groups) * RESULTS + OWN(item);
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
        barrier(CLK_LOCAL_MEM_FENCE); // the sums of the step before are complete
        if (ADDER(item) < half_of_them)
            for (int c = 0; c < PARTS; ++c)
                sums[item].value[c] = plus(sums[item].value[c], sums[item + half_of_them * APART].value[c]);
    }
    if (ADDER(item) == 0 && i < rows)
        result[(index_t)batch * rows + i] = sums[item];
}
