// types: how elements are stored, how they become numbers, and how sums become elements.
//
// The specialization says IN, ACC and OUT. With IN = float16, ACC = float32 and OUT = bfloat16:
//     in_t  is STORED_float16, ushort        acc_t is SUM_float32, float        out_t is STORED_bfloat16, ushort
//     the bits 0x3e00 of A:    PASTE(NUMBER_, IN)(x) is half_to_float(x), 1.5f
//     the sum 1.50390625f:     PASTE(STORED_AS_, OUT)(x) is to_bfloat16(x), the bits 0x3fc0 of 1.5: its upper half, 0x3fc0, and
//                              0x8000 behind it, a tie, which goes to the even one

#if defined(cl_khr_fp64)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#if defined(cl_khr_fp16)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#pragma OPENCL FP_CONTRACT ON
#if defined(__clang__) // which warns of conditions that a specialization makes constant
#pragma clang diagnostic ignored "-Wconstant-logical-operand"
#endif

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

// How a type lies in memory. Halves are their bits: not every device has a half to compute with.
#define STORED_float16 ushort
#define STORED_bfloat16 ushort
#define STORED_float8_e4m3fn uchar
#define STORED_float8_e5m2 uchar
#define STORED_float32 float
#define STORED_float64 double
#define STORED_complex64 float2
#define STORED_complex128 double2
#define STORED_int8 char
#define STORED_int16 short
#define STORED_int32 int
#define STORED_int64 long
#define STORED_uint8 uchar
#define STORED_uint16 ushort
#define STORED_uint32 uint
#define STORED_uint64 ulong
#define STORED_bool uchar

// What sums are kept in. Unsigned integers wrap around, and give the low bits of signed sums too.
#define SUM_float16 half
#define SUM_float32 float
#define SUM_float64 double
#define SUM_complex64 float2
#define SUM_complex128 double2
#define SUM_int32 uint
#define SUM_int64 ulong
#define SUM_bool uint

typedef PASTE(STORED_, IN) in_t;   // an element of A and B
typedef PASTE(STORED_, OUT) out_t; // an element of C and D
typedef PASTE(SUM_, ACC) acc_t;    // sums, alpha and beta
typedef long index_t;              // of elements: 64 bits

// From what is stored to a number of the type's own width, and wider.
#define NUMBER_float16(x) half_to_float(x)
#define NUMBER_bfloat16(x) as_float((uint)(x) << 16)
#define NUMBER_float8_e4m3fn(x) e4m3fn_to_float(x)
#define NUMBER_float8_e5m2(x) e5m2_to_float(x)
#define NUMBER_float32(x) (x)
#define NUMBER_float64(x) (x)
#define NUMBER_complex64(x) (x)
#define NUMBER_complex128(x) (x)
#define NUMBER_int8(x) (x)
#define NUMBER_int16(x) (x)
#define NUMBER_int32(x) (x)
#define NUMBER_int64(x) (x)
#define NUMBER_uint8(x) (x)
#define NUMBER_uint16(x) (x)
#define NUMBER_uint32(x) (x)
#define NUMBER_uint64(x) (x)
#define NUMBER_bool(x) ((uint)((x) != 0))
inline float half_to_float(ushort bits) { return vload_half(0, (const half *)&bits); }

// Of 8 bits: a sign, 4 or 5 bits of an exponent whose bias is 7 or 15, and 3 or 2 of a significand. A float's bias is 127. Below the
// smallest normal number they are multiples of 2^-9, or of 2^-16. E4M3FN: 0x38 is 1, 0x7e is 448, 0x7f a NaN. E5M2: 0x3c is 1, 0x7b is
// 57344, 0x7c infinite, what is beyond a NaN.
#if defined(READS_FLOAT8)
inline float e4m3fn_to_float(uchar bits)
{
    const uint sign = (uint)(bits & 0x80) << 24, magnitude = bits & 0x7f;
    const uint normal = magnitude == 0x7f ? 0x7fc00000 : (magnitude + (120 << 3)) << 20;
    return as_float(sign | (magnitude < 8 ? as_uint((float)magnitude * 0x1p-9f) : normal));
}
inline float e5m2_to_float(uchar bits)
{
    const uint sign = (uint)(bits & 0x80) << 24, magnitude = bits & 0x7f;
    const uint normal = (magnitude + (magnitude < 0x7c ? 112 << 2 : 224 << 2)) << 21; // the greatest exponent stays that
    return as_float(sign | (magnitude < 4 ? as_uint((float)magnitude * 0x1p-16f) : normal));
}
#endif

// From a sum to what is stored, rounded to nearest, ties to even; integers lose their upper bits.
#define STORED_AS_float16(x) to_half(x)
#define STORED_AS_bfloat16(x) to_bfloat16(x)
#define STORED_AS_float8_e4m3fn(x) to_float8(x)
#define STORED_AS_float8_e5m2(x) to_float8(x)
#define STORED_AS_float32(x) ((float)(x))
#define STORED_AS_float64(x) ((double)(x))
#define STORED_AS_complex64(x) convert_float2(x)
#define STORED_AS_complex128(x) convert_double2(x)
#define STORED_AS_int8(x) ((char)(x))
#define STORED_AS_int16(x) ((short)(x))
#define STORED_AS_int32(x) ((int)(x))
#define STORED_AS_int64(x) ((long)(x))
#define STORED_AS_uint8(x) ((uchar)(x))
#define STORED_AS_uint16(x) ((ushort)(x))
#define STORED_AS_uint32(x) ((uint)(x))
#define STORED_AS_uint64(x) ((ulong)(x))
#define STORED_AS_bool(x) ((uchar)(x))

#define AT_LEAST_FLOAT_float16(x) ((float)(x))
#define AT_LEAST_FLOAT_float32(x) (x)
#define AT_LEAST_FLOAT_float64(x) (x)
#if defined(REAL_ARITHMETIC)
inline ushort to_half(acc_t x)
{
    ushort bits;
    vstore_half_rte(PASTE(AT_LEAST_FLOAT_, ACC)(x), 0, (half *)&bits);
    return bits;
}
#endif

// The upper half of a float, rounded to nearest, ties to even. What does not fit a float leaves its trace in the last bit
// (rounding to odd), so that a double is rounded once.
#define BITS_float16(x) as_uint((float)(x))
#define BITS_float32(x) as_uint(x)
#define BITS_float64(x) (as_uint(convert_float_rtz(x)) | (uint)((double)convert_float_rtz(x) != (x) && (x) == (x)))
#if defined(REAL_ARITHMETIC)
inline ushort to_bfloat16(acc_t x)
{
    const uint bits = PASTE(BITS_, ACC)(x);
    const uint rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (ushort)((x != x ? bits | 0x400000 : rounded) >> 16); // a NaN stays one, and quiet
}
#endif

// The 8 bits of a float, with STORES_FLOAT8 bits of a significand. Below the smallest normal number, which a float's exponent tells,
// their multiples are counted. What is too large is a NaN in E4M3FN, and infinite in E5M2.
#if defined(STORES_FLOAT8)
#define NORMAL_FLOAT8 (STORES_FLOAT8 == 3 ? 121 : 113)
#define LARGE_FLOAT8 (STORES_FLOAT8 == 3 ? 0x7f : 0x7c)
inline uchar to_float8(float x)
{
    const uint magnitude = as_uint(x) & 0x7fffffff, dropped = 23 - STORES_FLOAT8;
    const uint rounded = (magnitude + ((1 << (dropped - 1)) - 1) + (magnitude >> dropped & 1)) >> dropped;
    const uint normal = min(rounded - ((NORMAL_FLOAT8 - 1) << STORES_FLOAT8), (uint)LARGE_FLOAT8);
    const uint counted = (uint)rint(fabs(x) * (STORES_FLOAT8 == 3 ? 0x1p9f : 0x1p16f));
    const uint bits = x != x ? 0x7f : magnitude >> 23 < NORMAL_FLOAT8 ? counted : normal;
    return (uchar)((as_uint(x) >> 24 & 0x80) | bits);
}
#endif
