// mma: products by the matrix unit of NVIDIA's GPUs, from compute capability 8.0 on. Tiles of A and B come to local memory as they are
// stored, 16 bytes at a time, while nobody waits for them, STAGES - 1 ahead of that which is multiplied. A warp reads what its products
// need as matrices of 8 lines of 16 bytes each, one step of the unit ahead of their use, and computes a tile of WM × WN sums. One
// barrier parts two tiles. Sums go by way of local memory to D, so that neighbours store neighbouring runs. Where tiles do not fill
// the compute units evenly, the last of them are cut along k.
#include "early.cl"
#include "ptx.cl"
#include "runs.cl"
#include "shares.cl"

#define WARP 32
#define WARPS_N (TSN / WN)
#define THREADS (TSM / WM * WARPS_N * WARP)
#define PIECE_BYTES 16 // of what is copied, and of a line of the matrices that are read, at once
#define PIECE (PIECE_BYTES / ELEMENT_BYTES) // its elements
#define AT_ONCE (2 * PIECE) // terms that the unit adds up at once
#define TURNS (TSK / AT_ONCE) // of the unit, in a step
#define LINES 16 // rows of A, or columns of B, that are read at once
#define ROW_BLOCKS (WM / LINES)
#define COLUMN_BLOCKS (WN / LINES)
#define COLUMN_EIGHTS (WN / 8) // the unit's products are of 16 rows and 8 columns
#if ELEMENT_BYTES == 4
#define TILE_A_BYTES TILE_BYTES(TSM, A_RUNS_ALONG_K)
#define STAGE_BYTES (TILE_A_BYTES + TILE_BYTES(TSN, B_RUNS_ALONG_K))
#define STAGE (STAGE_BYTES / SUM_BYTES)
#else
#define STAGE (TSK * (TSM + TSN) * ELEMENT_BYTES / SUM_BYTES) // sums that would fit where one tile of A is, and one of B behind it
#define STAGE_BYTES (TSK * (TSM + TSN) * ELEMENT_BYTES)
#define TILE_A_BYTES (TSK * TSM * ELEMENT_BYTES)
#endif
#define SUMS (ROW_BLOCKS * COLUMN_EIGHTS * 4) // of a work-item
#define MUL_ADD PASTE(WARP_MUL_ADD_, UNIT_TYPE)

// A tile of so many lines of an operand holds pieces in rows, as the operand does: a row is a line where the operand runs along k, and
// else a term. Eight rows that are read at once must lie in different banks: the pieces of a row change places by the number of the
// row, as many as 128 bytes hold. In numbers: with ELEMENT_BYTES = 2, TSK = 32 and 128 lines that run along k, a row is 4 pieces, and two
// rows are 128 bytes:
//     PIECES(128, 1) = 4
//     ROWS(128, 1) = 128
//     EXCHANGED(2, 4) = 1
//     PIECE_AT(2, 0, 4, 1) = 9
//     PIECE_AT(3, 0, 4, 1) = 13
//   and across k a row is 16 pieces, of which the first eight of row 3 change places with the pieces 3 away (by XOR):
//     PIECES(128, 0) = 16
//     ROWS(128, 0) = 32
//     PIECE_AT(3, 4, 16, 0) = 55
// Of elements of 4 bytes that lie across k, a warp reads 8 neighbours in each of four rows at once: there 32 bytes part two rows, so that
// all addresses of a lane are at fixed distances from one, and no piece changes places.
#define PIECES(lines, along_k) (((along_k) ? TSK : (lines)) / PIECE)
#define ROWS(lines, along_k) ((along_k) ? (lines) : TSK)
#define IN_128(pieces) ((pieces) < 8 ? (pieces) : 8)
#define EXCHANGED(row, pieces) ((row) / (8 / IN_128(pieces)) % IN_128(pieces))
#if ELEMENT_BYTES == 4
#define PARTED(along_k) ((along_k) ? 0 : 2) // pieces between two rows
#define TILE_BYTES(lines, along_k) (ROWS(lines, along_k) * (PIECES(lines, along_k) + PARTED(along_k)) * PIECE_BYTES)
#define PIECE_AT(row, piece, pieces, along_k) \
    ((row) * ((pieces) + PARTED(along_k)) + ((piece) ^ ((along_k) ? EXCHANGED(row, pieces) : 0)))
#else
#define PIECE_AT(row, piece, pieces, along_k) ((row) * (pieces) + ((piece) ^ EXCHANGED(row, pieces)))
#endif

// Copies a piece, of which so many elements are present, to local memory, where `wanted`; zeros for the rest. Where rows are not
// aligned to 16 bytes it comes in parts of `alignment` bytes, and, where they are not even aligned to 4, element by element and
// at once.
inline __attribute__((always_inline)) void copy_piece(
    __local char *to, __global const in_t *from, int wanted, int whole, int present, int alignment)
{
    const int bytes = max(min(present, PIECE), 0) * ELEMENT_BYTES;
    if (alignment == 16 && whole)
        COPY_16(to, from, wanted);
    else if (alignment == 16)
        COPY_16_OF(to, from, wanted, bytes);
    else if (alignment == 8)
        #pragma unroll
        for (int b = 0; b < PIECE_BYTES; b += 8) {
            const int part = max(min(bytes - b, 8), 0);
            COPY_SIZE_OF(to + b, from + b / ELEMENT_BYTES, wanted, 8, part);
        }
    else if (alignment == 4)
        #pragma unroll
        for (int b = 0; b < PIECE_BYTES; b += 4) {
            const int part = max(min(bytes - b, 4), 0);
            COPY_SIZE_OF(to + b, from + b / ELEMENT_BYTES, wanted, 4, part);
        }
    else if (wanted) {
        #pragma unroll
        for (int e = 0; e < PIECE; e += WIDTH)
            *(__local in_run_t *)(to + e * ELEMENT_BYTES) = fetch_run(from + e, present - e, 0);
        TOUCH_MEMORY(); // one piece at a time: the elements of all of them have no room in registers
    }
}

// Brings TSK terms of so many lines of an operand to a tile: of a work-item's copies those from `begin` to before `end`.
// Neighbouring work-items bring neighbouring pieces of a row, and each item the same piece of rows that lie ROW_STEP apart. `from`
// is where the next copy begins, and so is what is returned; behind the last one, TSK terms further on.
#define ROW_STEP(lines, along_k) (THREADS / PIECES(lines, along_k))
#define COPIES(lines, along_k) ((ROWS(lines, along_k) + ROW_STEP(lines, along_k) - 1) / ROW_STEP(lines, along_k))
inline __attribute__((always_inline)) __global const in_t *bring(
    __local char *tile, __global const in_t *from, index_t ld, int lines, int along_k, int alignment, int begin, int end, int wanted,
    int whole, int lines_left, int terms_left, int item)
{
    const int pieces = PIECES(lines, along_k);
    const int step = ROW_STEP(lines, along_k);
    const int piece = item % pieces;
    #pragma unroll
    for (int c = 0; c < COPIES(lines, along_k); ++c) {
        if (c < begin || c >= end)
            continue;
        const int row = item / pieces + c * step;
        if (ROWS(lines, along_k) % step == 0 || row < ROWS(lines, along_k)) {
            const int left = (along_k ? terms_left : lines_left) - piece * PIECE;
            const int present = row < (along_k ? lines_left : terms_left) ? left : 0;
            copy_piece(tile + PIECE_AT(row, piece, pieces, along_k) * PIECE_BYTES, from, wanted, whole, present, alignment);
        }
        from += step * ld;
    }
    if (begin < COPIES(lines, along_k) && COPIES(lines, along_k) <= end)
        from += (along_k ? TSK : TSK * ld) - COPIES(lines, along_k) * step * ld;
    return from;
}

// A work-item's copies of a tile of A and one of B set out in as many portions as the unit has turns.
#define COPIES_A COPIES(TSM, A_RUNS_ALONG_K)
#define COPIES_B COPIES(TSN, B_RUNS_ALONG_K)
#define PORTION(number) ((COPIES_A + COPIES_B) * (number) / TURNS) // where it begins

// What a lane says for its warp to read a group of 16 lines, for a turn of the unit, as four matrices of 8 lines by 16 bytes (PTX
// ISA, ldmatrix): where row lane % 8 of matrix lane / 8 is. Two of them are the first eight lines, and two have the first PIECE
// of the turn's terms. Their order is such that what comes of them is what the unit takes, in registers that lie side by side
// (PTX ISA, mma.m16n8k16 with .f16 and its like): of A four, for lines 0 to 7, 8 to 15, and both again with the other terms; of B
// two for each eight columns, with either half of the terms.
inline int place_of(int lane, int line, int turn, int lines, int along_k, int of_a)
{
    const int pieces = PIECES(lines, along_k);
    const int side = of_a ? lane / 16 : lane / 8 % 2; // of the terms
    const int eight = of_a ? lane / 8 % 2 : lane / 16; // of the lines
    const int row = along_k ? line + eight * 8 + lane % 8 : turn * AT_ONCE + side * 8 + lane % 8;
    const int piece = along_k ? turn * 2 + side : line / PIECE + eight;
    return PIECE_AT(row, piece, pieces, along_k) * PIECE_BYTES;
}
#if ELEMENT_BYTES == 4
// ldmatrix turns no elements of 4 bytes: those that lie across k a lane reads one by one. They are of terms lane % 4 and four more, and
// of lines lane / 4 and eight more, in the order that is told above.
inline int place_across(int lane, int line, int turn, int number, int lines, int of_a)
{
    const int side = of_a ? number / 2 : number % 2;
    const int eight = of_a ? number % 2 : number / 2;
    const int first = PIECE_AT(lane % 4, 0, PIECES(lines, 0), 0) * PIECE + line + lane / 4;
    return (first + PIECE_AT(turn * AT_ONCE + side * 4, eight * 2, PIECES(lines, 0), 0) * PIECE) * ELEMENT_BYTES;
}
#endif
inline void read_lines(
    uint (*numbers)[4], int blocks, __local const char *tile, int lane, int line, int turn, int lines, int along_k, int of_a)
{
    #pragma unroll
    for (int b = 0; b < blocks; ++b) {
#if ELEMENT_BYTES == 4
        if (!along_k) {
            #pragma unroll
            for (int x = 0; x < 4; ++x)
                numbers[b][x] = *(__local const uint *)(tile + place_across(lane, line + b * LINES, turn, x, lines, of_a));
            continue;
        }
#endif
        __local const char *place = tile + place_of(lane, line + b * LINES, turn, lines, along_k, of_a);
        if (along_k)
            LOAD_MATRICES(numbers[b][0], numbers[b][1], numbers[b][2], numbers[b][3], place);
        else
            LOAD_TURNED_MATRICES(numbers[b][0], numbers[b][1], numbers[b][2], numbers[b][3], place);
    }
}

// Numbers that are rounded are so right before they are first multiplied: what was read for this turn has come by then.
#if ROUNDS_AS_READ
#define ROUND_EACH(number)            \
    _Pragma("unroll")                 \
    for (int x = 0; x < 4; ++x)       \
        ROUND_TO_TF32(number[x])
#else
#define ROUND_EACH(number)
#endif
inline void multiply(uint (*a)[4], uint (*b)[4], acc_t (*sum)[COLUMN_EIGHTS][4])
{
    #pragma unroll
    for (int r = 0; r < ROW_BLOCKS; ++r) {
        ROUND_EACH(a[r]);
        #pragma unroll
        for (int c = 0; c < COLUMN_EIGHTS; ++c) {
            if (r == 0 && c % 2 == 0)
                ROUND_EACH(b[c / 2]);
#if PROMOTES // a sum of one turn alone is the unit's: longer ones would lose too many digits there
            acc_t part[4] = {ACC_ZERO, ACC_ZERO, ACC_ZERO, ACC_ZERO};
            MUL_ADD(
                part[0], part[1], part[2], part[3], a[r][0], a[r][1], a[r][2], a[r][3], b[c / 2][c % 2 * 2],
                b[c / 2][c % 2 * 2 + 1]);
            #pragma unroll
            for (int e = 0; e < 4; ++e)
                sum[r][c][e] = sum_of(sum[r][c][e], part[e]);
#else
            MUL_ADD(
                sum[r][c][0], sum[r][c][1], sum[r][c][2], sum[r][c][3], a[r][0], a[r][1], a[r][2], a[r][3], b[c / 2][c % 2 * 2],
                b[c / 2][c % 2 * 2 + 1]);
#endif
        }
    }
}

// Stores 16 rows of a warp's tile. A lane's sums of eight columns are those of rows lane / 4 and lane / 4 + 8, each in columns
// lane % 4 * 2 and the next (PTX ISA, mma.m16n8k16). The warps of a group do it together: each has its part of the local memory
// `staged`.
#define PITCH (WN + 8) // numbers from one row to the next: in eight columns of 4 rows, no two share a bank
#define STAGED (TSM / WM * WARPS_N * LINES * PITCH)
#define EXTENT MOST(STAGES * STAGE, STAGED) // numbers of local memory
#define RUNS_N (WN / WIDTH)
#define COLUMN_OF(run) ((run) % RUNS_N * (APART > 1 ? 1 : WIDTH)) // its first
#define RUNS (LINES * RUNS_N / WARP) // of a lane
// A run of a row. Where rows of D are not aligned, its two numbers lie half of the columns apart, so that neighbouring lanes store
// neighbours: one store writes all of a sector.
inline wide_t staged_run(__local const acc_t *from)
{
#if APART > 1
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = from[w * APART];
    return x;
#else
    return *(__local const wide_t *)from;
#endif
}
inline void store_rows(
    __local acc_t *staged, acc_t (*sum)[4], int item, int row, int column, __global out_t *d, index_t ld_d, __global const out_t *c,
    index_t ld_c, acc_t alpha, acc_t beta, int m, int n)
{
    const int lane = item % WARP;
    __local acc_t *const own = staged + item / WARP * LINES * PITCH;
    barrier(CLK_LOCAL_MEM_FENCE); // nobody reads what was there any more
    #pragma unroll
    for (int x = 0; x < COLUMN_EIGHTS; ++x)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
            own[(lane / 4 + e / 2 * 8) * PITCH + x * 8 + lane % 4 * 2 + e % 2] = sum[x][e];
    barrier(CLK_LOCAL_MEM_FENCE); // the rows are complete
#define FOR_EACH_RUN(statement)                                  \
    _Pragma("unroll")                                            \
    for (int x = 0; x < RUNS; ++x) {                             \
        const int run = lane + x * WARP;                         \
        const int i = row + run / RUNS_N;                        \
        const int j = column + COLUMN_OF(run);                   \
        const int end = PRESENT(i < m, n - j);                   \
        statement;                                               \
    }
    // C is read before D, which may be C, is written there.
    out_run_t before[RUNS] = {(out_run_t)0};
    if (!is_zero(beta))
        FOR_EACH_RUN(before[x] = read_before(c + i * ld_c + j, 0, end))
    FOR_EACH_RUN(
        const wide_t sums = staged_run(own + run / RUNS_N * PITCH + COLUMN_OF(run));
        store_over(d + i * ld_d + j, before[x], sums, alpha, beta, 0, end))
}

#define PART(sharer, has_first, s, item) ((((index_t)(sharer) * 2 + (has_first)) * SUMS + (s)) * THREADS + (item))

__kernel RESIDENT(THREADS, GROUPS)
void mma(GEMM_ARGUMENTS, __global acc_t *parts, int whole, int shared, int sharers)
{
    __local acc_t tiles[EXTENT] __attribute__((aligned(128)));
    const int item = (int)get_local_id(0);
    const int lane = item % WARP;
    const int row = item / WARP / WARPS_N * WM; // of the warp's tile
    const int column = item / WARP % WARPS_N * WN;
    const int steps = max((k + TSK - 1) / TSK, 1); // of a tile
    LET_NEXT()

    // The tile, its first step here, and the steps that this group has to do.
    int number = (int)get_group_id(0), first = 0, left = steps;
#if SHARES
    const int next = number + 1;
    first = first_step(number, sharers, shared, steps);
    left = first_step(next, sharers, shared, steps) - first;
    left += (first_tile(next, sharers, shared) - first_tile(number, sharers, shared)) * steps;
    number = whole + first_tile(number, sharers, shared);
#endif
    AWAIT_BEFORE()
#if SHARES
    do {
#endif
        const int last = min(first + left, steps);
        const tile_t tile = tile_of(number, m, n);
        int terms_left = k - first * TSK; // from where the next tiles begin that are brought
        __global const in_t *a_from = A + offset_a + tile.batch * stride_a;
        if (A_RUNS_ALONG_K)
            a_from += INDEX_A(
                tile.row + item / PIECES(TSM, A_RUNS_ALONG_K), first * TSK + item % PIECES(TSM, A_RUNS_ALONG_K) * PIECE);
        else
            a_from += INDEX_A(
                tile.row + item % PIECES(TSM, A_RUNS_ALONG_K) * PIECE, first * TSK + item / PIECES(TSM, A_RUNS_ALONG_K));
        __global const in_t *b_from = B + offset_b + tile.batch * stride_b;
        if (B_RUNS_ALONG_K)
            b_from += INDEX_B(
                first * TSK + item % PIECES(TSN, B_RUNS_ALONG_K) * PIECE, tile.column + item / PIECES(TSN, B_RUNS_ALONG_K));
        else
            b_from += INDEX_B(
                first * TSK + item / PIECES(TSN, B_RUNS_ALONG_K), tile.column + item % PIECES(TSN, B_RUNS_ALONG_K) * PIECE);
#define BRING(stage, begin, end, wanted)                                                                                      \
    do {                                                                                                                      \
        __local char *to = (__local char *)tiles + (stage);                                                                    \
        a_from = bring(                                                                                                       \
            to, a_from, ld_a, TSM, A_RUNS_ALONG_K, ALIGNMENT_A, begin, end, wanted, WHOLE_ROWS && WHOLE_TERMS,                \
            m - tile.row, terms_left, item);                                                                                \
        b_from = bring(                                                                                                       \
            to + TILE_A_BYTES, b_from, ld_b, TSN, B_RUNS_ALONG_K, ALIGNMENT_B, (begin) - COPIES_A, (end) - COPIES_A, wanted,  \
            WHOLE_COLUMNS && WHOLE_TERMS, n - tile.column, terms_left, item);                                               \
        if ((end) == COPIES_A + COPIES_B) {                                                                                   \
            COMMIT_COPIES();                                                                                                  \
            terms_left -= TSK;                                                                                                \
        }                                                                                                                     \
    } while (0)

        // The first tiles set out.
        #pragma unroll
        for (int s = 0; s < STAGES - 1; ++s)
            BRING(s * STAGE_BYTES, 0, COPIES_A + COPIES_B, first + s < last);

        acc_t sum[ROW_BLOCKS][COLUMN_EIGHTS][4];
        #pragma unroll
        for (int r = 0; r < ROW_BLOCKS; ++r)
            #pragma unroll
            for (int c = 0; c < COLUMN_EIGHTS; ++c)
                #pragma unroll
                for (int e = 0; e < 4; ++e)
                    sum[r][c][e] = ACC_ZERO;

        // What one turn needs comes into one half of these registers, while the other half is multiplied.
        uint a[2][ROW_BLOCKS][4], b[2][COLUMN_BLOCKS][4];
#define READ(half, stage, turn)                                                                                               \
    do {                                                                                                                      \
        __local const char *at = (__local const char *)tiles + (stage);                                                        \
        read_lines(a[half], ROW_BLOCKS, at, lane, row, turn, TSM, A_RUNS_ALONG_K, 1);                                      \
        read_lines(b[half], COLUMN_BLOCKS, at + TILE_A_BYTES, lane, column, turn, TSN, B_RUNS_ALONG_K, 0);                \
    } while (0)

        WAIT_FOR_COPIES(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE); // the first tile is there
        int stage = 0, free = (STAGES - 1) * STAGE_BYTES; // bytes before that which is read, and that which is not
        int step = first;
        READ(0, 0, 0);
        do {
            #pragma unroll
            for (int turn = 0; turn < TURNS; ++turn) {
                // One more tile sets out, to where that of the step before was.
                BRING(free, PORTION(turn), PORTION(turn + 1), step + STAGES - 1 < last);
                if (turn == TURNS - 1) {
                    WAIT_FOR_COPIES(STAGES - 2);
                    barrier(CLK_LOCAL_MEM_FENCE); // the next tile is there, and this one has been read
                    free = stage;
                    stage = stage == (STAGES - 1) * STAGE_BYTES ? 0 : stage + STAGE_BYTES;
                }
                const int goes_on = turn < TURNS - 1 || step + 1 < last;
                if (TURNS % 2 == 0) {
                    if (goes_on)
                        READ((turn + 1) % 2, stage, (turn + 1) % TURNS);
                    multiply(a[turn % 2], b[turn % 2], sum);
                } else {
                    multiply(a[0], b[0], sum);
                    if (goes_on)
                        READ(0, stage, (turn + 1) % TURNS);
                }
            }
        } while (++step < last);

#if SHARES // no sharer has all of a tile: there are more of them than tiles
        #pragma unroll
        for (int s = 0; s < SUMS; ++s)
            parts[PART(get_group_id(0), first == 0, s, item)] = sum[s / 4 / COLUMN_EIGHTS][s / 4 % COLUMN_EIGHTS][s % 4];
        left -= last - first;
        first = 0;
        ++number;
    } while (left > 0);
#else
        #pragma unroll
        for (int r = 0; r < ROW_BLOCKS; ++r)
            store_rows(
                tiles, sum[r], item, tile.row + row + r * LINES, tile.column + column, D + offset_d + tile.batch * stride_d, ld_d,
                C + offset_c + tile.batch * stride_c, ld_c, alpha, beta, m, n);
#endif
}

#if SHARES
// The parts of a shared tile, added up in their order: a group for each 16 rows of its warps.
__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void combine(GEMM_ARGUMENTS, __global const acc_t *parts, int whole, int shared, int sharers)
{
    __local acc_t staged[STAGED] __attribute__((aligned(128)));
    const int item = (int)get_local_id(0);
    const int r = (int)get_group_id(0) % ROW_BLOCKS;
    const int number = (int)get_group_id(0) / ROW_BLOCKS;
    const int steps = max((k + TSK - 1) / TSK, 1);
    const int begin = first_sharer(number, sharers, shared, steps);
    const int end = last_sharer(number, sharers, shared);
    LET_NEXT()
    AWAIT_BEFORE()

    acc_t sum[COLUMN_EIGHTS][4];
    #pragma unroll
    for (int s = 0; s < COLUMN_EIGHTS * 4; ++s)
        sum[s / 4][s % 4] = parts[PART(begin, 1, r * COLUMN_EIGHTS * 4 + s, item)];
    for (int sharer = begin + 1; sharer <= end; ++sharer)
        #pragma unroll
        for (int s = 0; s < COLUMN_EIGHTS * 4; ++s)
            sum[s / 4][s % 4] = sum_of(sum[s / 4][s % 4], parts[PART(sharer, 0, r * COLUMN_EIGHTS * 4 + s, item)]);
    const tile_t tile = tile_of(whole + number, m, n);
    store_rows(
        staged, sum, item, tile.row + item / WARP / WARPS_N * WM + r * LINES, tile.column + item / WARP % WARPS_N * WN,
        D + offset_d + tile.batch * stride_d, ld_d, C + offset_c + tile.batch * stride_c, ld_c, alpha, beta, m, n);
}
#endif
