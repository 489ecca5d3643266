// clusters: what two blocks of a cluster, which run at one time and reach each other's shared memory, share of a product of tiles (CLUSTER).
//
// With CLUSTER_A, their tiles stand side by side, and both need the same tile of A: of its 128 lines, block 0 has 0 to 63 copied to both, and
// block 1 64 to 127. With CLUSTER_B, one tile stands below the other, and they share the tile of B likewise. With CLUSTER_D, both compute
// the same tile, each half of its steps: of 5, block 0 takes 0 to 2, and block 1 3 and 4. Of their sums each adds up, and stores, those of
// every second warp. Where there is no cluster, the words below say what a block does by itself.
#include "hopper.cu"
#include "shares.cu"

// A cluster computes what has one number: one tile, or two neighbours.
#if CLUSTER_A || CLUSTER_B || CLUSTER_D
#define IN_CLUSTERS __cluster_dims__(2, 1, 1)
#define TOGETHER 2 // blocks of a cluster
#define FIRST_NUMBER ((int)blockIdx.x / 2)
#define NUMBERS ((int)gridDim.x / 2)
#define OWN_RANK ((int)blockIdx.x % 2)
#define ALL_MEET() CLUSTER_BARRIER()
// A block stays while the other one may write to its shared memory, or arrive there.
#define LEAVE_TOGETHER() CLUSTER_END();
#else
#define IN_CLUSTERS
#define TOGETHER 1
#define FIRST_NUMBER (int)blockIdx.x
#define NUMBERS (int)gridDim.x
#define ALL_MEET() __syncthreads()
#define LEAVE_TOGETHER()
#endif

#if CLUSTER_A || CLUSTER_B
// The tile of the block of a rank, of a cluster that computes what has this number.
__device__ inline tile_t ranked_tile(int number, int rank, int m, int n)
{
#if CLUSTER_A // two tiles of all columns are one of half of them, rounded up
    tile_t tile = tile_of(number, m, (n + 1) / 2);
    tile.column = 2 * tile.column + rank * TSN;
#else
    tile_t tile = tile_of(number, (m + 1) / 2, n);
    tile.row = 2 * tile.row + rank * TSM;
#endif
    return tile;
}
#define own_tile(number, m, n) ranked_tile(number, OWN_RANK, m, n)
// A stage is free once the warps of both blocks are done with it, for each block's copies go to both. Two lanes tell it.
#define FREEING (2 * MULTIPLIERS / WARP)
#define TELLS(lane) (lane < 2)
#define TELL_FREE(bar) CLUSTER_ARRIVE(bar, lane)
#else
#define ranked_tile(number, rank, m, n) tile_of(number, m, n)
#define own_tile tile_of
#define FREEING MULTIPLIERS / WARP
#define TELLS(lane) lane == 0
#define TELL_FREE(bar) BARRIER_ARRIVE(bar)
#endif

#if CLUSTER_A
#define BRING_A bring_half
#else
#define BRING_A bring
#endif
#if CLUSTER_B
#define BRING_B bring_half
#else
#define BRING_B bring
#endif

#if CLUSTER_D
// The steps of a tile that are this block's. Of a single one the second block has none, in any tile: its sums stay zero.
template <class Part> __device__ inline Part own_steps(Part part, int steps)
{
    const int half = (steps + 1) / 2;
    part.first = OWN_RANK * half;
    part.last = OWN_RANK ? steps : half;
    return part;
}
#define FINISHED(own, piece) finished(own, place + (piece) * (STAGED / 4)).sum
#else
#define own_steps(part, steps) part
#define FINISHED(own, piece) own
#endif
