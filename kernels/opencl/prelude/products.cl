// products: the arguments of every product, and where an element of op(A), op(B), C and D lies.
//
// Let op(A) be 3 × 5, with ld_a = 8, offset_a = 2 and stride_a = 40. SELECT_BATCH(1) moves A by 2 + 1 · 40 = 42 elements. Not
// transposed, op(A)[1, 3] is at INDEX_A(1, 3) = 1 · 8 + 3 = 11 from there, and A_RUNS_ALONG_K is 1: its neighbour in memory is
// op(A)[1, 4]. Transposed, it is at 3 · 8 + 1 = 25, and A_RUNS_ALONG_K is 0: its neighbour is op(A)[2, 3].
#include "arithmetic.cl"
#include "tiles.cl"

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

// Whether C is left out, as where beta is 0. A program of such products alone, READS_C = 0, has no code for the others, and compiles
// sooner.
#if defined(READS_C) && !READS_C
#define LEAVES_C_OUT(beta) 1
#else
#define LEAVES_C_OUT(beta) is_zero(beta)
#endif

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
