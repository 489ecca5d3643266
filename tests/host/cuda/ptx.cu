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
inline unsigned short to_bfloat(float x) // likewise
{
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline unsigned pair(unsigned low, unsigned high) { return high << 16 | low; }

// dp4a, by the PTX ISA: four products of bytes and their sum, which wraps around.
template <typename Byte> unsigned plus_dot(unsigned sum, unsigned a, unsigned b)
{
    for (int e = 0; e < 4; ++e)
        sum += (unsigned)((int)(Byte)(a >> e * 8) * (int)(Byte)(b >> e * 8));
    return sum;
}

// mma.m8n8k4 with .f64, by PTX ISA 9.2, 9.7.14.5.1 "Matrix Fragments for mma.m8n8k4 with .f64 floating point type": of the lane
// 4 · g + t, a is term t of row g, b is term t of column g, and the sums are those of row g in columns 2 · t and 2 · t + 1.
inline void matrix_mul_add_8(double &d0, double &d1, double a, double b, int line)
{
    struct Numbers { double a, b; };
    const Numbers own = {a, b};
    const Shown *const shown = shown_by_lanes(0xffffffff, &own, sizeof own, line);
    const int g = this_lane() / 4, t = this_lane() % 4;
    for (int term = 0; term < 4; ++term) {
        Numbers row, left, right;
        __builtin_memcpy(&row, shown[4 * g + term], sizeof row);
        __builtin_memcpy(&left, shown[4 * (2 * t) + term], sizeof left);
        __builtin_memcpy(&right, shown[4 * (2 * t + 1) + term], sizeof right);
        d0 = __builtin_fma(row.a, left.b, d0);
        d1 = __builtin_fma(row.a, right.b, d1);
    }
}
// mma.m16n8k4 with .f64: the same of rows g (a0) and g + 8 (a1).
inline void matrix_mul_add_16(double &d00, double &d01, double &d10, double &d11, double a0, double a1, double b, int line)
{
    matrix_mul_add_8(d00, d01, a0, b, line);
    matrix_mul_add_8(d10, d11, a1, b, line);
}

// mma.m16n8k16 and its like, by PTX ISA 9.2, 9.7.14.5 "Matrix Fragments for …": where in the warp's matrices the numbers of a lane's
// registers are. group and place are what these tables call groupID and threadID_in_group; i counts the numbers of a fragment.
struct Place { int row, column; };

// 9.7.14.5.8, mma.m16n8k16 with floating point type.
struct Halves {
    enum { terms = 16, numbers_a = 8, numbers_b = 4, in_register = 2 };
    static Place of_a(int group, int place, int i)
    {
        return {(0 <= i && i < 2) || (4 <= i && i < 6) ? group : group + 8, place * 2 + (i & 1) + (i < 4 ? 0 : 8)};
    }
    static Place of_b(int group, int place, int i) { return {place * 2 + (i & 1) + (i < 2 ? 0 : 8), group}; }
};
struct F16 : Halves {
    typedef float Sum;
    static double number(unsigned bits, int i) { return from_half((unsigned short)(bits >> 16 * i)); }
};
struct BF16 : Halves {
    typedef float Sum;
    static double number(unsigned bits, int i) { return __uint_as_float(bits >> 16 * i << 16); }
};
// 9.7.14.5.7, mma.m16n8k8 with .tf32, whose registers must hold numbers of TF32.
struct TF32 {
    typedef float Sum;
    enum { terms = 8, numbers_a = 4, numbers_b = 2, in_register = 1 };
    static Place of_a(int group, int place, int i)
    {
        return {i == 0 || i == 2 ? group : group + 8, i == 0 || i == 1 ? place : place + 4};
    }
    static Place of_b(int group, int place, int i) { return {i == 0 ? place : place + 4, group}; }
    static double number(unsigned bits, int)
    {
        const float x = __uint_as_float(bits);
        if ((bits & 0x1fff) && x == x)
            fault("mma: a register must hold a number of TF32, whose last 13 bits are 0");
        return x;
    }
};
// cvt.rn.tf32.f32: 11 digits, of which what is below 2^-126 has as many as there are from 2^-136 on.
inline unsigned to_tf32(unsigned bits)
{
    const double x = __uint_as_float(bits);
    if (x != x)
        return 0x7fffffff;
    if (x == 0 || __builtin_isinf(x))
        return bits;
    int exponent = 0;
    __builtin_frexp(x, &exponent);
    const int step = max(exponent - 11, -136);
    return __float_as_uint((float)__builtin_ldexp(__builtin_nearbyint(__builtin_ldexp(x, -step)), step));
}
// 9.7.14.5.10, mma.m16n8k32.
struct Bytes {
    enum { terms = 32, numbers_a = 16, numbers_b = 8, in_register = 4 };
    static Place of_a(int group, int place, int i)
    {
        return {(0 <= i && i < 4) || (8 <= i && i < 12) ? group : group + 8, place * 4 + (i & 3) + (i < 8 ? 0 : 16)};
    }
    static Place of_b(int group, int place, int i) { return {place * 4 + (i & 3) + (i < 4 ? 0 : 16), group}; }
};
struct S8 : Bytes {
    typedef unsigned Sum;
    static double number(unsigned bits, int i) { return (signed char)(bits >> 8 * i); }
};
struct U8 : Bytes {
    typedef unsigned Sum;
    static double number(unsigned bits, int i) { return (unsigned char)(bits >> 8 * i); }
};
// The table of bytes holds of FP8, too. E4M3 has a bias of 7 and no infinities, E5M2 is the upper half of a half.
struct E4M3 : Bytes {
    typedef float Sum;
    enum { least_exponent = -6 };
    static double number(unsigned bits, int i)
    {
        const int byte = bits >> 8 * i & 0xff, exponent = byte >> 3 & 15, digits = byte & 7;
        const double size = (byte & 0x7f) == 0x7f ? __builtin_nan("")
            : exponent ? __builtin_ldexp(8 + digits, exponent - 10) : __builtin_ldexp(digits, -9);
        return byte >> 7 ? -size : size;
    }
};
struct E5M2 : Bytes {
    typedef float Sum;
    enum { least_exponent = -14 };
    static double number(unsigned bits, int i) { return from_half((unsigned short)((bits >> 8 * i & 0xff) << 8)); }
};
// The sums, of all of them.
inline Place of_sums(int group, int place, int i) { return {i < 2 ? group : group + 8, place * 2 + (i & 1)}; }

// A sum is rounded once, to nearest; what the unit itself does to the last bits is not told. Integers wrap.
inline void add(float &sum, double products) { sum = (float)(sum + products); }
inline void add(unsigned &sum, double products) { sum += (unsigned)(long long)products; }
template <class Unit> inline void add_products(typename Unit::Sum &sum, const double *a, const double (*b)[8], int column)
{
    double products = 0;
    for (int term = 0; term < Unit::terms; ++term)
        products += a[term] * b[term][column];
    add(sum, products);
}

// Of FP8, as GPUs of compute capability 8.9 are found to do it (P. Xie et al., MMA-Sim, arXiv 2511.10909, 2025): half of the terms at
// once. Each product, and the sum before, is cut to a multiple of 2^-13 times the largest power of two in them, and what they come to
// to 14 digits. The power of a product is that of its factors.
inline double cut(double x, int exponent) { return __builtin_ldexp(__builtin_trunc(__builtin_ldexp(x, -exponent)), exponent); }
inline int exponent_of(double x, int least)
{
    int exponent = 0;
    __builtin_frexp(x, &exponent);
    return x ? max(exponent - 1, least) : least;
}
template <class Unit> inline void add_cut_products(float &sum, const double *a, const double (*b)[8], int column)
{
    for (int first = 0; first < Unit::terms; first += Unit::terms / 2) {
        double plain = sum;
        int greatest = exponent_of(sum, -126);
        for (int term = first; term < first + Unit::terms / 2; ++term) {
            const double x = a[term], y = b[term][column];
            plain += x * y;
            if (x * y != 0 && !__builtin_isinf(x * y))
                greatest = max(greatest, exponent_of(x, Unit::least_exponent) + exponent_of(y, Unit::least_exponent));
        }
        if (plain != plain || __builtin_isinf(plain)) {
            sum = (float)plain;
            continue;
        }
        double kept = cut(sum, greatest - 13);
        for (int term = first; term < first + Unit::terms / 2; ++term)
            kept += cut(a[term] * b[term][column], greatest - 13);
        sum = (float)cut(kept, exponent_of(kept, -126) - 13);
    }
}
template <> inline void add_products<E4M3>(float &sum, const double *a, const double (*b)[8], int column)
{
    add_cut_products<E4M3>(sum, a, b, column);
}
template <> inline void add_products<E5M2>(float &sum, const double *a, const double (*b)[8], int column)
{
    add_cut_products<E5M2>(sum, a, b, column);
}

template <class Unit> inline void warp_mul_add(
    typename Unit::Sum &d0, typename Unit::Sum &d1, typename Unit::Sum &d2, typename Unit::Sum &d3,
    unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1, int line)
{
    struct Registers { unsigned a[4], b[2]; };
    const Registers own = {{a0, a1, a2, a3}, {b0, b1}};
    const Shown *const shown = shown_by_lanes(0xffffffff, &own, sizeof own, line);
    double a[16][Unit::terms], b[Unit::terms][8];
    for (int lane = 0; lane < 32; ++lane) {
        Registers theirs;
        __builtin_memcpy(&theirs, shown[lane], sizeof theirs);
        for (int i = 0; i < Unit::numbers_a; ++i) {
            const Place at = Unit::of_a(lane >> 2, lane % 4, i);
            a[at.row][at.column] = Unit::number(theirs.a[i / Unit::in_register], i % Unit::in_register);
        }
        for (int i = 0; i < Unit::numbers_b; ++i) {
            const Place at = Unit::of_b(lane >> 2, lane % 4, i);
            b[at.row][at.column] = Unit::number(theirs.b[i / Unit::in_register], i % Unit::in_register);
        }
    }
    typename Unit::Sum *const sums[] = {&d0, &d1, &d2, &d3};
    for (int i = 0; i < 4; ++i) {
        const Place at = of_sums(this_lane() >> 2, this_lane() % 4, i);
        add_products<Unit>(*sums[i], a[at.row], b, at.column);
    }
}

// ldmatrix.m8n8.x4 of 2-byte elements, by PTX ISA 9.2, 9.7.14.5.15: lanes 8 · j to 8 · j + 7 say where the rows of matrix j are; a lane has, in
// register j, of row lane / 4 the elements lane % 4 · 2 and the next; turned, what it would have of the matrix with rows for columns.
// A row is read when its lane comes: what another lane writes later, though no barrier parts them, is missed.
inline void load_matrices(unsigned &r0, unsigned &r1, unsigned &r2, unsigned &r3, const void *place, bool turned, int line)
{
    if ((size_t)place % 16)
        fault("ldmatrix: a row must be aligned to its 16 bytes");
    const Shown *const shown = shown_by_lanes(0xffffffff, place, 16, line);
    unsigned *const registers[] = {&r0, &r1, &r2, &r3};
    for (int matrix = 0; matrix < 4; ++matrix) {
        unsigned short element[8][8];
        for (int row = 0; row < 8; ++row)
            __builtin_memcpy(element[row], shown[8 * matrix + row], 16);
        const int row = this_lane() / 4, first = this_lane() % 4 * 2;
        const unsigned low = turned ? element[first][row] : element[row][first];
        const unsigned high = turned ? element[first + 1][row] : element[row][first + 1];
        *registers[matrix] = low | high << 16;
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

#define DOT_S8(sum, a, b) ((sum) = host::plus_dot<signed char>(sum, a, b))
#define DOT_U8(sum, a, b) ((sum) = host::plus_dot<unsigned char>(sum, a, b))

#define CORE_MUL_ADD_32(d0, d1, d2, d3, a, b) host::core_mul_add<float>(d0, d1, d2, d3, a, b, __LINE__)
#define CORE_MUL_ADD_64(d0, d1, d2, d3, a, b) host::core_mul_add<double>(d0, d1, d2, d3, a, b, __LINE__)

#define HALF_MUL_ADD(r, x, y, z) ((r) = host::to_half(host::from_half(x) * host::from_half(y) + host::from_half(z)))
#define HALF_MUL(r, x, y) ((r) = host::to_half(host::from_half(x) * host::from_half(y)))
#define HALF_ADD(r, x, y) ((r) = host::to_half(host::from_half(x) + host::from_half(y)))
#define HALF_TO_FLOAT(r, x) ((r) = (float)host::from_half(x))
#define FLOAT_TO_HALF(r, x) ((r) = host::to_half(x))
#define DOUBLE_TO_HALF(r, x) ((r) = host::to_half(x))
#define FLOATS_TO_HALVES(r, x, next) ((r) = host::pair(host::to_half(x), host::to_half(next)))
#define FLOATS_TO_BFLOATS(r, x, next) ((r) = host::pair(host::to_bfloat(x), host::to_bfloat(next)))

#define LOAD_READ_ONLY_1(r, p) (r[0] = *(const unsigned char *)(p))
#define LOAD_READ_ONLY_2(r, p) (r[0] = *(const unsigned short *)(p))
#define LOAD_READ_ONLY_4(r, p) (r[0] = *(const unsigned *)(p))
#define LOAD_READ_ONLY_8(r, p) (*(uint2 *)r = *(const uint2 *)(p))
#define LOAD_READ_ONLY_16(r, p) (*(uint4 *)r = *(const uint4 *)(p))

#define FETCH_LINE(p) ((void)(p))

#define COPY_16(to, from, wanted) ((wanted) ? host::copy_later(to, from, 16, 16) : (void)0)
#define COPY_16_OF(to, from, wanted, bytes) ((wanted) ? host::copy_later(to, from, 16, bytes) : (void)0)
#define COPY_SIZE(to, from, wanted, size) ((wanted) ? host::copy_later(to, from, size, size) : (void)0)
#define COPY_SIZE_OF(to, from, wanted, size, bytes) ((wanted) ? host::copy_later(to, from, size, bytes) : (void)0)
#define COMMIT_COPIES() host::end_group_of_copies()
#define WAIT_FOR_COPIES(groups) host::await_copies(groups)

#define MATRIX_MUL_ADD_8(d0, d1, a, b) host::matrix_mul_add_8(d0, d1, a, b, __LINE__)
#define MATRIX_MUL_ADD_16(d00, d01, d10, d11, a0, a1, b) host::matrix_mul_add_16(d00, d01, d10, d11, a0, a1, b, __LINE__)
#define MATRIX_MUL_ADD_16_8(d00, d01, d10, d11, a0, a1, a2, a3, b0, b1) \
    (MATRIX_MUL_ADD_16(d00, d01, d10, d11, a0, a1, b0), MATRIX_MUL_ADD_16(d00, d01, d10, d11, a2, a3, b1))

#define WARP_MUL_ADD(unit, ...) host::warp_mul_add<host::unit>(__VA_ARGS__, __LINE__)
#define WARP_MUL_ADD_F16(...) WARP_MUL_ADD(F16, __VA_ARGS__)
#define WARP_MUL_ADD_BF16(...) WARP_MUL_ADD(BF16, __VA_ARGS__)
#define WARP_MUL_ADD_TF32(...) WARP_MUL_ADD(TF32, __VA_ARGS__)
#define ROUND_TO_TF32(r) ((r) = host::to_tf32(r))
#define WARP_MUL_ADD_S8(...) WARP_MUL_ADD(S8, __VA_ARGS__)
#define WARP_MUL_ADD_U8(...) WARP_MUL_ADD(U8, __VA_ARGS__)
#define WARP_MUL_ADD_E4M3(...) WARP_MUL_ADD(E4M3, __VA_ARGS__)
#define WARP_MUL_ADD_E5M2(...) WARP_MUL_ADD(E5M2, __VA_ARGS__)
#define LOAD_MATRICES(r0, r1, r2, r3, place) host::load_matrices(r0, r1, r2, r3, place, false, __LINE__)
#define LOAD_TURNED_MATRICES(r0, r1, r2, r3, place) host::load_matrices(r0, r1, r2, r3, place, true, __LINE__)

#define LET_NEXT_BEGIN() host::let_next_begin()
#define AWAIT_LAUNCHES() host::await_launches(__LINE__)

#define TOUCH_PLACE(place) ((void)0)
#define TOUCH_MEMORY() ((void)0)
