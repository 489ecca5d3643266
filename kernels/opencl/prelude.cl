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

// From what is stored to a number of the type's own width, and wider.
#define NUMBER_float16(x) half_to_float(x)
#define NUMBER_bfloat16(x) as_float((uint)(x) << 16)
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

// From a sum to what is stored, rounded to nearest, ties to even; integers lose their upper bits.
#define STORED_AS_float16(x) to_half(x)
#define STORED_AS_bfloat16(x) to_bfloat16(x)
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

// A kernel of groups of so many work-items, as many of which a compute unit shall hold at a time. OpenCL has no word for that: the
// backend says it where NVIDIA's driver makes machine code of PTX.
#define RESIDENT(items, groups) __attribute__((reqd_work_group_size(items, 1, 1)))

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

// For kernels that move and compute WIDTH elements at once: a run is WIDTH neighbours in memory, a wide_t as many sums, a vector of
// the language. Runs are moved whole where their operand is aligned to them (ALIGNED_A, …) and they do not cross an edge.
#if defined(IN_RUN_BYTES) // run_defines of the contract
#define MOVE_1 uchar
#define MOVE_2 ushort
#define MOVE_4 uint
#define MOVE_8 uint2
#define MOVE_16 uint4
#define MOVE_32 uint8
#define MOVE_64 uint16
#define MOVE_128 ulong16
typedef PASTE(MOVE_, IN_RUN_BYTES) in_run_t;
typedef PASTE(MOVE_, OUT_RUN_BYTES) out_run_t;

// A complex number takes two lanes of a vector.
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
#define WIDE_ZERO ((wide_t)0)
#define ELEMENT(x, w) (((acc_t *)&(x))[w])               // the w-th number of a wide_t
#define LOCAL_ELEMENT(x, w) (((__local acc_t *)&(x))[w]) // of one in local memory
#if defined(__clang_major__) && __clang_major__ == 14 // PoCL 3.0 mixes up stores of neighbours unless it keeps each (pocl-vector-stores)
#define STORE_LOCAL(place, x) (*(volatile __local wide_t *)&(place) = (x))
#else
#define STORE_LOCAL(place, x) ((place) = (x))
#endif

// sum + a · b for WIDTH numbers b.
inline wide_t wide_mul_add(acc_t a, wide_t b, wide_t sum)
{
#if defined(COMPLEX_ARITHMETIC)
    sum.even += a.x * b.even;
    sum.even -= a.y * b.odd;
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

// The first `present` elements of a run as they are stored, zeros for the rest; and as sums.
inline in_run_t fetch_run(__global const in_t *p, int present, int aligned)
{
    in_run_t run;
    if (aligned && present >= WIDTH)
        run = *(__global const in_run_t *)p;
    else
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            ((in_t *)&run)[w] = w < present ? p[w] : (in_t)0;
    return run;
}
inline wide_t to_sums(in_run_t run)
{
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = to_sum(((const in_t *)&run)[w]);
    return x;
}

// `store` for the elements of a run from column `begin` to before column `end`, counted from its first, in two steps: what C holds,
// with zeros for the rest, and D with what C held. `store_part_of_run` does both, and `store_run` for the first `present` columns.
// Where rows of D are not aligned, a kernel may choose runs of columns that lie APART.
#if !defined(APART)
#define APART 1
#endif
inline out_run_t read_before(__global const out_t *c, int begin, int end)
{
    out_run_t run;
    if (ALIGNED_D && begin <= 0 && end >= WIDTH)
        run = *(__global const out_run_t *)c;
    else
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            ((out_t *)&run)[w] = w * APART >= begin && w * APART < end ? c[w * APART] : (out_t)0;
    return run;
}
inline void store_over(__global out_t *d, out_run_t before, wide_t sum, acc_t alpha, acc_t beta, int begin, int end)
{
    wide_t value;
    out_run_t run;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(value, w) = scaled(alpha, ELEMENT(sum, w));
    if (!is_zero(beta))
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            ELEMENT(value, w) = plus_scaled(ELEMENT(value, w), beta, ((const out_t *)&before)[w]);
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ((out_t *)&run)[w] = to_stored(ELEMENT(value, w));
    if (ALIGNED_D && begin <= 0 && end >= WIDTH)
        *(__global out_run_t *)d = run;
    else
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            if (w * APART >= begin && w * APART < end)
                d[w * APART] = ((const out_t *)&run)[w];
}
inline void store_part_of_run(__global out_t *d, __global const out_t *c, wide_t sum, acc_t alpha, acc_t beta, int begin, int end)
{
    out_run_t before = (out_run_t)0; // PoCL 3.1 writes nothing where it is left undefined
    if (!is_zero(beta))
        before = read_before(c, begin, end);
    store_over(d, before, sum, alpha, beta, begin, end);
}
inline void store_run(__global out_t *d, __global const out_t *c, wide_t sum, acc_t alpha, acc_t beta, int present)
{
    store_part_of_run(d, c, sum, alpha, beta, 0, present);
}

#if CONJUGATE_A || CONJUGATE_B
inline wide_t wide_conjugated(wide_t x)
{
    x.odd = -x.odd;
    return x;
}
#endif
#if CONJUGATE_A
#define OF_A(run) wide_conjugated(run)
#else
#define OF_A(run) run
#endif
#if CONJUGATE_B
#define OF_B(run) wide_conjugated(run)
#else
#define OF_B(run) run
#endif

// A run all of which is inside, wherever it lies in memory: CPUs move vectors so. `store_run`, likewise; a part of a run goes element
// by element, because Intel's compiler keeps fewer sums in registers beside masks: `packed` took a tenth longer (docs/cpu.md).
// Compilers differ in what they make of the two ways to move a vector (MOVES of `packed`).
#if defined(MOVES_VLOAD) && SUM_LANES > 1 && __clang_major__ != 14 // which does not compile some of these (pocl-vector-loads)
#define LOAD_ANYWHERE(p) PASTE(vload, SUM_LANES)(0, p)
#define STORE_ANYWHERE(x, p) PASTE(vstore, SUM_LANES)(x, 0, p)
#else
typedef struct __attribute__((packed)) { wide_t run; } anywhere_t;
#define LOAD_ANYWHERE(p) (((__global const anywhere_t *)(p))->run)
#define STORE_ANYWHERE(x, p) (((__global anywhere_t *)(p))->run = (x))
#endif
inline wide_t load_run_anywhere(__global const in_t *p)
{
#if LOADS_SUMS
    return LOAD_ANYWHERE(p);
#else
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = load(p + w);
    return x;
#endif
}
inline void store_run_anywhere(
    __global out_t *d, __global const out_t *c, wide_t sum, acc_t alpha, acc_t beta, int present)
{
#if STORES_SUMS
    if (WIDTH <= present) {
        wide_t value = alpha * sum;
        if (!is_zero(beta))
            value += beta * LOAD_ANYWHERE(c);
        STORE_ANYWHERE(value, d);
        return;
    }
#else
    if (ALIGNED_D && WIDTH <= present) {
        store_run(d, c, sum, alpha, beta, WIDTH);
        return;
    }
#endif
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        if (w < present)
            store(d + w, c + w, ELEMENT(sum, w), alpha, beta);
}

// Exchanges the rows and columns of WIDTH runs. Of vectors that come as they are stored, each step shuffles a half with the
// other, as one shuffles cards: after log₂(WIDTH) steps, which are one loop that is soon compiled, they are turned.
inline void turn(wide_t *x)
{
#if LOADS_SUMS && SUM_LANES > 1
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

// Panels: ROWS rows of op(A) or COLUMNS columns of op(B), their lines, as sums, term by term, with zeros beyond the edges: the order
// in which `packed` reads them. PACK writes the terms from `start` to `end` of the panel whose first line is `first`, of `size` there
// are. Runs along k are turned, so that the lines of each term become runs. At edges, elements are moved one by one.
#if defined(ROWS)
#define PACK(space, target, LINES, first, size, start, end, ALONG_K, RUN, NUMBER)                                          \
    do {                                                                                                                   \
        int p = start;                                                                                                     \
        if ((first) + (LINES) <= (size)) {                                                                                 \
            for (; ALONG_K && p + WIDTH <= (end); p += WIDTH)                                                              \
                for (int line = 0; line < (LINES); line += WIDTH) {                                                        \
                    wide_t x[WIDTH];                                                                                       \
                    _Pragma("unroll")                                                                                      \
                    for (int w = 0; w < WIDTH; ++w)                                                                        \
                        x[w] = RUN((first) + line + w, p);                                                                 \
                    turn(x);                                                                                               \
                    _Pragma("unroll")                                                                                      \
                    for (int w = 0; w < WIDTH; ++w)                                                                        \
                        *(space wide_t *)((target) + (index_t)(p - (start) + w) * (LINES) + line) = x[w];                  \
                }                                                                                                          \
            for (; !ALONG_K && p < (end); ++p)                                                                             \
                for (int line = 0; line < (LINES); line += WIDTH)                                                          \
                    *(space wide_t *)((target) + (index_t)(p - (start)) * (LINES) + line) = RUN((first) + line, p);        \
        }                                                                                                                  \
        for (; p < (end); ++p)                                                                                             \
            for (int line = 0; line < (LINES); ++line)                                                                     \
                (target)[(index_t)(p - (start)) * (LINES) + line] =                                                        \
                    (first) + line < (size) ? NUMBER((first) + line, p) : ACC_ZERO;                                        \
    } while (0)
#define RUN_OF_A(i, p) OF_A(load_run_anywhere(A + INDEX_A(i, p)))
#define RUN_OF_B(j, p) OF_B(load_run_anywhere(B + INDEX_B(p, j)))
#define NUMBER_OF_B(j, p) LOAD_B(p, j)
#define PACK_A(space, target, i, start, end) PACK(space, target, LINES_A, i, m, start, end, A_RUNS_ALONG_K, RUN_OF_A, LOAD_A)
#define PACK_B(space, target, j, start, end) PACK(space, target, COLUMNS, j, n, start, end, B_RUNS_ALONG_K, RUN_OF_B, NUMBER_OF_B)
#endif

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

// The run of op(A) that begins at [i, p], and of op(B) at [p, j], along memory: as it is stored, and as sums; and how many of so
// many elements are inside.
#if defined(EDGES) && !EDGES
#define PRESENT(line_is_inside, left) (WIDTH * APART)
#else
#define PRESENT(line_is_inside, left) ((line_is_inside) ? (left) : 0)
#endif
#define PRESENT_A(i, p) (A_RUNS_ALONG_K ? PRESENT((i) < m, k - (p)) : PRESENT((p) < k, m - (i)))
#define PRESENT_B(p, j) (B_RUNS_ALONG_K ? PRESENT((j) < n, k - (p)) : PRESENT((p) < k, n - (j)))
#define FETCH_RUN_A(i, p) fetch_run(A + INDEX_A(i, p), PRESENT_A(i, p), ALIGNED_A)
#define FETCH_RUN_B(p, j) fetch_run(B + INDEX_B(p, j), PRESENT_B(p, j), ALIGNED_B)
#define LOAD_RUN_A(i, p) OF_A(to_sums(FETCH_RUN_A(i, p)))
#define LOAD_RUN_B(p, j) OF_B(to_sums(FETCH_RUN_B(p, j)))
#endif

// SUB_GROUP_SHUFFLE: the SUB_GROUP work-items of a sub-group, its lanes, read each other's registers, 32 bits at a time. The
// device has Intel's extension or takes NVIDIA's instructions (gemmport.contracts.sub_groups). All lanes must take part in a shuffle, and
// in SYNC_SUB_GROUP, after which lanes see what others wrote to local memory. this_item() counts the work-items of a group
// sub-group by sub-group, lane by lane; the device says which of them these are.
#if defined(SHUFFLE_INTEL)
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#define SUB_GROUP_KERNEL __attribute__((intel_reqd_sub_group_size(SUB_GROUP)))
#define SYNC_SUB_GROUP() sub_group_barrier(CLK_LOCAL_MEM_FENCE)
inline int this_sub_group(void) { return (int)get_sub_group_id(); }
inline int this_lane(void) { return (int)get_sub_group_local_id(); }
inline int this_item(void) { return this_sub_group() * SUB_GROUP + this_lane(); }
inline uint shuffled_word(uint x, int lane) { return intel_sub_group_shuffle(x, (uint)lane); }
inline uint shuffled_down_word(uint x, int offset) // not by intel_sub_group_shuffle_down (pocl-shuffle-down)
{
    return shuffled_word(x, (this_lane() + offset) % SUB_GROUP);
}
#else
#define SUB_GROUP_KERNEL
inline int this_item(void) { return (int)(get_local_id(1) * get_local_size(0) + get_local_id(0)); }
#endif
#if defined(SHUFFLE_PTX) // a warp is the next 32 work-items
#define SYNC_SUB_GROUP() __asm__ volatile("bar.warp.sync 0xffffffff;" ::: "memory")
inline int this_sub_group(void) { return this_item() / SUB_GROUP; }
inline int this_lane(void) { return this_item() % SUB_GROUP; }
inline uint shuffled_word(uint x, int lane)
{
    uint y;
    __asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(y) : "r"(x), "r"(lane));
    return y;
}
inline uint shuffled_down_word(uint x, int offset)
{
    uint y;
    __asm__ volatile("shfl.sync.down.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(y) : "r"(x), "r"(offset));
    return y;
}
#endif
#if defined(SUB_GROUP)
typedef union { acc_t number; uint words[(sizeof(acc_t) + 3) / 4]; } words_t;

// The number that a lane of the sub-group passes.
inline acc_t shuffled(acc_t x, int lane)
{
    words_t r = {x};
    #pragma unroll
    for (int w = 0; w < (int)(sizeof(words_t) / 4); ++w)
        r.words[w] = shuffled_word(r.words[w], lane);
    return r.number;
}
// The number that the lane so far above this one passes; any number where there is no such lane.
inline acc_t shuffled_down(acc_t x, int offset)
{
    words_t r = {x};
    #pragma unroll
    for (int w = 0; w < (int)(sizeof(words_t) / 4); ++w)
        r.words[w] = shuffled_down_word(r.words[w], offset);
    return r.number;
}
#endif
