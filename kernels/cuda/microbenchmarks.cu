// microbenchmarks: what a device takes for the parts of a product, each by itself. Nothing can be left out: every number comes from
// memory, what comes of it is stored, and the host knows what it must be.
#include "ptx.cu"
#include "vectors.cu"

// CHAINS sums that do not wait for each other, each multiplied and added to in every step. A compiler cannot foresee what
// comes of it.
extern "C" __global__ __launch_bounds__(ITEMS)
void multiply_adds(const wide_t *source, wide_t *target, int steps)
{
    const int x = (int)threadIdx.x;
    const wide_t a = source[x];
    const wide_t b = source[ITEMS + x];
    wide_t sum[CHAINS];
    #pragma unroll
    for (int c = 0; c < CHAINS; ++c)
        sum[c] = source[(2 + c) * ITEMS + x];
    #pragma unroll 1
    for (int s = 0; s < steps; s += UNROLL)
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            #pragma unroll
            for (int c = 0; c < CHAINS; ++c)
                sum[c] = lanes_mul_add(sum[c], a, b);
    target += (index_t)blockIdx.x * (CHAINS * ITEMS) + x;
    #pragma unroll
    for (int c = 0; c < CHAINS; ++c)
        target[c * ITEMS] = sum[c];
}

#if defined(UNIT)
// CHAINS matrices of sums to which an instruction of the matrix unit adds a product in every step. Each thread has the numbers of A, of B and
// of the sums that are its own from the start (`MatrixUnit` in microbenchmarks.py). No compiler knows what comes of an instruction.
#define MULTIPLY PASTE(MULTIPLY_, UNIT)
#define MULTIPLY_F64_16(d, a, b) MATRIX_MUL_ADD_16(d[0], d[1], d[2], d[3], a[0], a[1], b[0])
#define MULTIPLY_F64_8(d, a, b) MATRIX_MUL_ADD_8(d[0], d[1], a[0], b[0])
#define MULTIPLY_F16(d, a, b) WARP_MUL_ADD_F16(d[0], d[1], d[2], d[3], a[0], a[1], a[2], a[3], b[0], b[1])
extern "C" __global__ __launch_bounds__(ITEMS)
void multiply_matrices(const in_t *operands, const acc_t *sums, acc_t *target, int steps)
{
    const int x = (int)threadIdx.x;
    in_t a[REGISTERS_OF_A], b[REGISTERS_OF_B];
    acc_t sum[CHAINS][SUMS];
    #pragma unroll
    for (int r = 0; r < REGISTERS_OF_A; ++r)
        a[r] = operands[r * ITEMS + x];
    #pragma unroll
    for (int r = 0; r < REGISTERS_OF_B; ++r)
        b[r] = operands[(REGISTERS_OF_A + r) * ITEMS + x];
    sums += (REGISTERS_OF_A + REGISTERS_OF_B) * ITEMS + x; // of the same memory
    #pragma unroll
    for (int c = 0; c < CHAINS; ++c)
        #pragma unroll
        for (int i = 0; i < SUMS; ++i)
            sum[c][i] = sums[(c * SUMS + i) * ITEMS];
    #pragma unroll 1
    for (int s = 0; s < steps; s += UNROLL)
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            #pragma unroll
            for (int c = 0; c < CHAINS; ++c)
                MULTIPLY(sum[c], a, b);
    target += (index_t)blockIdx.x * (CHAINS * SUMS * ITEMS) + x;
    #pragma unroll
    for (int c = 0; c < CHAINS; ++c)
        #pragma unroll
        for (int i = 0; i < SUMS; ++i)
            target[(c * SUMS + i) * ITEMS] = sum[c][i];
}
#endif

// The sum of a thread's runs, those of neighbours side by side: memory is read from its beginning to its end.
extern "C" __global__ __launch_bounds__(ITEMS)
void read_global(const wide_t *source, wide_t *target, int steps)
{
    source += (index_t)blockIdx.x * steps * (CHAINS * ITEMS) + (int)threadIdx.x;
    wide_t sum[CHAINS];
    #pragma unroll
    for (int c = 0; c < CHAINS; ++c)
        sum[c] = WIDE_ZERO;
    #pragma unroll 1
    for (int s = 0; s < steps; ++s, source += CHAINS * ITEMS)
        #pragma unroll
        for (int c = 0; c < CHAINS; ++c)
            sum[c] = wide_mul_add(ACC_ONE, source[c * ITEMS], sum[c]);
    #pragma unroll
    for (int c = 1; c < CHAINS; ++c)
        sum[0] = wide_mul_add(ACC_ONE, sum[c], sum[0]);
    target[(index_t)blockIdx.x * ITEMS + (int)threadIdx.x] = sum[0];
}

// The same runs, stored in the same places of the target.
extern "C" __global__ __launch_bounds__(ITEMS)
void copy_global(const wide_t *__restrict__ source, wide_t *__restrict__ target, int steps)
{
    const index_t first = (index_t)blockIdx.x * steps * (CHAINS * ITEMS) + (int)threadIdx.x;
    source += first;
    target += first;
    #pragma unroll 1
    for (int s = 0; s < steps; ++s, source += CHAINS * ITEMS, target += CHAINS * ITEMS)
        #pragma unroll
        for (int c = 0; c < CHAINS; ++c)
            target[c * ITEMS] = source[c * ITEMS];
}

// The sum of runs of shared memory, of which each step reads others: no compiler knows the stride.
extern "C" __global__ __launch_bounds__(ITEMS)
void read_local(const wide_t *source, wide_t *target, int steps, unsigned stride)
{
    __shared__ wide_t tile[ROOM + (CHAINS - 1) * ITEMS];
    const int x = (int)threadIdx.x;
    for (int i = x; i < ROOM + (CHAINS - 1) * ITEMS; i += ITEMS)
        STORE_LOCAL(tile[i], source[i]);
    __syncthreads(); // the tile is complete
    wide_t sum[CHAINS];
    #pragma unroll
    for (int c = 0; c < CHAINS; ++c)
        sum[c] = WIDE_ZERO;
    unsigned at = (unsigned)x;
    #pragma unroll 1
    for (int s = 0; s < steps; ++s, at = (at + stride) % ROOM)
        #pragma unroll
        for (int c = 0; c < CHAINS; ++c)
            sum[c] = wide_mul_add(ACC_ONE, tile[at + c * ITEMS], sum[c]);
    #pragma unroll
    for (int c = 1; c < CHAINS; ++c)
        sum[0] = wide_mul_add(ACC_ONE, sum[c], sum[0]);
    target[(index_t)blockIdx.x * ITEMS + x] = sum[0];
}

// One thread goes from place to place, each of which tells the next; it begins where it ended the last time.
extern "C" __global__ __launch_bounds__(ITEMS)
void chase(const unsigned *source, unsigned *target, int steps)
{
    unsigned at = target[0];
    #pragma unroll 1
    for (int s = 0; s < steps; ++s)
        at = source[at];
    target[0] = at;
}

// A block that does no more than to leave a word.
extern "C" __global__ __launch_bounds__(ITEMS)
void start(unsigned *target, int steps)
{
    if (threadIdx.x == 0)
        target[blockIdx.x] = (unsigned)blockIdx.x * 2 + (unsigned)steps;
}

// Words go round a block, from each thread to the one before it, a barrier for every step. The next step's are in the other
// half of shared memory: nobody overwrites what is being read.
extern "C" __global__ __launch_bounds__(ITEMS)
void pass_round(const unsigned *source, unsigned *target, int steps)
{
    __shared__ unsigned words[2][ITEMS];
    const int x = (int)threadIdx.x;
    unsigned word = source[x];
    #pragma unroll 1
    for (int s = 0; s < steps; ++s) {
        words[s % 2][x] = word;
        __syncthreads(); // all words are there
        word = words[s % 2][(x + 1) % ITEMS];
    }
    target[blockIdx.x * ITEMS + x] = word;
}
