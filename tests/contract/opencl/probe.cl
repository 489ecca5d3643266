// Small kernels that show whether a backend keeps its contract.
#include "types.cl"

// Later launches must see what earlier ones wrote: multiplying and adding do not commute.
__kernel void scale_add(__global int *data, int factor, int summand)
{
    const size_t i = get_global_id(0);
    data[i] = data[i] * factor + summand;
}

// Every kind of argument, in one line.
__kernel void arguments(__global acc_t *out, int i, long l, float f, acc_t d)
{
    out[0] = i;
    out[1] = (acc_t)(l >> 32);
    out[2] = f;
    out[3] = d;
}

// Work that takes as long as `steps` says, and that no compiler can shorten. Written out, because Mesa's llvmpipe leaves a
// kernel's loops after 65,535 rounds in all (rusticl-loop-rounds).
#define FOUR(x) x x x x
#define SIXTEEN(x) FOUR(FOUR(x))

__kernel void spin(__global unsigned *data, int steps)
{
    unsigned x = data[0] | 1u;
    for (int s = 0; s < steps; ++s) {
        SIXTEEN(x ^= x << 13; x ^= x >> 17; x ^= x << 5;)
    }
    data[0] = x;
}

// Reverses the elements of each group, through local memory whose size is given at launch.
__kernel void reverse(__global int *data, __local int *group)
{
    const size_t x = get_local_id(0);
    group[x] = data[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    data[get_global_id(0)] = group[get_local_size(0) - 1 - x];
}

// Which work-item of which group wrote an element, over all three dimensions.
__kernel void geometry(__global int *out)
{
    const size_t group = (get_group_id(2) * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) + get_group_id(0);
    const size_t item = (get_local_id(2) * get_local_size(1) + get_local_id(1)) * get_local_size(0) + get_local_id(0);
    out[group * (get_local_size(0) * get_local_size(1) * get_local_size(2)) + item] = (int)(group * 1000 + item);
}
