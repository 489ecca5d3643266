// shuffle: as register_tiled, but A does not pass through local memory. The work-items that share WPTM rows are a team, lanes side
// by side of one sub-group: each holds some of the rows' elements in registers, where the others read them.
#include "products.cl"
#include "ptx.cl"
#include "sub_groups.cl"

#define RTSM (TSM / WPTM) // teams: work-items along the rows of the tile
#define RTSN (TSN / WPTN) // work-items of a team, along its columns
#define ITEMS (RTSM * RTSN)
#define LOADS(elements) (((elements) + ITEMS - 1) / ITEMS) // of each, to bring a tile together

// A team's elements of A are counted along memory, whichever way it is stored; they are dealt out to its lanes in turn.
#define HELD (WPTM * TSK / RTSN) // by each
#if A_RUNS_ALONG_K
#define ROW_OF(e) ((e) / TSK)
#define TERM_OF(e) ((e) % TSK)
#define NUMBER_OF(row, term) ((row) * TSK + (term))
#else
#define ROW_OF(e) ((e) % WPTM)
#define TERM_OF(e) ((e) / WPTM)
#define NUMBER_OF(row, term) ((term) * WPTM + (row))
#endif

// Element e of the team, for each of its lanes: out of `held` of the lane that has it. All lanes take part, also those whose rows
// are beyond the edge.
#if USE_SHUFFLE
#define ELEMENT_OF_TEAM(e) shuffled(held[(e) / RTSN], this_lane() - x + (e) % RTSN)
#else
#define ELEMENT_OF_TEAM(e) a_tile[y][e]
#endif

// Nobody writes A and B while the kernel runs: NVIDIA's GPUs may read them through the cache of such data.
#if USE_LDG
inline acc_t load_read_only(__global const in_t *p)
{
    union { in_t stored; uint words[4]; } x;
    if (sizeof(in_t) == 1)
        LOAD_READ_ONLY_1(x.words, p);
    else if (sizeof(in_t) == 2)
        LOAD_READ_ONLY_2(x.words, p);
    else if (sizeof(in_t) == 4)
        LOAD_READ_ONLY_4(x.words, p);
    else if (sizeof(in_t) == 8)
        LOAD_READ_ONLY_8(x.words, p);
    else
        LOAD_READ_ONLY_16(x.words, p);
    return to_sum(x.stored);
}
#define load(p) load_read_only(p) // in LOAD_A and LOAD_B
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) SUB_GROUP_KERNEL
void shuffling(GEMM_ARGUMENTS)
{
    __local acc_t b_tile[TSK][TSN + PAD];
#if !USE_SHUFFLE
    __local acc_t a_tile[RTSM][WPTM * TSK + PAD]; // [team][element]
#endif

    const tile_t tile = this_tile(TSM, TSN, m, n);
    const int item = this_item();
    // A team that is a whole sub-group says so: then compilers for CPUs see that its lanes lie side by side.
    const int x = RTSN == SUB_GROUP ? this_lane() : item % RTSN;
    const int y = RTSN == SUB_GROUP ? this_sub_group() : item / RTSN;
    SELECT_BATCH(tile.batch);

    acc_t sum[WPTM][WPTN];
    #pragma unroll
    for (int r = 0; r < WPTM; ++r)
        #pragma unroll
        for (int c = 0; c < WPTN; ++c)
            sum[r][c] = ACC_ZERO;

    int start = 0;
    do {
        // Each team brings the elements of its rows, and keeps them.
        acc_t held[HELD];
        #pragma unroll
        for (int h = 0; h < HELD; ++h) {
            const int e = h * RTSN + x;
            const int row = y * WPTM + ROW_OF(e);
            const int term = TERM_OF(e);
            held[h] = INSIDE(tile.row + row < m && start + term < k)
                ? LOAD_A(tile.row + row, start + term) : ACC_ZERO;
#if !USE_SHUFFLE
            a_tile[y][e] = held[h];
#endif
        }
        // All work-items together bring the tile of B, which all teams read.
        #pragma unroll
        for (int l = 0; l < LOADS(TSN * TSK); ++l) {
            const int e = l * ITEMS + item;
            if ((TSN * TSK) % ITEMS != 0 && e >= TSN * TSK)
                break;
            const int column = B_RUNS_ALONG_K ? e / TSK : e % TSN;
            const int term = B_RUNS_ALONG_K ? e % TSK : e / TSN;
            b_tile[term][column] = INSIDE(start + term < k && tile.column + column < n)
                ? LOAD_B(start + term, tile.column + column) : ACC_ZERO;
        }
        barrier(CLK_LOCAL_MEM_FENCE); // the tiles are complete

        // Per term: a column of A from the team, a row of B from local memory, then their outer product. Written out for every
        // term, so that it is known which register is meant: registers have no addresses.
        #pragma unroll
        for (int p = 0; p < TSK; ++p) {
            acc_t a[WPTM], b[WPTN];
            #pragma unroll
            for (int r = 0; r < WPTM; ++r)
                a[r] = ELEMENT_OF_TEAM(NUMBER_OF(r, p));
            #pragma unroll
            for (int c = 0; c < WPTN; ++c)
                b[c] = b_tile[p][c * RTSN + x];
            #pragma unroll
            for (int r = 0; r < WPTM; ++r)
                #pragma unroll
                for (int c = 0; c < WPTN; ++c)
                    sum[r][c] = mul_add(a[r], b[c], sum[r][c]);
        }
        barrier(CLK_LOCAL_MEM_FENCE); // nobody reads them any more
    } while ((start += TSK) < k); // once without terms, too: PoCL runs on twice after a loop that is left out (pocl-skipped-loop)

    #pragma unroll
    for (int r = 0; r < WPTM; ++r) {
        const int i = tile.row + y * WPTM + r;
        #pragma unroll
        for (int c = 0; c < WPTN; ++c) {
            const int j = tile.column + c * RTSN + x;
            if (INSIDE(i < m && j < n))
                store(D + i * ld_d + j, C + i * ld_c + j, sum[r][c], alpha, beta);
        }
    }
}
