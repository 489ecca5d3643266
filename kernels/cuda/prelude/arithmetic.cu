// arithmetic: products and sums of whatever type ACC is; `load` converts an element to a sum, and `store` converts a sum
// to an element.
//
// With alpha = 2, beta = 3, a sum of 5, and 7 in C, `store` writes 2 · 5 + 3 · 7 = 31 to D. sum_of(1, 1) is 2 for numbers, and
// 1 for truth values.
#include "types.cu"

// A product and a sum are fused and rounded once (-fmad=true, the compiler's default).
template <typename T> __device__ inline T mul_add(T a, T b, T sum) { return a * b + sum; }
template <typename T> __device__ inline T scaled(T s, T x) { return s * x; }
template <typename T> __device__ inline T sum_of(T x, T y) { return x + y; }
template <typename T> __device__ inline bool is_zero(T x) { return x == 0; }
template <typename T> __device__ inline T zero() { return 0; }

// Halves, on devices of compute capability 5.3 and later.
__device__ inline half_t mul_add(half_t a, half_t b, half_t sum)
{
    half_t r;
    HALF_MUL_ADD(r.bits, a.bits, b.bits, sum.bits);
    return r;
}
__device__ inline half_t scaled(half_t s, half_t x)
{
    half_t r;
    HALF_MUL(r.bits, s.bits, x.bits);
    return r;
}
__device__ inline half_t sum_of(half_t x, half_t y)
{
    half_t r;
    HALF_ADD(r.bits, x.bits, y.bits);
    return r;
}
__device__ inline bool is_zero(half_t x) { return (x.bits & 0x7fff) == 0; }
template <> __device__ inline half_t zero() { return {0}; }

// Complex numbers: float2 and double2 have the layout of complex64 and complex128.
#define COMPLEX(T, PART)                                                                            \
    __device__ inline T mul_add(T a, T b, T sum)                                                    \
    {                                                                                               \
        sum.x += a.x * b.x;                                                                         \
        sum.x -= a.y * b.y;                                                                         \
        sum.y += a.x * b.y;                                                                         \
        sum.y += a.y * b.x;                                                                         \
        return sum;                                                                                 \
    }                                                                                               \
    /* A real scalar scales both parts: times its imaginary zero, an infinite part would become NaN. */ \
    __device__ inline T scaled(T s, T x)                                                            \
    {                                                                                               \
        if (s.y == 0)                                                                               \
            return {s.x * x.x, s.x * x.y};                                                          \
        return {s.x * x.x - s.y * x.y, s.x * x.y + s.y * x.x};                                      \
    }                                                                                               \
    __device__ inline T sum_of(T x, T y) { return {x.x + y.x, x.y + y.y}; }                         \
    __device__ inline bool is_zero(T x) { return x.x == 0 && x.y == 0; }                            \
    template <> __device__ inline T zero() { return {0, 0}; }
COMPLEX(float2, float)
COMPLEX(double2, double)
template <typename T> __device__ inline T conjugated(T x) { return {x.x, -x.y}; }

// Truth values: "or" of "and"s.
__device__ inline truth_t mul_add(truth_t a, truth_t b, truth_t sum) { return {(a.value & b.value) | sum.value}; }
__device__ inline truth_t scaled(truth_t s, truth_t x) { return {s.value & x.value}; }
__device__ inline truth_t sum_of(truth_t x, truth_t y) { return {x.value | y.value}; }
__device__ inline bool is_zero(truth_t x) { return x.value == 0; }
template <> __device__ inline truth_t zero() { return {0}; }

#define ACC_ZERO zero<acc_t>()

__device__ inline acc_t to_sum(in_t x) { return to<acc_t>::from(read(&x)); }
__device__ inline acc_t load(const in_t *p) { return to_sum(*p); }

// D = alpha · sum + beta · C for one element; with beta = 0, C is not read (it may hold NaN).
__device__ inline acc_t plus_scaled(acc_t value, acc_t beta, out_t c)
{
    return sum_of(value, scaled(beta, to<acc_t>::from(read(&c))));
}
__device__ inline out_t to_stored(acc_t value) { return to<out_t>::from(value); }
__device__ inline void store(out_t *d, const out_t *c, acc_t sum, acc_t alpha, acc_t beta)
{
    acc_t value = scaled(alpha, sum);
    if (!is_zero(beta))
        value = plus_scaled(value, beta, *c);
    *d = to_stored(value);
}
