// Small kernels that show whether a backend keeps its contract.
#include "types.cu"

// Later launches must see what earlier ones wrote: multiplying and adding do not commute.
extern "C" __global__ void scale_add(int *data, int factor, int summand)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = data[i] * factor + summand;
}

// Every kind of argument, in one line.
extern "C" __global__ void arguments(acc_t *out, int i, long long l, float f, acc_t d)
{
    out[0] = i;
    out[1] = (acc_t)(l >> 32);
    out[2] = f;
    out[3] = d;
}

// Work that takes as long as `steps` says, and that no compiler can shorten. Written out, because Mesa's llvmpipe leaves a
// kernel's loops after 65,535 rounds in all.
#define FOUR(x) x x x x
#define SIXTEEN(x) FOUR(FOUR(x))

extern "C" __global__ void spin(unsigned *data, int steps)
{
    unsigned x = data[0] | 1u;
    for (int s = 0; s < steps; ++s) {
        SIXTEEN(x ^= x << 13; x ^= x >> 17; x ^= x << 5;)
    }
    data[0] = x;
}

// Reverses the elements of each block, through shared memory whose size is given at launch.
extern "C" __global__ void reverse(int *data)
{
    extern __shared__ int group[];
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    group[threadIdx.x] = data[i];
    __syncthreads();
    data[i] = group[blockDim.x - 1 - threadIdx.x];
}

// Which thread of which block wrote an element, over all three dimensions.
extern "C" __global__ void geometry(int *out)
{
    const size_t group = ((size_t)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const size_t item = ((size_t)threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[group * (blockDim.x * blockDim.y * blockDim.z) + item] = (int)(group * 1000 + item);
}
