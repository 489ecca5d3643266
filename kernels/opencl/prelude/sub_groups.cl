// sub_groups: what the work-items of a sub-group, its lanes, read of each other's registers, 32 bits at a time.
//
// With SUB_GROUP = 32 and work-groups of 64, work-item 40 has this_sub_group() = 1 and this_lane() = 8. Where each lane passes its own
// number, shuffled(x, 3) is 3 in all lanes, and shuffled_down(x, 16) is 24 in lane 8, and any number in lanes 16 to 31. An acc_t of
// 16 bytes takes 4 shuffles.
#include "types.cl"
#include "ptx.cl"

// The device has Intel's extension or takes NVIDIA's instructions (gemmport.contracts.sub_groups). All lanes must take part in a shuffle, and
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
#define SYNC_SUB_GROUP() WARP_SYNC()
inline int this_sub_group(void) { return this_item() / SUB_GROUP; }
inline int this_lane(void) { return this_item() % SUB_GROUP; }
inline uint shuffled_word(uint x, int lane)
{
    uint y;
    WARP_SHUFFLE(y, x, lane);
    return y;
}
inline uint shuffled_down_word(uint x, int offset)
{
    uint y;
    WARP_SHUFFLE_DOWN(y, x, offset);
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
