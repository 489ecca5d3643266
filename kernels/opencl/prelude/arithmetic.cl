// arithmetic: products and sums of whatever type ACC is; `load` converts an element to a sum, and `store` converts a sum
// to an element.
//
// With alpha = 2, beta = 3, a sum of 5, and 7 in C, `store` writes 2 · 5 + 3 · 7 = 31 to D. sum_of(1, 1) is 2 for numbers, and
// 1 for truth values.
#include "types.cl"

// What a device fuses is rounded once, else twice: FP_CONTRACT leaves the choice to the compiler, which knows the
// device; fma() would be emulated on devices without it.
#if defined(COMPLEX_ARITHMETIC)
#if COMPLEX_INPUT
#define TO_SUM(x) PASTE(convert_, PASTE(SUM_, ACC))(x)
#else
#define TO_SUM(x) ((acc_t)((x), 0)) // a real number
#endif
inline acc_t conjugated(acc_t x) { return (acc_t)(x.x, -x.y); }
inline acc_t mul_add(acc_t a, acc_t b, acc_t sum)
{
    sum.x += a.x * b.x;
    sum.x -= a.y * b.y;
    sum.y += a.x * b.y;
    sum.y += a.y * b.x;
    return sum;
}
// A real scalar scales both parts: multiplied by its imaginary zero, an infinite part would become NaN.
inline acc_t scaled(acc_t s, acc_t x)
{
    return s.y == 0 ? s.x * x : (acc_t)(s.x * x.x - s.y * x.y, s.x * x.y + s.y * x.x);
}
inline acc_t sum_of(acc_t x, acc_t y) { return x + y; }
inline int is_zero(acc_t x) { return x.x == 0 && x.y == 0; }
#elif defined(BOOL_ARITHMETIC) // "or" of "and"s; only 0 and 1 occur
#define TO_SUM(x) (x)
inline acc_t mul_add(acc_t a, acc_t b, acc_t sum) { return (a & b) | sum; }
inline acc_t scaled(acc_t s, acc_t x) { return s & x; }
inline acc_t sum_of(acc_t x, acc_t y) { return x | y; }
inline int is_zero(acc_t x) { return x == 0; }
#else // real numbers and integers
#define TO_SUM(x) ((acc_t)(x))
inline acc_t mul_add(acc_t a, acc_t b, acc_t sum) { return a * b + sum; }
inline acc_t scaled(acc_t s, acc_t x) { return s * x; }
inline acc_t sum_of(acc_t x, acc_t y) { return x + y; }
inline int is_zero(acc_t x) { return x == 0; }
#endif
#define ACC_ZERO ((acc_t)0)

inline acc_t to_sum(in_t x) { return TO_SUM(PASTE(NUMBER_, IN)(x)); }
inline acc_t load(__global const in_t *p) { return to_sum(*p); }

// D = alpha · sum + beta · C for one element; with beta = 0, C is not read (it may hold NaN).
#if defined(COMPLEX_ARITHMETIC)
#define C_TO_SUM(x) PASTE(convert_, PASTE(SUM_, ACC))(x)
#else
#define C_TO_SUM(x) ((acc_t)(x))
#endif
inline acc_t plus_scaled(acc_t value, acc_t beta, out_t c)
{
    return sum_of(value, scaled(beta, C_TO_SUM(PASTE(NUMBER_, OUT)(c))));
}
inline out_t to_stored(acc_t value) { return PASTE(STORED_AS_, OUT)(value); }
inline void store(__global out_t *d, __global const out_t *c, acc_t sum, acc_t alpha, acc_t beta)
{
    acc_t value = scaled(alpha, sum);
    if (!is_zero(beta))
        value = plus_scaled(value, beta, *c);
    *d = to_stored(value);
}
