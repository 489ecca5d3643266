// What every kernel of the family starts from, in OpenCL C 1.2: types, arithmetic, loads, stores, and where a group works.
// The definitions in front of this file choose among it. prelude.cu says the same in CUDA C++.

#if defined(cl_khr_fp64)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#if defined(cl_khr_fp16)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#pragma OPENCL FP_CONTRACT ON

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

// How a type lies in memory. Halves are their bits: not every device has a half to compute with.
#define STORED_float16 ushort
#define STORED_bfloat16 ushort
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

// From memory to a number of the type's own width, and wider.
#define READ_float16(p) vload_half(0, (__global const half *)(p))
#define READ_bfloat16(p) as_float((uint)*(p) << 16)
#define READ_float32(p) (*(p))
#define READ_float64(p) (*(p))
#define READ_complex64(p) (*(p))
#define READ_complex128(p) (*(p))
#define READ_int8(p) (*(p))
#define READ_int16(p) (*(p))
#define READ_int32(p) (*(p))
#define READ_int64(p) (*(p))
#define READ_uint8(p) (*(p))
#define READ_uint16(p) (*(p))
#define READ_uint32(p) (*(p))
#define READ_uint64(p) (*(p))
#define READ_bool(p) ((uint)(*(p) != 0))

// From a sum to memory, rounded to nearest, ties to even; integers lose their upper bits.
#define WRITE_float16(p, x) vstore_half_rte(AT_LEAST_FLOAT(x), 0, (__global half *)(p))
#define WRITE_bfloat16(p, x) (*(p) = to_bfloat16(x))
#define WRITE_float32(p, x) (*(p) = (float)(x))
#define WRITE_float64(p, x) (*(p) = (double)(x))
#define WRITE_complex64(p, x) (*(p) = convert_float2(x))
#define WRITE_complex128(p, x) (*(p) = convert_double2(x))
#define WRITE_int8(p, x) (*(p) = (char)(x))
#define WRITE_int16(p, x) (*(p) = (short)(x))
#define WRITE_int32(p, x) (*(p) = (int)(x))
#define WRITE_int64(p, x) (*(p) = (long)(x))
#define WRITE_uint8(p, x) (*(p) = (uchar)(x))
#define WRITE_uint16(p, x) (*(p) = (ushort)(x))
#define WRITE_uint32(p, x) (*(p) = (uint)(x))
#define WRITE_uint64(p, x) (*(p) = (ulong)(x))
#define WRITE_bool(p, x) (*(p) = (uchar)(x))

#define AT_LEAST_FLOAT_float16(x) ((float)(x))
#define AT_LEAST_FLOAT_float32(x) (x)
#define AT_LEAST_FLOAT_float64(x) (x)
#define AT_LEAST_FLOAT(x) PASTE(AT_LEAST_FLOAT_, ACC)(x)

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

// Arithmetic. What a device fuses is rounded once, else twice: FP_CONTRACT leaves the choice to the compiler, which knows the
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

inline acc_t load(__global const in_t *p) { return TO_SUM(PASTE(READ_, IN)(p)); }

// D = alpha · sum + beta · C for one element; with beta = 0, C is not read (it may hold NaN).
#if defined(COMPLEX_ARITHMETIC)
#define C_TO_SUM(x) PASTE(convert_, PASTE(SUM_, ACC))(x)
#else
#define C_TO_SUM(x) ((acc_t)(x))
#endif
inline void store(__global out_t *d, __global const out_t *c, acc_t sum, acc_t alpha, acc_t beta)
{
    acc_t value = scaled(alpha, sum);
    if (!is_zero(beta))
        value = sum_of(value, scaled(beta, C_TO_SUM(PASTE(READ_, OUT)(c))));
    PASTE(WRITE_, OUT)(d, value);
}

// The arguments of every product: per operand its memory, the offset of its first element, its leading dimension and the
// distance between the matrices of a batch (in elements); then the scalars and the sizes. D may be C.
#define GEMM_ARGUMENTS                                                              \
    __global const in_t *A, index_t offset_a, index_t ld_a, index_t stride_a,       \
    __global const in_t *B, index_t offset_b, index_t ld_b, index_t stride_b,       \
    __global const out_t *C, index_t offset_c, index_t ld_c, index_t stride_c,      \
    __global out_t *D, index_t offset_d, index_t ld_d, index_t stride_d,            \
    acc_t alpha, acc_t beta, int m, int n, int k

// Moves the operands to the first element of one matrix of the batch.
#define SELECT_BATCH(batch)                     \
    A += offset_a + (index_t)(batch) * stride_a; \
    B += offset_b + (index_t)(batch) * stride_b; \
    C += offset_c + (index_t)(batch) * stride_c; \
    D += offset_d + (index_t)(batch) * stride_d

// op(A)[i, p] and op(B)[p, j]: where the element lies, which index runs along memory, and the element itself.
#if TRANSPOSE_A
#define INDEX_A(i, p) ((index_t)(p) * ld_a + (i))
#define A_RUNS_ALONG_K 0
#else
#define INDEX_A(i, p) ((index_t)(i) * ld_a + (p))
#define A_RUNS_ALONG_K 1
#endif
#if TRANSPOSE_B
#define INDEX_B(p, j) ((index_t)(j) * ld_b + (p))
#define B_RUNS_ALONG_K 1
#else
#define INDEX_B(p, j) ((index_t)(p) * ld_b + (j))
#define B_RUNS_ALONG_K 0
#endif
#if CONJUGATE_A
#define LOAD_A(i, p) conjugated(load(A + INDEX_A(i, p)))
#else
#define LOAD_A(i, p) load(A + INDEX_A(i, p))
#endif
#if CONJUGATE_B
#define LOAD_B(p, j) conjugated(load(B + INDEX_B(p, j)))
#else
#define LOAD_B(p, j) load(B + INDEX_B(p, j))
#endif

// What lies beyond an edge is read as zero, which adds nothing to a sum, and not written. Where every tile is whole (EDGES
// is 0), there is nothing to check.
#if defined(EDGES) && !EDGES
#define INSIDE(condition) 1
#else
#define INSIDE(condition) (condition)
#endif

// The tile of D that this work-group computes: grids have one dimension, columns of tiles first, then rows, then matrices.
typedef struct { int row, column, batch; } tile_t;

inline tile_t this_tile(int rows, int columns, int m, int n)
{
    const size_t across = ((size_t)n + columns - 1) / columns;
    const size_t down = ((size_t)m + rows - 1) / rows;
    const size_t group = get_group_id(0);
    tile_t tile;
    tile.column = (int)(group % across) * columns;
    tile.row = (int)(group / across % down) * rows;
    tile.batch = (int)(group / across / down);
    return tile;
}
