// sub_groups: what the threads of a warp, its lanes, read of each other's registers, 32 bits at a time.
//
// With SUB_GROUP = 32 and blocks of 64, thread 40 has this_sub_group() = 1 and this_lane() = 8. Where each lane passes its own
// number, shuffled(x, 3) is 3 in all lanes, and shuffled_down(x, 16) is 24 in lane 8, and any number in lanes 16 to 31. An acc_t of
// 16 bytes takes 4 shuffles.
#include "types.cu"

// All lanes must take part in a shuffle, and in SYNC_SUB_GROUP, after which lanes see what others wrote to shared memory. this_item() counts the
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
