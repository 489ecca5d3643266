// vectors: how WIDTH elements are held, as they are stored and as sums (wide_t), and arithmetic on WIDTH of them at once.
//
// With WIDTH = 4 and float32, a run has 16 bytes and a wide_t is a float4; with complex64, 32 bytes and a float8: two lanes for a number.
// Of x = {1, 2, 3, 4},
//     ELEMENT(x, 2) is 3
//     wide_mul_add(2, x, {10, 10, 10, 10}) is {12, 14, 16, 18}
//     lanes_mul_add(x, x, {0, 0, 0, 0}) is {1, 4, 9, 16}
// and turn(x) makes of x[0] = {11, 12, 13, 14}, x[1] = {21, 22, 23, 24}, x[2] = {31, 32, 33, 34}, x[3] = {41, 42, 43, 44} their columns:
// x[0] = {11, 21, 31, 41}, x[1] = {12, 22, 32, 42}, x[2] = {13, 23, 33, 43}, x[3] = {14, 24, 34, 44}.
#include "arithmetic.cl"
#include "ptx.cl"
#include "rounding.cl"

// As stored: a vector that is as long, of whatever type, which is moved at once.
#define MOVE_1 uchar
#define MOVE_2 ushort
#define MOVE_4 uint
#define MOVE_8 uint2
#define MOVE_16 uint4
#define MOVE_32 uint8
#define MOVE_64 uint16
#define MOVE_128 ulong16
#if defined(__clang_major__) && __clang_major__ == 14 && SUM_LANES > 8 // whose vectors of halves may be wrong, or end it (pocl-vector-loads)
#undef LOADS_HALVES
#undef STORES_HALVES
#endif
#if defined(LOADS_HALVES) || defined(STORES_HALVES)
typedef PASTE(ushort, SUM_LANES) halves_t;
#endif
#if defined(LOADS_HALVES)
typedef halves_t in_run_t;
#else
typedef PASTE(MOVE_, IN_RUN_BYTES) in_run_t;
#endif
#if defined(STORES_HALVES)
typedef halves_t out_run_t;
#else
typedef PASTE(MOVE_, OUT_RUN_BYTES) out_run_t;
#endif

// As sums: a vector, in which a complex number takes two lanes.
#define PART_float16 half
#define PART_float32 float
#define PART_float64 double
#define PART_complex64 float
#define PART_complex128 double
#define PART_int32 uint
#define PART_int64 ulong
#define PART_bool uint
#if SUM_LANES == 1
typedef PASTE(PART_, ACC) wide_t;
#else
typedef PASTE(PASTE(PART_, ACC), SUM_LANES) wide_t;
#endif
#define RUN_ELEMENT(T, run, w) ((T *)&run)[w]            // the w-th element, of type T, of a run as it is stored
#define WIDE_ZERO ((wide_t)0)
#define ELEMENT(x, w) (((acc_t *)&(x))[w])               // the w-th number of a wide_t
#define LOCAL_ELEMENT(x, w) (((__local acc_t *)&(x))[w]) // of one in local memory
#if defined(__clang_major__) && __clang_major__ == 14 // PoCL 3.0 mixes up stores of neighbours unless it keeps each (pocl-vector-stores)
#define STORE_LOCAL(place, x) (*(volatile __local wide_t *)&(place) = (x))
#else
#define STORE_LOCAL(place, x) ((place) = (x))
#endif

// Numbers as a product multiplies them: rounded, where it asks for a precision.
#if defined(DROPPED_BITS)
inline acc_t rounded_number(acc_t x)
{
#if defined(COMPLEX_ARITHMETIC)
    x.x = rounded_to_precision((float)x.x);
    x.y = rounded_to_precision((float)x.y);
    return x;
#else
    return rounded_to_precision((float)x);
#endif
}
#if defined(COMPLEX_ARITHMETIC) || SUM_LANES == 1
inline wide_t rounded_numbers(wide_t x)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = rounded_number(ELEMENT(x, w));
    return x;
}
#else // all lanes at once: compilers for CPUs make no vectors of the others
#define LANES_OF(type) PASTE(type, SUM_LANES)
#define FLOATS_OF_float(x) x
#define FLOATS_OF_double(x) LANES_OF(convert_float)(x)
#define FLOATS_AS_float(x) x
#define FLOATS_AS_double(x) LANES_OF(convert_double)(x)
#define FLOATS_OF PASTE(FLOATS_OF_, PASTE(PART_, ACC))
#define FLOATS_AS PASTE(FLOATS_AS_, PASTE(PART_, ACC))
inline LANES_OF(uint) nearest_of(LANES_OF(uint) x, LANES_OF(uint) bits)
{
    return (x + ((LANES_OF(uint))1 << (bits - 1)) - 1 + (x >> bits & 1)) >> bits;
}
// All bits where x < y, of less than 2³¹, and what they choose: of comparisons of vectors LLVM 14 may end the process (PoCL 3.0).
inline LANES_OF(uint) less(LANES_OF(uint) x, LANES_OF(uint) y) { return LANES_OF(as_uint)(LANES_OF(as_int)(x - y) >> 31); }
inline LANES_OF(uint) chosen(LANES_OF(uint) mask, LANES_OF(uint) x, LANES_OF(uint) y) { return (mask & x) | (~mask & y); }
inline wide_t rounded_numbers(wide_t x)
{
    const LANES_OF(uint) bits = LANES_OF(as_uint)(FLOATS_OF(x)), sign = bits & 0x80000000u, magnitude = bits & 0x7fffffffu;
    LANES_OF(uint) r = nearest_of(magnitude, (LANES_OF(uint))DROPPED_BITS) << DROPPED_BITS;
#if defined(ROUNDS_TO_FLOAT16)
    const LANES_OF(uint) exponent = magnitude >> 23, dropped = (126u - exponent) & 31u; // which does not count where it is more
    const LANES_OF(uint) count = nearest_of((magnitude & 0x7fffffu) | 0x800000u, dropped) & ~less(exponent, (LANES_OF(uint))101u);
    r = chosen(less(r, (LANES_OF(uint))0x47800000u), r, (LANES_OF(uint))0x7f800000u);
    const LANES_OF(float) small = (LANES_OF(as_float)(count | 0x4b000000u) - 8388608.0f) * 5.9604644775390625e-8f; // 2²³ + count
    r = chosen(less(magnitude, (LANES_OF(uint))0x38800000u), LANES_OF(as_uint)(small), r);
#endif
    r = chosen(less((LANES_OF(uint))0x7f800000u, magnitude), bits | 0x400000u, sign | r);
    return FLOATS_AS(LANES_OF(as_float)(r));
}
#endif
#else
#define rounded_number(x) x
#define rounded_numbers(x) x
#endif

#if defined(SCHEDULE_FOR_PORTS)
inline float negated(float x)
{
    float y;
    NEGATE(y, x);
    return y;
}
#define SUBTRACT_PRODUCT(sum, x, y) sum += negated(x) * y
#else
#define SUBTRACT_PRODUCT(sum, x, y) sum -= x * y
#endif

// sum + a · b for WIDTH numbers b.
inline wide_t wide_mul_add(acc_t a, wide_t b, wide_t sum)
{
#if defined(COMPLEX_ARITHMETIC)
    sum.even += a.x * b.even;
    SUBTRACT_PRODUCT(sum.even, a.y, b.odd);
    sum.odd += a.x * b.odd;
    sum.odd += a.y * b.even;
#elif defined(BOOL_ARITHMETIC)
    sum = (a & b) | sum;
#else
    sum = a * b + sum;
#endif
    return sum;
}

// sum + a · b, lane by lane.
inline wide_t lanes_mul_add(wide_t a, wide_t b, wide_t sum)
{
#if defined(COMPLEX_ARITHMETIC)
    sum.even += a.even * b.even;
    sum.even -= a.odd * b.odd;
    sum.odd += a.even * b.odd;
    sum.odd += a.odd * b.even;
#elif defined(BOOL_ARITHMETIC)
    sum = (a & b) | sum;
#else
    sum = a * b + sum;
#endif
    return sum;
}

#if KEEPS_SUMS
inline wide_t lanes_sum(wide_t a, wide_t b) { return a + b; }
#endif

// A run of halves, of float16 or of bfloat16, as floats, and floats rounded to them, to nearest, ties to even: all at once, where the
// contract says that runs are such (LOADS_HALVES, STORES_HALVES). For {0x3e00, 0x3c00, 0, 0} widened_float16 gives {1.5, 1, 0, 0}.
#if defined(LOADS_HALVES) || defined(STORES_HALVES)
#if defined(__F16C__) // instructions for it, where PoCL's functions may go number by number
typedef __fp16 float16s_t __attribute__((ext_vector_type(SUM_LANES)));
inline wide_t widened_float16(halves_t x) { return __builtin_convertvector(__builtin_astype(x, float16s_t), wide_t); }
inline halves_t rounded_float16(wide_t x) { return __builtin_astype(__builtin_convertvector(x, float16s_t), halves_t); }
#else
inline wide_t widened_float16(halves_t x) { return PASTE(vload_half, SUM_LANES)(0, (const half *)&x); }
inline halves_t rounded_float16(wide_t x)
{
    halves_t halves;
    PASTE(PASTE(vstore_half, SUM_LANES), _rte)(x, 0, (half *)&halves);
    return halves;
}
#endif
inline wide_t widened_bfloat16(halves_t x)
{
    return PASTE(as_float, SUM_LANES)(PASTE(convert_uint, SUM_LANES)(x) << 16);
}
inline halves_t rounded_bfloat16(wide_t x) // as to_bfloat16
{
    const PASTE(uint, SUM_LANES) bits = PASTE(as_uint, SUM_LANES)(x);
    const PASTE(uint, SUM_LANES) rounded = bits + 0x7fff + (bits >> 16 & 1);
    return PASTE(convert_ushort, SUM_LANES)((x != x ? bits | 0x400000 : rounded) >> 16);
}
#define WIDENED(type, x) PASTE(widened_, type)(x)
#define ROUNDED(type, x) PASTE(rounded_, type)(x)
#endif

#if CONJUGATE_A || CONJUGATE_B
inline wide_t wide_conjugated(wide_t x)
{
    x.odd = -x.odd;
    return x;
}
#endif

// Exchanges the rows and columns of WIDTH runs. Of vectors that come as they are stored, each step shuffles a half with the
// other, as one shuffles cards: after log₂(WIDTH) steps, which are one loop that is soon compiled, they are turned.
inline void turn(wide_t *x)
{
#if (LOADS_SUMS && SUM_LANES > 1) || defined(LOADS_HALVES)
    for (int step = 1; step < WIDTH; step *= 2) {
        wide_t shuffled[WIDTH];
        #pragma unroll
        for (int w = 0; w < WIDTH / 2; ++w) {
            shuffled[2 * w].even = x[w].lo;
            shuffled[2 * w].odd = x[w + WIDTH / 2].lo;
            shuffled[2 * w + 1].even = x[w].hi;
            shuffled[2 * w + 1].odd = x[w + WIDTH / 2].hi;
        }
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            x[w] = shuffled[w];
    }
#else
    #pragma unroll
    for (int r = 0; r < WIDTH; ++r)
        #pragma unroll
        for (int c = 0; c < r; ++c) {
            const acc_t below = ELEMENT(x[r], c);
            ELEMENT(x[r], c) = ELEMENT(x[c], r);
            ELEMENT(x[c], r) = below;
        }
#endif
}

// Products of numbers, of which a complex element is two: one of A's numbers with all numbers of a run of B is added up by itself,
// and what came of the real and of the imaginary part of A is joined in the end: (x + yi)(u + vi) = xu - yv + (xv + yu)i.
#if defined(COMPLEX_ARITHMETIC)
#define NUMBERS 2 // of an element
#define ACC_ONE ((acc_t)(1, 0))
typedef PASTE(PART_, ACC) number_t;
inline wide_t add_products(number_t a, wide_t b, wide_t sum)
{
    sum += a * b;
    return sum;
}
inline wide_t joined(wide_t of_real, wide_t of_imaginary)
{
    of_real.even -= of_imaginary.odd;
    of_real.odd += of_imaginary.even;
    return of_real;
}
#else
#define NUMBERS 1
#define ACC_ONE ((acc_t)1)
typedef acc_t number_t;
inline wide_t add_products(number_t a, wide_t b, wide_t sum) { return wide_mul_add(a, b, sum); }
inline wide_t joined(wide_t sum, wide_t itself) { return sum; }
#endif
