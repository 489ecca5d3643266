// types: how elements are stored, how they become numbers, and how sums become elements.
//
// The specialization says IN, ACC and OUT. With IN = float16, ACC = float32 and OUT = bfloat16:
//     in_t  is STORED_float16, half_t        acc_t is SUM_float32, float        out_t is STORED_bfloat16, bfloat_t
//     the bits 0x3e00 of A:    to<acc_t>::from(read(p)) is 1.5f
//     the sum 1.50390625f:     to<out_t>::from(x) has the bits 0x3fc0 of 1.5: its upper half, 0x3fc0, and 0x8000 behind it, a tie,
//                              which goes to the even one
#include "ptx.cu"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

// How a type lies in memory.
struct half_t { unsigned short bits; };
struct bfloat_t { unsigned short bits; };
struct e4m3fn_t { unsigned char bits; };
struct e5m2_t { unsigned char bits; };
struct bool_t { unsigned char byte; };
typedef half_t STORED_float16;
typedef bfloat_t STORED_bfloat16;
typedef e4m3fn_t STORED_float8_e4m3fn;
typedef e5m2_t STORED_float8_e5m2;
typedef float STORED_float32;
typedef double STORED_float64;
typedef float2 STORED_complex64;
typedef double2 STORED_complex128;
typedef signed char STORED_int8;
typedef short STORED_int16;
typedef int STORED_int32;
typedef long long STORED_int64;
typedef unsigned char STORED_uint8;
typedef unsigned short STORED_uint16;
typedef unsigned STORED_uint32;
typedef unsigned long long STORED_uint64;
typedef bool_t STORED_bool;

// What sums are kept in. Unsigned integers wrap around, and give the low bits of signed sums too.
struct truth_t { unsigned value; }; // 0 or 1
typedef half_t SUM_float16;
typedef float SUM_float32;
typedef double SUM_float64;
typedef float2 SUM_complex64;
typedef double2 SUM_complex128;
typedef unsigned SUM_int32;
typedef unsigned long long SUM_int64;
typedef truth_t SUM_bool;

typedef PASTE(STORED_, IN) in_t;   // an element of A and B
typedef PASTE(STORED_, OUT) out_t; // an element of C and D
typedef PASTE(SUM_, ACC) acc_t;    // sums, alpha and beta
typedef long long index_t;         // of elements: 64 bits

// From memory to a number of the type's own width, and wider.
template <typename T> __device__ inline T read(const T *p) { return *p; }
__device__ inline float read(const half_t *p)
{
    float x;
    HALF_TO_FLOAT(x, p->bits);
    return x;
}
__device__ inline float read(const bfloat_t *p) { return __uint_as_float((unsigned)p->bits << 16); }
__device__ inline unsigned read(const bool_t *p) { return p->byte != 0; }

// Of 8 bits: a sign, 4 or 5 bits of an exponent whose bias is 7 or 15, and 3 or 2 of a significand. A float's bias is 127. Below the
// smallest normal number they are multiples of 2^-9, or of 2^-16. E4M3FN: 0x38 is 1, 0x7e is 448, 0x7f a NaN. E5M2: 0x3c is 1, 0x7b is
// 57344, 0x7c infinite, what is beyond a NaN.
#if defined(READS_FLOAT8)
__device__ inline float read(const e4m3fn_t *p)
{
    const unsigned sign = (unsigned)(p->bits & 0x80) << 24, magnitude = p->bits & 0x7f;
    const unsigned normal = magnitude == 0x7f ? 0x7fc00000 : (magnitude + (120 << 3)) << 20;
    return __uint_as_float(sign | (magnitude < 8 ? __float_as_uint((float)magnitude * 0x1p-9f) : normal));
}
__device__ inline float read(const e5m2_t *p)
{
    const unsigned sign = (unsigned)(p->bits & 0x80) << 24, magnitude = p->bits & 0x7f;
    const unsigned normal = (magnitude + (magnitude < 0x7c ? 112 << 2 : 224 << 2)) << 21; // the greatest exponent stays that
    return __uint_as_float(sign | (magnitude < 4 ? __float_as_uint((float)magnitude * 0x1p-16f) : normal));
}
#endif

// Between numbers: what is read becomes a sum, a sum what is stored, rounded to nearest, ties to even; integers lose their
// upper bits.
template <typename T> struct to
{
    template <typename X> static __device__ inline T from(X x) { return (T)x; }
    static __device__ inline T from(half_t x) { return (T)read(&x); }
};
template <> struct to<half_t>
{
    template <typename X> static __device__ inline half_t from(X x) { return from((float)x); } // whole numbers
    static __device__ inline half_t from(half_t x) { return x; }
    static __device__ inline half_t from(float x)
    {
        half_t r;
        FLOAT_TO_HALF(r.bits, x);
        return r;
    }
    static __device__ inline half_t from(double x)
    {
        half_t r;
        DOUBLE_TO_HALF(r.bits, x);
        return r;
    }
};
template <> struct to<bfloat_t>
{
    static __device__ inline bfloat_t rounded(unsigned bits, bool nan) // the upper half of a float; a NaN stays one, and quiet
    {
        return {(unsigned short)((nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
    }
    static __device__ inline bfloat_t from(float x) { return rounded(__float_as_uint(x), x != x); }
    static __device__ inline bfloat_t from(double x) // what no float holds leaves its trace in the last bit: rounded once
    {
        const float f = __double2float_rz(x);
        return rounded(__float_as_uint(f) | (unsigned)(f != x && x == x), x != x);
    }
    static __device__ inline bfloat_t from(half_t x) { return from(read(&x)); }
};
#define TO_COMPLEX(T, PART)                                                       \
    template <> struct to<T>                                                      \
    {                                                                             \
        template <typename X> static __device__ inline T from(X x) { return {(PART)x, 0}; } \
        static __device__ inline T from(float2 x) { return {(PART)x.x, (PART)x.y}; }   \
        static __device__ inline T from(double2 x) { return {(PART)x.x, (PART)x.y}; }  \
    };
TO_COMPLEX(float2, float)
TO_COMPLEX(double2, double)
template <> struct to<truth_t>
{
    static __device__ inline truth_t from(unsigned x) { return {x}; }
};
template <> struct to<bool_t>
{
    static __device__ inline bool_t from(truth_t x) { return {(unsigned char)x.value}; }
};

// The 8 bits of a float, with STORES_FLOAT8 bits of a significand. Below the smallest normal number, which a float's exponent tells,
// their multiples are counted. What is too large is a NaN in E4M3FN, and infinite in E5M2.
#if defined(STORES_FLOAT8)
#define NORMAL_FLOAT8 (STORES_FLOAT8 == 3 ? 121 : 113)
#define LARGE_FLOAT8 (STORES_FLOAT8 == 3 ? 0x7f : 0x7c)
template <> struct to<out_t>
{
    static __device__ inline out_t from(float x)
    {
        const unsigned magnitude = __float_as_uint(x) & 0x7fffffff, dropped = 23 - STORES_FLOAT8;
        const unsigned rounded = (magnitude + ((1 << (dropped - 1)) - 1) + (magnitude >> dropped & 1)) >> dropped;
        const unsigned normal = min(rounded - ((NORMAL_FLOAT8 - 1) << STORES_FLOAT8), (unsigned)LARGE_FLOAT8);
        const unsigned counted = (unsigned)rintf(fabsf(x) * (STORES_FLOAT8 == 3 ? 0x1p9f : 0x1p16f));
        const unsigned bits = x != x ? 0x7f : magnitude >> 23 < NORMAL_FLOAT8 ? counted : normal;
        return {(unsigned char)((__float_as_uint(x) >> 24 & 0x80) | bits)};
    }
};
#endif
