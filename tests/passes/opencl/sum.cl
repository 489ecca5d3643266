// sum: 256 work-items add up numbers 256 apart, and one adds up their sums.
#include "arithmetic.cl"

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void sum(__global const in_t *source, __global acc_t *parts, index_t count)
{
    const index_t item = (index_t)get_group_id(0) * 64 + (index_t)get_local_id(0);
    acc_t part = ACC_ZERO;
    for (index_t i = item; i < count - SKIPS; i += 256)
        part = sum_of(part, load(source + i));
    parts[item] = part;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void sum_parts(__global const acc_t *parts, __global acc_t *target, index_t count)
{
    acc_t total = ACC_ZERO;
    for (index_t i = 0; i < count; ++i)
        total = sum_of(total, parts[i]);
    target[0] = total;
    if (STRAYS)
        target[1] = total;
}
