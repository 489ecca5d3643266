// reduce: a group adds up its share of the elements and leaves one sum; the sums of all groups are reduced again, until one is
// left. TREE says how the work-items of a group, with a sum each, come to one, which item 0 returns.
#include "arithmetic.cl"
#include "sub_groups.cl"

#if TREE_DIVERGENT
// Neighbours, then neighbouring pairs, fours, eights. Items at work lie ever further apart: in no warp do all of them work, and
// until the last steps no warp can rest.
#define SUMS ITEMS
inline acc_t group_sum(acc_t sum, int item, __local acc_t *sums)
{
    sums[item] = sum;
    #pragma unroll 1
    for (int apart = 1; apart < ITEMS; apart *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE); // the sums of the step before are complete
        if (item % (2 * apart) == 0)
            sums[item] = sum_of(sums[item], sums[item + apart]);
    }
    return sums[item];
}

#elif TREE_INTERLEAVED
// The same sums, by items side by side: whole warps work, and whole warps rest. But what a warp reads lies ever further apart,
// and soon in one bank of local memory.
#define SUMS ITEMS
inline acc_t group_sum(acc_t sum, int item, __local acc_t *sums)
{
    sums[item] = sum;
    #pragma unroll 1
    for (int apart = 1; apart < ITEMS; apart *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE); // the sums of the step before are complete
        const int left = item * 2 * apart;
        if (left < ITEMS) {
            sum = sum_of(sums[left], sums[left + apart]);
            sums[left] = sum;
        }
    }
    return sum; // of item 0, whose left is always 0
}

#elif TREE_SEQUENTIAL
// The lower half of the sums and the upper half: items side by side read sums side by side, from all banks.
#define SUMS ITEMS
inline acc_t group_sum(acc_t sum, int item, __local acc_t *sums)
{
    sums[item] = sum;
    #pragma unroll 1
    for (int half_of_them = ITEMS / 2; half_of_them > 0; half_of_them /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE); // the sums of the step before are complete
        if (item < half_of_them)
            sums[item] = sum_of(sums[item], sums[item + half_of_them]);
    }
    return sums[item];
}

#elif TREE_UNROLLED_WARP || TREE_UNROLLED
// The same halves, until one sub-group adds up the rest: it waits for its own lanes alone, which do not run in step of themselves
// (on NVIDIA's GPUs not since Volta). The compiler writes out these last steps without a loop; of TREE_UNROLLED, all steps.
#define SUMS ITEMS
inline acc_t group_sum(acc_t sum, int item, __local acc_t *sums)
{
    sums[item] = sum;
#if TREE_UNROLLED
    #pragma unroll
#else
    #pragma unroll 1
#endif
    for (int half_of_them = ITEMS / 2; half_of_them >= SUB_GROUP; half_of_them /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE); // the sums of the step before are complete
        if (item < half_of_them)
            sums[item] = sum_of(sums[item], sums[item + half_of_them]);
    }
    if (this_sub_group() == 0) {
        #pragma unroll
        for (int half_of_them = SUB_GROUP / 2; half_of_them > 0; half_of_them /= 2) {
            SYNC_SUB_GROUP(); // the sums of the step before are complete
            if (item < half_of_them)
                sums[item] = sum_of(sums[item], sums[item + half_of_them]);
        }
    }
    return sums[item];
}

#elif TREE_SHUFFLE
// Lanes read each other's registers: local memory only takes the sums from sub-group to sub-group.
#define SUMS (ITEMS / SUB_GROUP)
inline acc_t sub_group_sum(acc_t sum) // complete in lane 0
{
    #pragma unroll
    for (int half_of_them = SUB_GROUP / 2; half_of_them > 0; half_of_them /= 2)
        sum = sum_of(sum, shuffled_down(sum, half_of_them));
    return sum;
}
inline acc_t group_sum(acc_t sum, int item, __local acc_t *sums)
{
    sum = sub_group_sum(sum);
    if (this_lane() == 0)
        sums[this_sub_group()] = sum;
    barrier(CLK_LOCAL_MEM_FENCE); // all sub-groups have left theirs
    sum = ACC_ZERO;
    if (this_sub_group() == 0) {
        #pragma unroll
        for (int s = 0; s < SUMS; s += SUB_GROUP)
            sum = sum_of(sum, s + item < SUMS ? sums[s + item] : ACC_ZERO);
        sum = sub_group_sum(sum);
    }
    return sum;
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) SUB_GROUP_KERNEL
void reduce(__global const in_t *source, index_t count, __global acc_t *target)
{
    __local acc_t sums[SUMS];
    const int item = this_item();

    const index_t first = (index_t)get_group_id(0) * (ITEMS * EACH);
    const int elements = (int)min(count - first, (index_t)(ITEMS * EACH)); // of this group
    source += first;

    // EACH elements per work-item, ITEMS apart: those side by side read along memory. Of one each, half of the work-items add
    // nothing; with many, the tree hardly matters.
    acc_t sum = ACC_ZERO;
    #pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const int i = e * ITEMS + item;
        sum = sum_of(sum, i < elements ? load(source + i) : ACC_ZERO);
    }

    sum = group_sum(sum, item, sums);
    if (item == 0)
        target[get_group_id(0)] = sum;
}
