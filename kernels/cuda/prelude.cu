// What every kernel of the family starts from, in CUDA C++: types, arithmetic, loads, stores, and where a group works.
// The definitions in front of this file choose among it. prelude.cl says the same in OpenCL C.

// Types: in_t of A and B, out_t of C and D, acc_t of sums and scalars. Element indices are 64 bits wide.
typedef long long index_t;

#if defined(IN_FLOAT32)
typedef float in_t;
#elif defined(IN_FLOAT64)
typedef double in_t;
#endif

#if defined(ACC_FLOAT32)
typedef float acc_t;
#elif defined(ACC_FLOAT64)
typedef double acc_t;
#endif

#if defined(OUT_FLOAT32)
typedef float out_t;
#elif defined(OUT_FLOAT64)
typedef double out_t;
#endif

#define ACC_ZERO ((acc_t)0)

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

// op(A)[i, p] and op(B)[p, j]: where the element lies, and which index runs along memory.
#if defined(OP_A_N)
#define INDEX_A(i, p) ((index_t)(i) * ld_a + (p))
#define A_RUNS_ALONG_K 1
#else
#define INDEX_A(i, p) ((index_t)(p) * ld_a + (i))
#define A_RUNS_ALONG_K 0
#endif

#if defined(OP_B_N)
#define INDEX_B(p, j) ((index_t)(p) * ld_b + (j))
#define B_RUNS_ALONG_K 0
#else
#define INDEX_B(p, j) ((index_t)(j) * ld_b + (p))
#define B_RUNS_ALONG_K 1
#endif

// What lies beyond an edge is read as zero, which adds nothing to a sum, and not written. Where every tile is whole (EDGES
// is 0), there is nothing to check.
#if defined(EDGES) && !EDGES
#define INSIDE(condition) 1
#else
#define INSIDE(condition) (condition)
#endif

__device__ inline acc_t load(const in_t *p) { return (acc_t)*p; }

// One rounding: the compiler contracts a product and a sum into a fused multiply-add (-fmad=true, its default).
__device__ inline acc_t mul_add(acc_t a, acc_t b, acc_t sum) { return a * b + sum; }

// D = alpha · sum + beta · C for one element; with beta = 0, C is not read (it may hold NaN).
__device__ inline void store(out_t *d, const out_t *c, acc_t sum, acc_t alpha, acc_t beta)
{
    *d = (out_t)(beta == ACC_ZERO ? alpha * sum : alpha * sum + beta * (acc_t)*c);
}

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
