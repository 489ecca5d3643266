// clusters: the words by which CUDA C++ says what two groups of a cluster share of a product of tiles. OpenCL launches no clusters: here
// they say what a group does by itself. With 10 tiles and 4 groups, group 1 computes those of the numbers 1, 5 and 9: FIRST_NUMBER, and on
// by NUMBERS.
#include "hopper.cl"
#include "shares.cl"

#define IN_CLUSTERS
#define TOGETHER 1
#define FIRST_NUMBER (int)get_group_id(0)
#define NUMBERS (int)get_num_groups(0)
#define ALL_MEET() barrier(CLK_LOCAL_MEM_FENCE)
#define LEAVE_TOGETHER()

#define ranked_tile(number, rank, m, n) tile_of(number, m, n)
#define own_tile tile_of
#define own_steps(part, steps) part
#define FREEING MULTIPLIERS / WARP
#define TELLS(lane) lane == 0
#define TELL_FREE(bar) BARRIER_ARRIVE(bar)
#define BRING_A bring
#define BRING_B bring
#define FINISHED(own, piece) own
