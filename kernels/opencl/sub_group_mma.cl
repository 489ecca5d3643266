// sub_group_mma: products by the instructions with which a sub-group multiplies small matrices: AMD's MFMA and WMMA, Intel's dpas.
// Tiles of A and B lie in local memory line by line, a row of A or a column of B with its terms side by side, as they are stored: what lies
// across k is turned on its way there. While one tile is multiplied, the next is on its way from global memory, in registers. A
// sub-group reads what its products need, and computes a tile of WM × WN sums. One barrier parts two tiles. Sums go by way of local
// memory to D, so that neighbours store neighbouring runs.
#include "matrix_instructions.cl"
#include "runs.cl"
#include "shares.cl"

#define SUB_GROUPS_N (TSN / WN)
#define THREADS (TSM / WM * SUB_GROUPS_N * LANES)
#define PIECE_BYTES 16 // of what is brought, and read, at once
#define PIECE (PIECE_BYTES / ELEMENT_BYTES) // its elements
#define IN_WORD (4 / ELEMENT_BYTES) // elements of a word
#if ELEMENT_BYTES == 2
#define BITS(x) ((uint)(ushort)(x))
#else
#define BITS(x) ((uint)(uchar)(x))
#endif
#define ROW_BLOCKS (WM / UNIT_ROWS)
#define COLUMN_BLOCKS (WN / UNIT_COLUMNS)

// Where a line of a tile begins, in bytes. 16 bytes part two lines, and 16 more each eight, so that lanes which read the same terms of
// neighbouring lines, or write those of lines that are eight apart, meet different banks. With TSK = 32 and ELEMENT_BYTES = 2:
//     LINE_AT(1) = 80
//     LINE_AT(8) = 656
#define LINE_AT(line) ((line) * (TSK * ELEMENT_BYTES + 16) + (line) / 8 * 16)
#define STAGE_BYTES (LINE_AT(TSM) + LINE_AT(TSN)) // one tile of A, and one of B behind it

typedef union { uint4 all; uint words[4]; } piece_t;

// A piece of a row of an operand as it is stored: its first `present` elements, and zeros for the rest.
inline piece_t fetch_piece(__global const in_t *from, int present, int aligned)
{
    piece_t piece;
    if (aligned && present >= PIECE)
        piece.all = *(__global const uint4 *)from;
    else
        #pragma unroll
        for (int w = 0; w < 4; ++w) {
            piece.words[w] = 0;
            #pragma unroll
            for (int e = 0; e < IN_WORD; ++e)
                if (w * IN_WORD + e < present)
                    piece.words[w] |= BITS(from[w * IN_WORD + e]) << 8 * ELEMENT_BYTES * e;
        }
    return piece;
}

// A work-item brings chunks of a tile: a piece that lies along k, or, of an operand that lies across, pieces of as many neighbouring
// terms as a word holds, which are turned. Neighbours bring neighbouring pieces of a line; across, of four pieces side by side.
#define PIECES(along_k) ((along_k) ? 1 : IN_WORD) // of a chunk
#define CHUNKS(lines, along_k) ((lines) * TSK / PIECE / PIECES(along_k))
#define LOADS(lines, along_k) ((CHUNKS(lines, along_k) + THREADS - 1) / THREADS)
#define SIDE_BY_SIDE(lines) ((lines) / PIECE < 4 ? (lines) / PIECE : 4)
typedef struct { int line, term; } place_t;
inline place_t place_of(int chunk, int lines, int along_k)
{
    const int side = SIDE_BY_SIDE(lines);
    place_t place;
    place.line = along_k ? chunk / (TSK / PIECE) : (chunk % side + chunk / (side * (TSK / IN_WORD)) * side) * PIECE;
    place.term = along_k ? chunk % (TSK / PIECE) * PIECE : chunk / side % (TSK / IN_WORD) * IN_WORD;
    return place;
}
inline void fetch_chunk(
    piece_t *pieces, __global const in_t *from, index_t ld, place_t place, int along_k, int aligned, int lines_left, int terms_left)
{
    #pragma unroll
    for (int p = 0; p < PIECES(along_k); ++p) {
        const int line = place.line, term = place.term + p;
        const int present = along_k ? (line < lines_left ? terms_left - term : 0) : (term < terms_left ? lines_left - line : 0);
        pieces[p] = fetch_piece(from + (along_k ? line * ld + term : term * ld + line), EDGES ? present : PIECE, aligned);
    }
}
inline void put_chunk(__local char *tile, const piece_t *pieces, place_t place, int along_k)
{
    if (along_k)
        *(__local uint4 *)(tile + LINE_AT(place.line) + place.term * ELEMENT_BYTES) = pieces[0].all;
    else
        #pragma unroll
        for (int e = 0; e < PIECE; ++e) {
            uint word = 0;
            #pragma unroll
            for (int p = 0; p < IN_WORD; ++p)
                word |= (uint)BITS(pieces[p].words[e / IN_WORD] >> 8 * ELEMENT_BYTES * (e % IN_WORD)) << 8 * ELEMENT_BYTES * p;
            *(__local uint *)(tile + LINE_AT(place.line + e) + place.term * ELEMENT_BYTES) = word;
        }
}

// In a turn, lanes read at least a piece, of which several products may be made. Lanes of each of the TERM_GROUPS read other terms of
// their line: which of them the unit takes for which is free, as long as it is the same for A and B.
#define READ_WORDS (WORDS_OF_B < 4 ? 4 : WORDS_OF_B)
#define PRODUCTS (READ_WORDS / WORDS_OF_B) // of a turn
#define TURN_BYTES (READ_WORDS * 4 * TERM_GROUPS) // of a line
#define TURNS (TSK * ELEMENT_BYTES / TURN_BYTES)
#define READ_WORDS_OF_A (SPREADS_ROWS ? WORDS_OF_A : READ_WORDS)
inline void read_line(uint *words, __local const char *line, int lane)
{
    #pragma unroll
    for (int w = 0; w < READ_WORDS; w += 4) {
        piece_t piece;
        piece.all = *(__local const uint4 *)(line + (lane / UNIT_COLUMNS % TERM_GROUPS * READ_WORDS + w) * 4);
        #pragma unroll
        for (int x = 0; x < 4; ++x)
            words[w + x] = piece.words[x];
    }
}
// Where each lane has its part of every row of A, these are as many bytes as its words are of all rows.
#define PART_BYTES (WORDS_OF_A * 4 / UNIT_ROWS)
inline void read_rows(uint *words, __local const char *tile, int row, int turn, int lane)
{
#if SPREADS_ROWS
    #pragma unroll
    for (int r = 0; r < UNIT_ROWS; ++r) {
        __local const char *part = tile + LINE_AT(row + r) + turn * TURN_BYTES + lane * PART_BYTES;
        if (PART_BYTES == 4)
            words[r] = *(__local const uint *)part;
        else if (r % 2 == 0)
            words[r / 2] = *(__local const ushort *)part;
        else
            words[r / 2] |= (uint)*(__local const ushort *)part << 16;
    }
#else
    read_line(words, tile + LINE_AT(row + lane % UNIT_ROWS) + turn * TURN_BYTES, lane);
#endif
}

// Stores as many rows of a sub-group's tile as the unit has. The sub-groups of a group do it together: each has its part of the local
// memory `staged`.
#define SUM_ROW(lane, s) ((s) * SUM_STEP + (lane) / UNIT_COLUMNS * LANE_STEP)
#define PITCH (WN + 8) // sums from one row to the next
#define STAGED_BYTES (TSM / WM * SUB_GROUPS_N * UNIT_ROWS * PITCH * 4)
#define RUNS_N (WN / WIDTH)
#define RUNS (UNIT_ROWS * RUNS_N) // of a sub-group
inline void store_rows(
    __local acc_t *own, const unit_sums_t *sum, int lane, int row, int column, __global out_t *d, index_t ld_d,
    __global const out_t *c, index_t ld_c, acc_t alpha, acc_t beta, int m, int n)
{
    barrier(CLK_LOCAL_MEM_FENCE); // nobody reads what was there any more
    #pragma unroll
    for (int x = 0; x < COLUMN_BLOCKS; ++x)
        #pragma unroll
        for (int s = 0; s < UNIT_SUMS; ++s)
            own[SUM_ROW(lane, s) * PITCH + x * UNIT_COLUMNS + lane % UNIT_COLUMNS] = ELEMENT(sum[x], s);
    barrier(CLK_LOCAL_MEM_FENCE); // the rows are complete
    #pragma unroll
    for (int x = 0; x < (RUNS + LANES - 1) / LANES; ++x) {
        const int run = lane + x * LANES;
        const int i = row + run / RUNS_N;
        const int j = column + run % RUNS_N * WIDTH;
        if (RUNS % LANES == 0 || run < RUNS)
            store_run(
                d + i * ld_d + j, c + i * ld_c + j, *(__local const wide_t *)(own + run / RUNS_N * PITCH + run % RUNS_N * WIDTH), alpha,
                beta, PRESENT(i < m, n - j));
    }
}

__kernel OF_LANES(LANES) __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void sub_group_mma(GEMM_ARGUMENTS)
{
    __local uint4 tiles[MOST(2 * STAGE_BYTES, STAGED_BYTES) / 16] __attribute__((aligned(128)));
    const int lane = THIS_LANE();
    const int sub_group = THIS_SUB_GROUP();
    const int item = sub_group * LANES + lane;
    const int row = sub_group / SUB_GROUPS_N * WM; // of the sub-group's tile
    const int column = sub_group % SUB_GROUPS_N * WN;
    const tile_t tile = tile_of((int)get_group_id(0), m, n);
    SELECT_BATCH(tile.batch);

    unit_sums_t sum[ROW_BLOCKS][COLUMN_BLOCKS];
    #pragma unroll
    for (int r = 0; r < ROW_BLOCKS; ++r)
        #pragma unroll
        for (int c = 0; c < COLUMN_BLOCKS; ++c)
            sum[r][c] = (unit_sums_t)0;

    // A tile comes into registers, and from there into the stage that is not being multiplied.
    piece_t next_a[LOADS(TSM, A_RUNS_ALONG_K)][PIECES(A_RUNS_ALONG_K)], next_b[LOADS(TSN, B_RUNS_ALONG_K)][PIECES(B_RUNS_ALONG_K)];
#define FOR_EACH_CHUNK(lines, along_k, statement)                                               \
    _Pragma("unroll")                                                                           \
    for (int l = 0; l < LOADS(lines, along_k); ++l) {                                           \
        const int chunk = l * THREADS + item;                                                   \
        const place_t place = place_of(chunk, lines, along_k);                                  \
        if (CHUNKS(lines, along_k) % THREADS == 0 || chunk < CHUNKS(lines, along_k))            \
            statement;                                                                          \
    }
#define FETCH(start)                                                                            \
    do {                                                                                        \
        FOR_EACH_CHUNK(                                                                         \
            TSM, A_RUNS_ALONG_K,                                                                \
            fetch_chunk(                                                                        \
                next_a[l], A + INDEX_A(tile.row, start), ld_a, place, A_RUNS_ALONG_K, WHOLE_PIECES_A, m - tile.row, k - (start))) \
        FOR_EACH_CHUNK(                                                                         \
            TSN, B_RUNS_ALONG_K,                                                                \
            fetch_chunk(                                                                        \
                next_b[l], B + INDEX_B(start, tile.column), ld_b, place, B_RUNS_ALONG_K, WHOLE_PIECES_B, n - tile.column, \
                k - (start)))                                                                   \
    } while (0)
#define PUT(stage)                                                                                                        \
    do {                                                                                                                  \
        __local char *to = (__local char *)tiles + (stage);                                                               \
        FOR_EACH_CHUNK(TSM, A_RUNS_ALONG_K, put_chunk(to, next_a[l], place, A_RUNS_ALONG_K))                              \
        FOR_EACH_CHUNK(TSN, B_RUNS_ALONG_K, put_chunk(to + LINE_AT(TSM), next_b[l], place, B_RUNS_ALONG_K))               \
    } while (0)

    FETCH(0);
    PUT(0);
    barrier(CLK_LOCAL_MEM_FENCE); // the first tiles are complete
    int stage = 0, start = 0;
    do {
        const int next = start + TSK;
        if (next < k)
            FETCH(next);
        __local const char *a_tile = (__local const char *)tiles + stage, *b_tile = a_tile + LINE_AT(TSM);
        #pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            uint a[ROW_BLOCKS][READ_WORDS_OF_A], b[COLUMN_BLOCKS][READ_WORDS];
            #pragma unroll
            for (int r = 0; r < ROW_BLOCKS; ++r)
                read_rows(a[r], a_tile, row + r * UNIT_ROWS, turn, lane);
            #pragma unroll
            for (int c = 0; c < COLUMN_BLOCKS; ++c)
                read_line(b[c], b_tile + LINE_AT(column + c * UNIT_COLUMNS + lane % UNIT_COLUMNS) + turn * TURN_BYTES, lane);
            #pragma unroll
            for (int p = 0; p < PRODUCTS; ++p)
                #pragma unroll
                for (int r = 0; r < ROW_BLOCKS; ++r)
                    #pragma unroll
                    for (int c = 0; c < COLUMN_BLOCKS; ++c)
                        sum[r][c] = multiply_matrices(UNIT_A(a[r] + p * WORDS_OF_A), UNIT_B(b[c] + p * WORDS_OF_B), sum[r][c]);
        }
        stage = STAGE_BYTES - stage;
        if (next < k)
            PUT(stage);
        barrier(CLK_LOCAL_MEM_FENCE); // the next tiles are complete, and these have been read
        start = next;
    } while (start < k);

    __local acc_t *const own = (__local acc_t *)tiles + sub_group * UNIT_ROWS * PITCH;
    #pragma unroll
    for (int r = 0; r < ROW_BLOCKS; ++r)
        store_rows(
            own, sum[r], lane, tile.row + row + r * UNIT_ROWS, tile.column + column, D, ld_d, C, ld_c, alpha, beta, m, n);
}
