// wgmma: products by the matrix unit of Hopper, compute capability 9.0, that four warps ask together. Each group takes one tile of D after the
// other. One of its work-items has the copy engine bring tiles of A and B to local memory, as far ahead as there are stages for; four warps at a
// time multiply what has come, WM rows of the tile each, and read both operands from there. Barriers in local memory tell who waits
// for whom: a stage is full once all its bytes have come, and free once each warp is done with it. So the next tile is on its way while
// this one goes, by way of local memory of its own, to D. What the unit adds up in fewer digits than a float has (PROMOTES) is added to
// a float after each step. Where tiles do not fill the compute units evenly, the last of them are cut
// along k.
//
// With SOON, loops that need not be written out are not, so that the program compiles in half of the time: for first calls. The bits are
// the same.
#include "hopper.cl"
#include "runs.cl"
#include "clusters.cl"
#include "early.cl"
#include "scales.cl"

#define WARP 32
#define GROUP (4 * WARP) // work-items that ask the unit together
#define MULTIPLIERS (TSM / WM * GROUP)
#define THREADS (MULTIPLIERS + GROUP) // the last group brings tiles
#define UNIT_LINES 64 // rows of A of one product of the unit
#define ROW_BLOCKS (WM / UNIT_LINES)
#define ROW_BYTES 128 // of what the copy engine brings; its eight pieces of 16 bytes change places
#define TSK (ROW_BYTES / ELEMENT_BYTES)
#define TURN_BYTES 32 // of a line, that the unit adds up at once
#define TURNS (ROW_BYTES / TURN_BYTES) // of the unit, in a step
#define EIGHT_BYTES (8 * ROW_BYTES) // from eight lines, or terms, to the next eight
#define BLOCK_BYTES (UNIT_LINES * ROW_BYTES) // from 64 lines to the next 64, along k and across
#if ELEMENT_BYTES == 4
#define ACROSS_LINES TSK // of an operand that lies across k, that are copied at once, and their bytes
#define ACROSS_BYTES (TSK * ROW_BYTES)
#else
#define ACROSS_LINES UNIT_LINES
#define ACROSS_BYTES BLOCK_BYTES
#endif
#define TILE_A_BYTES (TSM * ROW_BYTES)
#define STAGE_BYTES ((TSM + TSN) * ROW_BYTES)
#define BLOCK_SUMS (UNIT_LINES * TSN / GROUP) // of a work-item, in one product of the unit
#define SUMS (ROW_BLOCKS * BLOCK_SUMS)
#define LOCAL_BYTES (STAGES * (STAGE_BYTES + 16) + MULTIPLIERS / WARP * STAGED * 4) // that are declared: of 4 bytes is each sum
#define MUL_ADD PASTE(PASTE(PASTE(GROUP_MUL_ADD_, UNIT_TYPE), _), TSN)
#define MUL_ADD_LINES PASTE(PASTE(PASTE(LINES_MUL_ADD_, UNIT_TYPE), _), TSN)
#if WHOLE_SUMS
typedef uint2 pair_t; // two sums
#define TOUCH TOUCH_WHOLE_SUM
#else
typedef float2 pair_t;
#define TOUCH TOUCH_SUM
#endif

// As the driver encodes it, aligned as the copy engine wants it.
typedef struct { ulong word[16]; } __attribute__((aligned(64))) map_t;
typedef ulong barrier_t;

// A part of the work of a group: so many steps of a tile, from the first one on that is this group's.
typedef struct { int number, first, last, left; } part_t;
inline part_t part_of(int number, int first, int left, int steps)
{
    part_t part;
    part.number = number;
    part.first = first;
    part.last = SHARES ? min(first + left, steps) : steps;
    part.left = left; // steps of this tile and those behind it; where tiles are not shared, tiles
    return own_steps(part, steps);
}
#if IN_TURNS // each tile is shared, by equally many: they take its steps in turns, so that what they read at one time lies side by side
#define TERM_OF(step) ((part.first + ((step) - part.first) * (sharers / shared)) * TSK)
#else
#define TERM_OF(step) step * TSK
#endif
inline part_t first_part(int whole, int shared, int sharers, int steps)
{
    const int number = FIRST_NUMBER;
#if IN_TURNS
    const int each = sharers / shared, turn = number % each;
    return part_of(whole + number / each, turn, (steps - turn + each - 1) / each, steps);
#elif SHARES
    const int next = number + 1;
    const int first = first_step(number, sharers, shared, steps);
    const int tiles = first_tile(next, sharers, shared) - first_tile(number, sharers, shared);
    return part_of(
        whole + first_tile(number, sharers, shared), first, first_step(next, sharers, shared, steps) - first + tiles * steps, steps);
#else
    return part_of(number, 0, whole - number, steps);
#endif
}
inline part_t next_part(part_t part, int steps)
{
#if SHARES
    return part_of(part.number + 1, 0, part.left - (part.last - part.first), steps);
#else
    return part_of(part.number + NUMBERS, 0, part.left - NUMBERS, steps);
#endif
}

// The stages follow each other in turns. A stage's barriers are in the phase that its turn has by then, whose parity is kept here.
typedef struct { int number, parity; } stage_t;
inline stage_t next_stage(stage_t stage)
{
    const int wraps = stage.number == STAGES - 1;
    stage.number = wraps ? 0 : stage.number + 1;
    stage.parity ^= wraps;
    return stage;
}

// OpenCL tells the host no address of memory. What the host has seen of earlier calls (backends/_addresses.py) it puts into the maps, whose first
// word is the address (backends/_tensormaps.py). Where that is right, the copy engine reads the maps among the kernel's parameters.
// Elsewhere the work-item that has tiles brought puts the address in, and the map where the copy engine reads it.
#define HAS_ADDRESS(map, begin) ((map).word[0] == (ulong)(begin))
inline __attribute__((always_inline)) void place_map(__global map_t *to, map_t map, __global const in_t *begin)
{
    map.word[0] = (ulong)begin;
    *to = map;
}

// Has so many lines of an operand, and TSK of its terms, brought to local memory. x and y are where op(A) or op(B) begins in the map.
inline __attribute__((always_inline)) void bring(
    __local char *to, __global const map_t *map, __local barrier_t *bar, int lines, int along_k, int x, int y, int line, int term, int batch)
{
    if (along_k)
        COPY_TILE(to, map, bar, x + term, y + line, batch);
    else
        #pragma unroll
        for (int b = 0; b < lines / ACROSS_LINES; ++b)
            COPY_TILE(to + b * ACROSS_BYTES, map, bar, x + line + b * ACROSS_LINES, y + term, batch);
}

#if ROUNDS_A
// What a work-item has of 64 lines of A, for the unit: for each of its turns, two terms of each of two lines of the warp's 16 (hopper.cl). Pieces of
// 16 bytes have changed places, so that along k no two of those that a warp reads at once share a bank. Across k each bank is read twice: of
// two pieces of four terms each, XOR puts those of one term where those of its neighbour are.
#define PIECE_AT(row, piece) ((row) * ROW_BYTES + ((piece) ^ (row) % 8) * 16)
#define WORD_AT(line, term) \
    (A_RUNS_ALONG_K ? PIECE_AT(line, (term) / 4) + (term) % 4 * 4 \
                    : (line) / TSK * ACROSS_BYTES + PIECE_AT(term, (line) % TSK / 4) + (line) % 4 * 4)
inline __attribute__((always_inline)) void fetch_lines(unsigned (*lines)[4], __local const char *from, int warp, int lane)
{
    #pragma unroll
    for (int turn = 0; turn < TURNS; ++turn)
        #pragma unroll
        for (int w = 0; w < 4; ++w) {
            const unsigned line = warp * 16 + lane / 4 + w % 2 * 8, term = turn * 8 + lane % 4 + w / 2 * 4;
            lines[turn][w] = *(__local const unsigned *)(from + WORD_AT(line, term));
        }
}
#endif

// What tells the unit of an operand: of the lines that begin at a place, the terms of one of its turns.
#define OPERAND(place, turn, along_k) \
    MATRIX_DESCRIPTOR((place) + (turn) * ((along_k) ? TURN_BYTES : TURN_BYTES / ELEMENT_BYTES * ROW_BYTES), \
                      (along_k) ? 16 : BLOCK_BYTES, EIGHT_BYTES)

// Before each turn of a loop that is not written out, and behind the last: of one turn the compiler does not see that its registers are the
// unit's.
#if SOON
#define FENCE_TURN() GROUP_FENCE()
#else
#define FENCE_TURN()
#endif

// Behind the products of a step: waits until none but these are under way. Those of the step before have read their stage then, which is free.
// `if_any` is `condition &&` where there may be no step before.
#define FREE_STAGE_BEFORE(if_any) \
    GROUP_WAIT(1);                \
    if (if_any TELLS(lane))       \
        TELL_FREE(free + before); \
    before = stage.number;        \
    stage = next_stage(stage)

#if ROUNDS_A
// Waits for a stage, and begins its products: of A by way of registers, `lines`, which stay as they are until the products were awaited. The
// terms of a turn are rounded while the products of the turn before are under way.
inline __attribute__((always_inline)) void multiply_stage(
    acc_t (*sum)[BLOCK_SUMS], unsigned (*lines)[TURNS][4], __local const char *tiles, __local barrier_t *full, stage_t stage, int group,
    int item, int adds)
{
    __local const char *const a = tiles + stage.number * STAGE_BYTES + group * ROW_BLOCKS * BLOCK_BYTES;
    __local const char *const b = tiles + stage.number * STAGE_BYTES + TILE_A_BYTES;
    BARRIER_WAIT(full + stage.number, stage.parity);
    #pragma unroll
    for (int r = 0; r < ROW_BLOCKS; ++r)
        fetch_lines(lines[r], a + r * BLOCK_BYTES, item % GROUP / WARP, item % WARP);
    #pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        #pragma unroll
        for (int w = 0; w < 4 * ROW_BLOCKS; ++w)
            ROUND_TO_TF32(lines[w / 4][turn][w % 4]);
        GROUP_FENCE();
        #pragma unroll
        for (int r = 0; r < ROW_BLOCKS; ++r)
            MUL_ADD_LINES(sum[r], lines[r][turn], OPERAND(b, turn, 1), turn > 0 || adds);
    }
    GROUP_COMMIT();
}
#endif

#if SCALES
// The scales of the columns of a run, and a run times its row's and these: what lies beyond D has none that could be read.
inline __attribute__((always_inline)) wide_t scales_of_columns(scales_t scales, int column, int present)
{
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = w * APART < present ? column_scale(scales, column + w * APART) : 0;
    return x;
}
inline __attribute__((always_inline)) wide_t times_scales(wide_t sums, acc_t of_row, wide_t of_columns)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(sums, w) = ELEMENT(sums, w) * of_row * ELEMENT(of_columns, w);
    return sums;
}
#endif

// Stores 16 rows of a warp's tile, 64 columns of them. A work-item's sums of eight columns are those of rows lane / 4 and lane / 4 + 8, each in
// columns lane % 4 * 2 and the next (hopper.cl). The warp has local memory of its own, `own`, in which runs of eight columns change
// places, so that of 4 rows no two share a bank.
#define AT_ONCE 64
#define STAGED (WARP / 2 * AT_ONCE)
#define STAGED_AT(row, column) ((row) * AT_ONCE + ((column) ^ (row) % 4 * 8))
#define RUNS_N (AT_ONCE / WIDTH)
#define COLUMN_OF(run) ((run) % RUNS_N * (APART > 1 ? 1 : WIDTH)) // its first
#define STEP (WARP / RUNS_N) // rows that a warp stores at once
#define RUNS (WARP / 2 / STEP) // of a lane
#if SCALES
#define READ_AT_ONCE 2 // runs: registers hold the scales of their columns, too
#elif SOON
#define READ_AT_ONCE 1
#else
#define READ_AT_ONCE (!WHOLE_SUMS ? 4 : OUT_RUN_BYTES < 16 ? 1 : 2) // short numbers are taken apart in more registers
#endif
// A run of a row. Where rows of D are not aligned, its two numbers lie half of the columns apart, so that neighbouring lanes store
// neighbours: one store writes all of a sector.
inline __attribute__((always_inline)) wide_t staged_run(__local const acc_t *own, int row, int column)
{
#if APART > 1
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = own[STAGED_AT(row, column + w * APART)];
    return x;
#else
    return *(__local const wide_t *)(own + STAGED_AT(row, column));
#endif
}
#if defined(STORES_PAIRS) && ALIGNED_D && WIDTH == 8 && !SCALES
#define PACKS 1
// Where C is not read: numbers are rounded on their way to local memory, where they take half of the room, and of the time. Runs of 16
// bytes change places there, so that of 8 rows no two share a bank.
#define PACKED_AT(row, run) ((row) * RUNS_N + ((run) ^ (row) % RUNS_N))
inline __attribute__((always_inline)) void store_packed(
    __local acc_t *own, const acc_t *sum, uint lane, int row, int column, __global out_t *d, index_t ld_d, acc_t alpha, int m, int n)
{
    #pragma unroll
    for (int x = 0; x < AT_ONCE / 8; ++x)
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            uint pair;
            PASTE(PAIR_OF_, OUT)(pair, scaled(alpha, sum[x * 4 + h * 2]), scaled(alpha, sum[x * 4 + h * 2 + 1]));
            ((__local uint *)own)[PACKED_AT(lane / 4 + h * 8, x) * 4 + lane % 4] = pair;
        }
    WARP_SYNC(); // the rows are complete
    const int i = row + (int)(lane / RUNS_N), j = column + (int)COLUMN_OF(lane); // of the first run
    d += i * ld_d + j;
    #pragma unroll
    for (int r = 0; r < RUNS; ++r) {
        out_run_t run = ((__local out_run_t *)own)[PACKED_AT(lane / RUNS_N + r * STEP, lane % RUNS_N)];
        const int present = PRESENT(i + r * STEP < m, n - j);
        if (present >= WIDTH)
            *(__global out_run_t *)d = run;
        else
            #pragma unroll
            for (int w = 0; w < WIDTH; ++w)
                if (w < present)
                    d[w] = RUN_ELEMENT(const out_t, run, w);
        d += STEP * ld_d;
        TOUCH_PLACE(d);
    }
}
#endif
inline __attribute__((always_inline)) void store_columns(
    __local acc_t *own, const acc_t *sum, int lane, int row, int column, __global out_t *d, index_t ld_d, __global const out_t *c,
    index_t ld_c, acc_t alpha, acc_t beta, int m, int n, scales_t scales)
{
    TOUCH_NUMBER(lane); // without this the compiler keeps the addresses of all columns at once, and registers run out
    WARP_SYNC(); // no lane reads what was there any more
#if PACKS
    if (LEAVES_C_OUT(beta)) {
        store_packed(own, sum, lane, row, column, d, ld_d, alpha, m, n);
        return;
    }
#endif
    #pragma unroll
    for (int x = 0; x < AT_ONCE / 8; ++x)
        #pragma unroll
        for (int h = 0; h < 2; ++h)
            *(__local pair_t *)(own + STAGED_AT(lane / 4 + h * 8, x * 8 + lane % 4 * 2)) = (pair_t)(sum[x * 4 + h * 2], sum[x * 4 + h * 2 + 1]);
    WARP_SYNC(); // the rows are complete
    const int i = row + lane / RUNS_N, j = column + COLUMN_OF(lane); // of the first run
    d += i * ld_d + j;
    c += i * ld_c + j;
#if SCALES
    const wide_t of_columns = scales_of_columns(scales, j, PRESENT(1, n - j));
#endif
    // C is read before D, which may be C, is written there; as many runs at once as registers are left for.
#if SOON
    #pragma unroll 1
#else
    #pragma unroll
#endif
    for (int first = 0; first < RUNS; first += READ_AT_ONCE) {
        out_run_t before[READ_AT_ONCE] = {(out_run_t)0};
        if (!LEAVES_C_OUT(beta))
            #pragma unroll
            for (int x = 0; x < READ_AT_ONCE; ++x) {
                before[x] = read_before(c, 0, PRESENT(i + (first + x) * STEP < m, n - j));
                c += STEP * ld_c;
                TOUCH_PLACE(c);
            }
        #pragma unroll
        for (int x = 0; x < READ_AT_ONCE; ++x) {
            const int below = i + (first + x) * STEP;
            wide_t sums = staged_run(own, lane / RUNS_N + (first + x) * STEP, COLUMN_OF(lane));
#if SCALES
            sums = times_scales(sums, PRESENT(below < m, 1) > 0 ? row_scale(scales, below) : 0, of_columns);
#endif
            store_over(d, before[x], sums, alpha, beta, 0, PRESENT(below < m, n - j));
            d += STEP * ld_d;
            TOUCH_PLACE(d);
        }
    }
}

// Has the lines of a tile of C set out for the second-level cache, to be read there when the products are done.
#define LINES_OF_C ((TSN * (int)sizeof(out_t) + 127) / 128)
inline void fetch_ahead(__global const out_t *c, index_t ld_c, int row, int column, int m, int n, int item)
{
    #pragma unroll 1
    for (int line = item; line < TSM * LINES_OF_C; line += MULTIPLIERS) {
        const int i = row + line / LINES_OF_C, j = column + line % LINES_OF_C * (128 / (int)sizeof(out_t));
        if (i < m && j < n)
            FETCH_LINE(c + i * ld_c + j);
    }
}

#define PART(sharer, has_first, s, item) ((((index_t)(sharer) * 2 + (has_first)) * SUMS + (s)) * MULTIPLIERS + (item))

__kernel IN_CLUSTERS RESIDENT(THREADS, GROUPS)
void wgmma(
    const map_t map_a, const map_t map_b, GEMM_ARGUMENTS, int x_a, int y_a, int x_b, int y_b, __global acc_t *parts, int whole, int shared,
    int sharers, __global map_t *maps SCALE_ARGUMENTS)
{
    __local char *tiles;
    DECLARE_LOCAL(tiles, LOCAL_BYTES);
    __local acc_t *const staged = (__local acc_t *)(tiles + STAGES * STAGE_BYTES);
    __local barrier_t *const full = (__local barrier_t *)(staged + MULTIPLIERS / WARP * STAGED);
    __local barrier_t *const free = full + STAGES;
    const int item = (int)get_local_id(0);
    const int lane = item % WARP;
    int group;
    WARP_SHUFFLE(group, item / GROUP, 0); // so that the compiler knows it to be one for all lanes
    const int steps = max((k + TSK - 1) / TSK, 1); // of a tile
    const int known = HAS_ADDRESS(map_a, A) && HAS_ADDRESS(map_b, B);
    __global map_t *const own_a = maps + get_group_id(0) * 2;
    __global map_t *const own_b = own_a + 1;
    LET_NEXT()
    if (item == MULTIPLIERS && !known) {
        place_map(own_a, map_a, A);
        place_map(own_b, map_b, B);
    }
    if (item == 0) {
        #pragma unroll
        for (int s = 0; s < STAGES; ++s) {
            BARRIER_INIT(full + s, 1);
            BARRIER_INIT(free + s, FREEING);
        }
        FENCE_BARRIERS();
    }
    ALL_MEET(); // the barriers are there

    stage_t stage = {0, 0};
    part_t part = first_part(whole, shared, sharers, steps);
    if (group == TSM / WM) {
#if MANY_REGISTERS
        REGISTERS_DOWN(FEW_REGISTERS);
#endif
        if (item == MULTIPLIERS && k > 0) {
            __global const map_t *a = own_a, *b = own_b;
            if (known) {
                PARAMETER_PLACE(a, "wgmma_param_0");
                PARAMETER_PLACE(b, "wgmma_param_1");
            } else
                FENCE_MAPS(own_a, own_b);
            PREFETCH_MAP(a);
            PREFETCH_MAP(b);
            AWAIT_BEFORE()
            for (; part.left > 0; part = next_part(part, steps)) {
                const tile_t tile = own_tile(part.number, m, n);
                for (int step = part.first; step < part.last; ++step) {
                    __local char *const to = tiles + stage.number * STAGE_BYTES;
                    __local barrier_t *const bar = full + stage.number;
                    BARRIER_WAIT(free + stage.number, stage.parity ^ 1); // at once in the first turn
                    BARRIER_EXPECT(bar, STAGE_BYTES);
                    BRING_A(to, a, bar, TSM, A_RUNS_ALONG_K, x_a, y_a, tile.row, TERM_OF(step), BATCHED_A * tile.batch);
                    BRING_B(
                        to + TILE_A_BYTES, b, bar, TSN, B_RUNS_ALONG_K, x_b, y_b, tile.column, TERM_OF(step),
                        BATCHED_B * tile.batch);
                    stage = next_stage(stage);
                }
            }
        }
    } else {
#if MANY_REGISTERS
        REGISTERS_UP(MANY_REGISTERS);
#endif
        acc_t sum[ROW_BLOCKS][BLOCK_SUMS];
        #pragma unroll
        for (int s = 0; s < SUMS; ++s)
            sum[s / BLOCK_SUMS][s % BLOCK_SUMS] = ACC_ZERO; // that of no terms
        for (; part.left > 0; part = next_part(part, steps)) {
#if !SHARES
            if (!LEAVES_C_OUT(beta)) {
                const tile_t ahead = own_tile(part.number, m, n);
                fetch_ahead(C + offset_c + ahead.batch * stride_c, ld_c, ahead.row, ahead.column, m, n, item);
            }
#endif
#if PROMOTES
            #pragma unroll
            for (int s = 0; s < SUMS; ++s)
                sum[s / BLOCK_SUMS][s % BLOCK_SUMS] = ACC_ZERO;
            for (int step = part.first; step < part.last && k > 0; ++step) {
                __local const char *const a = tiles + stage.number * STAGE_BYTES + group * ROW_BLOCKS * BLOCK_BYTES;
                __local const char *const b = tiles + stage.number * STAGE_BYTES + TILE_A_BYTES;
                acc_t few[BLOCK_SUMS]; // sums of this step alone, of one row block after the other
                BARRIER_WAIT(full + stage.number, stage.parity);
                #pragma unroll
                for (int r = 0; r < ROW_BLOCKS; ++r) {
                    GROUP_FENCE();
#if SOON
                    #pragma unroll 1
#else
                    #pragma unroll
#endif
                    for (int turn = 0; turn < TURNS; ++turn) {
                        FENCE_TURN();
                        MUL_ADD(few, OPERAND(a + r * BLOCK_BYTES, turn, 1), OPERAND(b, turn, 1), turn > 0, 0, 0);
                    }
                    FENCE_TURN();
                    GROUP_COMMIT();
                    GROUP_WAIT(0);
                    if (r == ROW_BLOCKS - 1 && TELLS(lane))
                        TELL_FREE(free + stage.number);
                    #pragma unroll
                    for (int s = 0; s < BLOCK_SUMS; ++s) { // the other items' products are under way meanwhile
                        TOUCH(few[s]);
                        sum[r][s] = sum_of(sum[r][s], few[s]);
                        TOUCH(sum[r][s]); // so that registers hold no sums of two row blocks
                    }
                }
                stage = next_stage(stage);
            }
#elif ROUNDS_A
            if (k > 0 && part.first < part.last) {
                unsigned even[ROW_BLOCKS][TURNS][4], odd[ROW_BLOCKS][TURNS][4]; // of steps in turns: the products of two are under way
                int before = 0; // the stage of the step before
                for (int step = part.first;;) {
                    multiply_stage(sum, even, tiles, full, stage, group, item, step > part.first);
                    FREE_STAGE_BEFORE(step > part.first &&);
                    if (++step == part.last)
                        break;
                    multiply_stage(sum, odd, tiles, full, stage, group, item, 1);
                    FREE_STAGE_BEFORE();
                    if (++step == part.last)
                        break;
                }
                GROUP_WAIT(0);
                if (TELLS(lane))
                    TELL_FREE(free + before);
            }
            #pragma unroll
            for (int s = 0; s < SUMS; ++s)
                TOUCH(sum[s / BLOCK_SUMS][s % BLOCK_SUMS]);
#else
            if (k > 0) {
                int before = 0; // the stage of the step before
                for (int step = part.first; step < part.last; ++step) {
                    __local const char *const a = tiles + stage.number * STAGE_BYTES + group * ROW_BLOCKS * BLOCK_BYTES;
                    __local const char *const b = tiles + stage.number * STAGE_BYTES + TILE_A_BYTES;
                    BARRIER_WAIT(full + stage.number, stage.parity);
                    GROUP_FENCE();
#if SOON
                    #pragma unroll 1
#else
                    #pragma unroll
#endif
                    for (int turn = 0; turn < TURNS; ++turn) {
                        FENCE_TURN();
                        #pragma unroll
                        for (int r = 0; r < ROW_BLOCKS; ++r)
                            MUL_ADD(
                                sum[r], OPERAND(a + r * BLOCK_BYTES, turn, A_RUNS_ALONG_K), OPERAND(b, turn, B_RUNS_ALONG_K),
                                turn > 0 || step > part.first, !A_RUNS_ALONG_K, !B_RUNS_ALONG_K);
                    }
                    FENCE_TURN();
                    GROUP_COMMIT();
                    FREE_STAGE_BEFORE(step > part.first &&);
                }
                GROUP_WAIT(0);
                if (TELLS(lane))
                    TELL_FREE(free + before);
            }
            #pragma unroll
            for (int s = 0; s < SUMS; ++s)
                TOUCH(sum[s / BLOCK_SUMS][s % BLOCK_SUMS]);
#endif
#if SHARES // no sharer has all of a tile: there are more of them than tiles
            #pragma unroll
            for (int s = 0; s < SUMS; ++s)
                parts[PART(get_group_id(0), part.first == 0, s, item)] = sum[s / BLOCK_SUMS][s % BLOCK_SUMS];
#else
            const tile_t tile = own_tile(part.number, m, n);
            AWAIT_BEFORE()
            const scales_t scales = SCALES_OF(tile.batch);
            #pragma unroll
            for (int r = 0; r < ROW_BLOCKS; ++r)
                #pragma unroll
                for (int x = 0; x < TSN / AT_ONCE; ++x)
                    store_columns(
                        staged + item / WARP * STAGED, FINISHED(sum[r] + x * STAGED / WARP, r * (TSN / AT_ONCE) + x), lane,
                        tile.row + group * WM + r * UNIT_LINES + item % GROUP / WARP * 16, tile.column + x * AT_ONCE,
                        D + offset_d + tile.batch * stride_d, ld_d, C + offset_c + tile.batch * stride_c, ld_c, alpha, beta, m, n,
                        scales);
#endif
        }
    }
    LEAVE_TOGETHER()
}

#if SHARES
// The parts of a shared tile, added up: a group for each 16 rows and 64 columns. Each of its warps adds up the parts of some sharers in their
// order, and the first one what the others leave, in theirs.
__kernel __attribute__((reqd_work_group_size(SUMMERS * WARP, 1, 1)))
void combine(GEMM_ARGUMENTS, __global const acc_t *parts, int whole, int shared, int sharers SCALE_ARGUMENTS)
{
    __local acc_t staged[SUMMERS * STAGED] __attribute__((aligned(128)));
    const int item = (int)get_local_id(0);
    const int lane = item % WARP, summer = item / WARP;
    const int pieces = ROW_BLOCKS * (TSN / AT_ONCE); // of a work-item's sums
    const int piece = (int)get_group_id(0) % pieces;
    const int warp = (int)get_group_id(0) / pieces % (MULTIPLIERS / WARP); // whose sums they are
    const int tile_number = (int)get_group_id(0) / pieces / (MULTIPLIERS / WARP);
    const int number = tile_number / TOGETHER, rank = tile_number % TOGETHER;
    const int steps = max((k + TSK - 1) / TSK, 1);
    const int begin = first_sharer(number, sharers, shared, steps);
    const int end = last_sharer(number, sharers, shared);
    const int each = (end - begin) / SUMMERS + 1, first = begin + summer * each;

    acc_t sum[STAGED / WARP];
    #pragma unroll
    for (int s = 0; s < STAGED / WARP; ++s)
        sum[s] = ACC_ZERO;
    for (int sharer = first; sharer <= min(first + each - 1, end); ++sharer)
        #pragma unroll
        for (int s = 0; s < STAGED / WARP; ++s)
            sum[s] = sum_of(sum[s], parts[PART(sharer * TOGETHER + rank, sharer == begin, piece * (STAGED / WARP) + s, warp * WARP + lane)]);
#if SUMMERS > 1
    if (summer > 0)
        #pragma unroll
        for (int s = 0; s < STAGED / WARP; ++s)
            staged[summer * STAGED + s * WARP + lane] = sum[s];
    barrier(CLK_LOCAL_MEM_FENCE); // what the others leave is there
    if (summer > 0)
        return;
    #pragma unroll 1
    for (int other = 1; other < SUMMERS; ++other)
        #pragma unroll
        for (int s = 0; s < STAGED / WARP; ++s)
            sum[s] = sum_of(sum[s], staged[other * STAGED + s * WARP + lane]);
#endif
    const tile_t tile = ranked_tile(whole + number, rank, m, n);
    const scales_t scales = SCALES_OF(tile.batch);
    store_columns(
        staged, sum, lane,
        tile.row + warp / (GROUP / WARP) * WM + piece / (TSN / AT_ONCE) * UNIT_LINES + warp % (GROUP / WARP) * 16,
        tile.column + piece % (TSN / AT_ONCE) * AT_ONCE, D + offset_d + tile.batch * stride_d, ld_d,
        C + offset_c + tile.batch * stride_c, ld_c, alpha, beta, m, n, scales);
}
#endif
