// ptx: the instructions of kernels/cuda/prelude/ptx.cu as the PTX ISA describes them, for the host.

namespace host {

// Halves by their bits. A double holds each, and the product of two. Where it does not hold the sum of that and a third, the smaller
// stands so far below the larger that it decides nothing: the sum is rounded once.
inline double from_half(unsigned short bits)
{
    const int exponent = bits >> 10 & 31, digits = bits & 1023;
    const double size = exponent == 31 ? (digits ? __builtin_nan("") : __builtin_inf())
        : exponent ? __builtin_ldexp(1024 + digits, exponent - 25) : __builtin_ldexp(digits, -24);
    return bits >> 15 ? -size : size;
}
inline unsigned short to_half(double x) // to nearest, ties to even
{
    if (x != x)
        return 0x7fff; // the only NaN that instructions on halves return
    const unsigned sign = __builtin_signbit(x) ? 0x8000 : 0;
    const double size = __builtin_fabs(x);
    if (size >= 65520) // half way from the largest half to what would follow
        return sign | 0x7c00;
    int exponent = 0;
    __builtin_frexp(size, &exponent);
    exponent = size ? max(exponent - 1, -14) : -14; // of the first digit, and below normal halves theirs
    return sign | (((exponent + 14) << 10) + (int)__builtin_nearbyint(__builtin_ldexp(size, 10 - exponent)));
}

// mma.m16n8k4 with .f64: lane 4 · g + t has term t of rows g (a0) and g + 8 (a1) and of column g (b), and the sums of these rows in
// columns 2 · t and 2 · t + 1.
inline void matrix_mul_add(double &d00, double &d01, double &d10, double &d11, double a0, double a1, double b, int line)
{
    struct Numbers { double a0, a1, b; };
    const Numbers own = {a0, a1, b};
    const Shown *const shown = shown_by_lanes(0xffffffff, &own, sizeof own, line);
    const int g = this_lane() / 4, t = this_lane() % 4;
    for (int term = 0; term < 4; ++term) {
        Numbers row, left, right;
        __builtin_memcpy(&row, shown[4 * g + term], sizeof row);
        __builtin_memcpy(&left, shown[4 * (2 * t) + term], sizeof left);
        __builtin_memcpy(&right, shown[4 * (2 * t + 1) + term], sizeof right);
        d00 = __builtin_fma(row.a0, left.b, d00);
        d01 = __builtin_fma(row.a0, right.b, d01);
        d10 = __builtin_fma(row.a1, left.b, d10);
        d11 = __builtin_fma(row.a1, right.b, d11);
    }
}

// v_mfma_f32_16x16x4f32 and v_mfma_f64_16x16x4f64: lane 16 · t + i has term t of row i (a) and of column i (b), and sums of column i:
// of float those of rows 4 · t to 4 · t + 3, of double those of rows t, t + 4, t + 8 and t + 12.
template <class Number> inline void core_mul_add(Number &d0, Number &d1, Number &d2, Number &d3, Number a, Number b, int line)
{
    static Number rows[1024], columns[1024];
    const unsigned item = position.thread.x, lane = item % 64, wave = item - lane;
    rows[item] = a;
    columns[item] = b;
    group_barrier(line);
    Number *const sums[] = {&d0, &d1, &d2, &d3};
    for (unsigned s = 0; s < 4; ++s) {
        const unsigned row = sizeof(Number) == 4 ? lane / 16 * 4 + s : s * 4 + lane / 16;
        for (unsigned t = 0; t < 4; ++t)
            *sums[s] += rows[wave + 16 * t + row] * columns[wave + 16 * t + lane % 16];
    }
    group_barrier(line);
}

}

#define CORE_MUL_ADD_32(d0, d1, d2, d3, a, b) host::core_mul_add<float>(d0, d1, d2, d3, a, b, __LINE__)
#define CORE_MUL_ADD_64(d0, d1, d2, d3, a, b) host::core_mul_add<double>(d0, d1, d2, d3, a, b, __LINE__)

#define HALF_MUL_ADD(r, x, y, z) ((r) = host::to_half(host::from_half(x) * host::from_half(y) + host::from_half(z)))
#define HALF_MUL(r, x, y) ((r) = host::to_half(host::from_half(x) * host::from_half(y)))
#define HALF_ADD(r, x, y) ((r) = host::to_half(host::from_half(x) + host::from_half(y)))
#define HALF_TO_FLOAT(r, x) ((r) = (float)host::from_half(x))
#define FLOAT_TO_HALF(r, x) ((r) = host::to_half(x))
#define DOUBLE_TO_HALF(r, x) ((r) = host::to_half(x))

#define LOAD_READ_ONLY_1(r, p) (r[0] = *(const unsigned char *)(p))
#define LOAD_READ_ONLY_2(r, p) (r[0] = *(const unsigned short *)(p))
#define LOAD_READ_ONLY_4(r, p) (r[0] = *(const unsigned *)(p))
#define LOAD_READ_ONLY_8(r, p) (*(uint2 *)r = *(const uint2 *)(p))
#define LOAD_READ_ONLY_16(r, p) (*(uint4 *)r = *(const uint4 *)(p))

#define COPY_16(to, from, wanted) ((wanted) ? host::copy_later(to, from, 16, 16) : (void)0)
#define COPY_16_OF(to, from, wanted, bytes) ((wanted) ? host::copy_later(to, from, 16, bytes) : (void)0)
#define COPY_SIZE(to, from, wanted, size) ((wanted) ? host::copy_later(to, from, size, size) : (void)0)
#define COPY_SIZE_OF(to, from, wanted, size, bytes) ((wanted) ? host::copy_later(to, from, size, bytes) : (void)0)
#define COMMIT_COPIES() host::end_group_of_copies()
#define WAIT_FOR_COPIES(groups) host::await_copies(groups)

#define MATRIX_MUL_ADD(d00, d01, d10, d11, a0, a1, b) host::matrix_mul_add(d00, d01, d10, d11, a0, a1, b, __LINE__)

#define TOUCH_PLACE(place) ((void)0)
#define TOUCH_MEMORY() ((void)0)
