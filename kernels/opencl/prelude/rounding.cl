// rounding: float32 rounded to the numbers of a narrower format, to nearest, ties to even. It stays float32.
//
// By integers alone, so that no option of a compiler and no mode of a device changes a bit. With TF32, which drops 13 bits:
//     1.00048828125f, 0x3f801000, lies between 0x3f800000 and 0x3f802000: a tie, which goes to the even one, 0x3f800000
//     1.00048840046f, 0x3f801001, lies above it: 0x3f802000
// What lies beyond the largest number of the format becomes infinite, and a NaN stays one, and quiet.
// Without one of the macros ROUNDS_TO_…, nothing is there.
#if defined(ROUNDS_TO_BFLOAT16)
#define DROPPED_BITS 16
#elif defined(ROUNDS_TO_FLOAT16) || defined(ROUNDS_TO_TF32)
#define DROPPED_BITS 13 // of TF32 and of float16, whose significands have 11 bits
#endif

#if defined(DROPPED_BITS)
// Whole numbers of 2^bits, the nearest, where `bits` are 1 to 31.
inline uint nearest(uint x, uint bits) { return (x + (1u << (bits - 1)) - 1 + (x >> bits & 1)) >> bits; }

inline float rounded_to_precision(float x)
{
    const uint bits = as_uint(x), sign = bits & 0x80000000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return as_float(bits | 0x400000u);
    uint r = nearest(magnitude, DROPPED_BITS) << DROPPED_BITS; // infinity stays; a carry reaches the exponent
#if defined(ROUNDS_TO_FLOAT16)
    if (magnitude < 0x38800000u) { // below 2^-14: multiples of 2^-24
        const uint exponent = magnitude >> 23; // of what is not below 2^-126, which is far below 2^-25
        const uint count = exponent < 101u ? 0u : nearest((magnitude & 0x7fffffu) | 0x800000u, 126u - exponent);
        r = as_uint((float)count * 5.9604644775390625e-8f);
    } else if (r >= 0x47800000u) { // 2^16, which has no half
        r = 0x7f800000u;
    }
#endif
    return as_float(sign | r);
}
#endif
