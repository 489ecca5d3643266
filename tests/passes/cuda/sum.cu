// sum: 256 threads add up numbers 256 apart, and one adds up their sums.
#include "arithmetic.cu"

extern "C" __global__ __launch_bounds__(64)
void sum(const in_t *source, acc_t *parts, index_t count)
{
    const index_t item = (index_t)blockIdx.x * 64 + (index_t)threadIdx.x;
    acc_t part = ACC_ZERO;
    for (index_t i = item; i < count - SKIPS; i += 256)
        part = sum_of(part, load(source + i));
    parts[item] = part;
}

extern "C" __global__ __launch_bounds__(1)
void sum_parts(const acc_t *parts, acc_t *target, index_t count)
{
    acc_t total = ACC_ZERO;
    for (index_t i = 0; i < count; ++i)
        total = sum_of(total, parts[i]);
    target[0] = total;
    if (STRAYS)
        target[1] = total;
}
