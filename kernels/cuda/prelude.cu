// What every kernel of the family starts from, in CUDA C++: types, arithmetic, loads, stores, and where a group works.
// The definitions in front of this file choose among it. prelude.cl says the same in OpenCL C.

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

// How a type lies in memory.
struct half_t { unsigned short bits; };
struct bfloat_t { unsigned short bits; };
struct bool_t { unsigned char byte; };
typedef half_t STORED_float16;
typedef bfloat_t STORED_bfloat16;
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

// Arithmetic. A product and a sum are fused and rounded once (-fmad=true, the compiler's default).
template <typename T> __device__ inline T mul_add(T a, T b, T sum) { return a * b + sum; }
template <typename T> __device__ inline T scaled(T s, T x) { return s * x; }
template <typename T> __device__ inline T sum_of(T x, T y) { return x + y; }
template <typename T> __device__ inline bool is_zero(T x) { return x == 0; }
template <typename T> __device__ inline T zero() { return 0; }

// Halves, on devices of compute capability 5.3 and later.
__device__ inline half_t mul_add(half_t a, half_t b, half_t sum)
{
    half_t r;
    asm("fma.rn.f16 %0, %1, %2, %3;" : "=h"(r.bits) : "h"(a.bits), "h"(b.bits), "h"(sum.bits));
    return r;
}
__device__ inline half_t scaled(half_t s, half_t x)
{
    half_t r;
    asm("mul.rn.f16 %0, %1, %2;" : "=h"(r.bits) : "h"(s.bits), "h"(x.bits));
    return r;
}
__device__ inline half_t sum_of(half_t x, half_t y)
{
    half_t r;
    asm("add.rn.f16 %0, %1, %2;" : "=h"(r.bits) : "h"(x.bits), "h"(y.bits));
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

// From memory to a number of the type's own width, and wider.
template <typename T> __device__ inline T read(const T *p) { return *p; }
__device__ inline float read(const half_t *p)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(p->bits));
    return x;
}
__device__ inline float read(const bfloat_t *p) { return __uint_as_float((unsigned)p->bits << 16); }
__device__ inline unsigned read(const bool_t *p) { return p->byte != 0; }

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
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
        return r;
    }
    static __device__ inline half_t from(double x)
    {
        half_t r;
        asm("cvt.rn.f16.f64 %0, %1;" : "=h"(r.bits) : "d"(x));
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

// The arguments of every product: per operand its memory, the offset of its first element, its leading dimension and the
// distance between the matrices of a batch (in elements); then the scalars and the sizes. D may be C.
#define GEMM_ARGUMENTS                                                      \
    const in_t *A, index_t offset_a, index_t ld_a, index_t stride_a,        \
    const in_t *B, index_t offset_b, index_t ld_b, index_t stride_b,        \
    const out_t *C, index_t offset_c, index_t ld_c, index_t stride_c,       \
    out_t *D, index_t offset_d, index_t ld_d, index_t stride_d,             \
    acc_t alpha, acc_t beta, int m, int n, int k

// Moves the operands to the first element of one matrix of the batch.
#define SELECT_BATCH(batch)                      \
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

// A kernel of blocks of so many threads, as many of which a multiprocessor shall hold at a time: registers are shared out so.
#define RESIDENT(threads, blocks) __launch_bounds__(threads, blocks)

// The tile of D that this block computes: grids have one dimension (CUDA limits the others to 65,535), columns of tiles
// first, then rows, then matrices.
struct tile_t { int row, column, batch; };

__device__ inline tile_t this_tile(int rows, int columns, int m, int n)
{
    const unsigned across = ((unsigned)n + columns - 1) / columns;
    const unsigned down = ((unsigned)m + rows - 1) / rows;
    const unsigned group = blockIdx.x;
    tile_t tile;
    tile.column = (int)(group % across) * columns;
    tile.row = (int)(group / across % down) * rows;
    tile.batch = (int)(group / across / down);
    return tile;
}

// For kernels that move and compute WIDTH elements at once: a run is WIDTH neighbours in memory, a wide_t as many sums. Runs
// are moved whole where their operand is aligned to them (ALIGNED_A, …) and they do not cross an edge.
#if defined(IN_RUN_BYTES) // run_defines of the contract
template <typename T> struct alignas(WIDTH * sizeof(T)) run_of { T element[WIDTH]; };
typedef run_of<in_t> in_run_t;
typedef run_of<out_t> out_run_t;
typedef run_of<acc_t> wide_t;

#define ELEMENT(x, w) ((x).element[w]) // the w-th number of a wide_t
#define LOCAL_ELEMENT(x, w) ELEMENT(x, w)
#define STORE_LOCAL(place, x) ((place) = (x)) // OpenCL has something to say here
#define WIDE_ZERO wide_zero()
__device__ inline wide_t wide_zero()
{
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = ACC_ZERO;
    return x;
}

// sum + a · b for WIDTH numbers b.
__device__ inline wide_t wide_mul_add(acc_t a, wide_t b, wide_t sum)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(sum, w) = mul_add(a, ELEMENT(b, w), ELEMENT(sum, w));
    return sum;
}

// sum + a · b, lane by lane.
__device__ inline wide_t lanes_mul_add(wide_t a, wide_t b, wide_t sum)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(sum, w) = mul_add(ELEMENT(a, w), ELEMENT(b, w), ELEMENT(sum, w));
    return sum;
}

// The first `present` elements of a run as they are stored, zeros for the rest; and as sums.
__device__ inline in_run_t fetch_run(const in_t *p, int present, bool aligned)
{
    in_run_t run;
    if (aligned && present >= WIDTH)
        run = *(const in_run_t *)p;
    else
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            run.element[w] = w < present ? p[w] : in_t{};
    return run;
}
__device__ inline wide_t to_sums(in_run_t run)
{
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = to_sum(run.element[w]);
    return x;
}

// `store` for the elements of a run from column `begin` to before column `end`, counted from its first, in two steps: what C holds,
// with zeros for the rest, and D with what C held. `store_part_of_run` does both, and `store_run` for the first `present` columns.
// Where rows of D are not aligned, a kernel may choose runs of columns that lie APART.
#if !defined(APART)
#define APART 1
#endif
__device__ inline out_run_t read_before(const out_t *c, int begin, int end)
{
    out_run_t run;
    if (ALIGNED_D && begin <= 0 && end >= WIDTH)
        run = *(const out_run_t *)c;
    else
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            run.element[w] = w * APART >= begin && w * APART < end ? c[w * APART] : out_t{};
    return run;
}
__device__ inline void store_over(out_t *d, out_run_t before, wide_t sum, acc_t alpha, acc_t beta, int begin, int end)
{
    wide_t value;
    out_run_t run;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(value, w) = scaled(alpha, ELEMENT(sum, w));
    if (!is_zero(beta))
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            ELEMENT(value, w) = plus_scaled(ELEMENT(value, w), beta, before.element[w]);
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        run.element[w] = to_stored(ELEMENT(value, w));
    if (ALIGNED_D && begin <= 0 && end >= WIDTH)
        *(out_run_t *)d = run;
    else
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            if (w * APART >= begin && w * APART < end)
                d[w * APART] = run.element[w];
}
__device__ inline void store_part_of_run(out_t *d, const out_t *c, wide_t sum, acc_t alpha, acc_t beta, int begin, int end)
{
    out_run_t before = {};
    if (!is_zero(beta))
        before = read_before(c, begin, end);
    store_over(d, before, sum, alpha, beta, begin, end);
}
__device__ inline void store_run(out_t *d, const out_t *c, wide_t sum, acc_t alpha, acc_t beta, int present)
{
    store_part_of_run(d, c, sum, alpha, beta, 0, present);
}

#if CONJUGATE_A || CONJUGATE_B
__device__ inline wide_t wide_conjugated(wide_t x)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = conjugated(ELEMENT(x, w));
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

// A run all of which is inside, wherever it lies in memory. `store_run`, likewise.
__device__ inline wide_t load_run_anywhere(const in_t *p)
{
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = load(p + w);
    return x;
}
__device__ inline void store_run_anywhere(out_t *d, const out_t *c, wide_t sum, acc_t alpha, acc_t beta, int present)
{
    store_run(d, c, sum, alpha, beta, present);
}

// Exchanges the rows and columns of WIDTH runs.
__device__ inline void turn(wide_t *x)
{
    #pragma unroll
    for (int r = 0; r < WIDTH; ++r)
        #pragma unroll
        for (int c = 0; c < r; ++c) {
            const acc_t below = ELEMENT(x[r], c);
            ELEMENT(x[r], c) = ELEMENT(x[c], r);
            ELEMENT(x[c], r) = below;
        }
}

// Panels: ROWS rows of op(A) or COLUMNS columns of op(B), their lines, as sums, term by term, with zeros beyond the edges: the order
// in which `packed` reads them. PACK writes the terms from `start` to `end` of the panel whose first line is `first`, of `size` there
// are. Runs along k are turned, so that the lines of each term become runs. At edges, elements are moved one by one.
#if defined(ROWS)
#define PACK(target, LINES, first, size, start, end, ALONG_K, RUN, NUMBER)                                                 \
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
                        *(wide_t *)((target) + (index_t)(p - (start) + w) * (LINES) + line) = x[w];                        \
                }                                                                                                          \
            for (; !ALONG_K && p < (end); ++p)                                                                             \
                for (int line = 0; line < (LINES); line += WIDTH)                                                          \
                    *(wide_t *)((target) + (index_t)(p - (start)) * (LINES) + line) = RUN((first) + line, p);              \
        }                                                                                                                  \
        for (; p < (end); ++p)                                                                                             \
            for (int line = 0; line < (LINES); ++line)                                                                     \
                (target)[(index_t)(p - (start)) * (LINES) + line] =                                                        \
                    (first) + line < (size) ? NUMBER((first) + line, p) : ACC_ZERO;                                        \
    } while (0)
#define RUN_OF_A(i, p) OF_A(load_run_anywhere(A + INDEX_A(i, p)))
#define RUN_OF_B(j, p) OF_B(load_run_anywhere(B + INDEX_B(p, j)))
#define NUMBER_OF_B(j, p) LOAD_B(p, j)
#define PACK_A(target, i, start, end) PACK(target, LINES_A, i, m, start, end, A_RUNS_ALONG_K, RUN_OF_A, LOAD_A)
#define PACK_B(target, j, start, end) PACK(target, COLUMNS, j, n, start, end, B_RUNS_ALONG_K, RUN_OF_B, NUMBER_OF_B)
#endif

// Products of numbers, of which a complex element is two: one of A's numbers with all numbers of a run of B is added up by itself,
// and what came of the real and of the imaginary part of A is joined in the end: (x + yi)(u + vi) = xu - yv + (xv + yu)i.
#define ACC_ONE to<acc_t>::from(1u)
#if defined(COMPLEX_ARITHMETIC)
#define NUMBERS 2 // of an element
typedef decltype(acc_t().x) number_t;
__device__ inline wide_t add_products(number_t a, wide_t b, wide_t sum)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w) {
        ELEMENT(sum, w).x += a * ELEMENT(b, w).x;
        ELEMENT(sum, w).y += a * ELEMENT(b, w).y;
    }
    return sum;
}
__device__ inline wide_t joined(wide_t of_real, wide_t of_imaginary)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w) {
        ELEMENT(of_real, w).x -= ELEMENT(of_imaginary, w).y;
        ELEMENT(of_real, w).y += ELEMENT(of_imaginary, w).x;
    }
    return of_real;
}
#else
#define NUMBERS 1
typedef acc_t number_t;
__device__ inline wide_t add_products(number_t a, wide_t b, wide_t sum) { return wide_mul_add(a, b, sum); }
__device__ inline wide_t joined(wide_t sum, wide_t itself) { return sum; }
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

// SUB_GROUP_SHUFFLE: the SUB_GROUP threads of a warp, its lanes, read each other's registers, 32 bits at a time. All lanes must
// take part in a shuffle, and in SYNC_SUB_GROUP, after which lanes see what others wrote to shared memory. this_item() counts the
// threads of a block warp by warp, lane by lane.
#define SUB_GROUP_KERNEL
__device__ inline int this_item() { return (int)(threadIdx.y * blockDim.x + threadIdx.x); }
#if defined(SUB_GROUP)
#define SYNC_SUB_GROUP() __syncwarp()
__device__ inline int this_sub_group() { return this_item() / SUB_GROUP; }
__device__ inline int this_lane() { return this_item() % SUB_GROUP; }
__device__ inline unsigned shuffled_word(unsigned x, int lane) { return __shfl_sync(0xffffffff, x, lane); }
__device__ inline unsigned shuffled_down_word(unsigned x, int offset) { return __shfl_down_sync(0xffffffff, x, offset); }

union words_t { acc_t number; unsigned words[(sizeof(acc_t) + 3) / 4]; };

// The number that a lane of the warp passes.
__device__ inline acc_t shuffled(acc_t x, int lane)
{
    words_t r = {x};
    #pragma unroll
    for (int w = 0; w < (int)(sizeof(words_t) / 4); ++w)
        r.words[w] = shuffled_word(r.words[w], lane);
    return r.number;
}
// The number that the lane so far above this one passes; any number where there is no such lane.
__device__ inline acc_t shuffled_down(acc_t x, int offset)
{
    words_t r = {x};
    #pragma unroll
    for (int w = 0; w < (int)(sizeof(words_t) / 4); ++w)
        r.words[w] = shuffled_down_word(r.words[w], offset);
    return r.number;
}
#endif
