// relayout: a batch of matrices copied or transposed to rows of whole runs of 16 bytes; where the target is larger, zeros fill the
// rest of it. Elements have 1, 2 or 4 bytes. All of memory is read and written in runs, EACH of a thread on their way at once.
//
// With ELEMENT_BYTES = 2, ALONG = 1, ITEMS = 256 and EACH = 4, a tile is 128 rows of 64 elements: 8 runs a row. Transposed, thread
// 9 has the runs of elements 8 to 15 of rows 2 and 3 (and of 66 and 67). Of words 0x00010000 and 0x00110010 it makes 0x00100000
// and 0x00110001: columns 8 and 9, each of two rows.
#include "tiles.cu"
#include "types.cu"
#include "rounding.cu"
#include "early.cu"

// A run of 16 bytes, as its words and as it is moved.
typedef union { uint4 all; unsigned word[4]; } run_t;

#define RUN (16 / ELEMENT_BYTES)        // elements of a run
#define WORD (4 / ELEMENT_BYTES)        // and of a word
#define BLOCK (TRANSPOSE ? WORD : 1)    // rows of what a thread turns at once
#define TILE_ROWS (ITEMS * EACH / (8 * ALONG))
#define TILE_COLUMNS (8 * ALONG * RUN)
#define BLOCKS (TILE_ROWS / BLOCK)      // of a tile, one below the other
#define TARGET_RUNS (TILE_ROWS / RUN)   // of a row of the tile, transposed
#define LANES (TRANSPOSE ? 8 : 8 * ALONG) // threads side by side in a row

// Which block of the tile is the e-th of a thread, and where in the tile the e-th run begins.
#define BLOCK_OF(e) ((e) / BLOCK * ITEMS + item)
#define ROW_OF(e) (BLOCK_OF(e) / LANES % BLOCKS * BLOCK + (e) % BLOCK)
#define COLUMN_OF(e) ((BLOCK_OF(e) / LANES / BLOCKS * LANES + BLOCK_OF(e) % LANES) * RUN)

// Where the tile's run of a row of the target is in shared memory: runs change places, so that neither threads that write words of
// different columns nor those that read one column meet in a bank.
#define STAGED(column, run) ((column) * TARGET_RUNS + ((run) ^ ((column) / RUN % 8)))

// Two words' halves, and bytes, side by side: of x and y, of which the first is the low one.
#define LOW_HALVES(x, y) (((x) & 0xffffu) | ((y) << 16))
#define HIGH_HALVES(x, y) (((x) >> 16) | ((y) & 0xffff0000u))
#define EVEN_BYTES(x, y) (((x) & 0x00ff00ffu) | (((y) & 0x00ff00ffu) << 8))
#define ODD_BYTES(x, y) ((((x) >> 8) & 0x00ff00ffu) | ((y) & 0xff00ff00u))

// Only float32 may be rounded on the way.
#if ROUNDS
#define TAKEN(x) __float_as_uint(rounded_to_precision(__uint_as_float(x)))
#else
#define TAKEN(x) x
#endif

// The 16 bytes that begin so many bytes, less than 16, behind the first of two runs.
__device__ inline run_t run_behind(run_t low, run_t high, unsigned bytes)
{
    unsigned word[8];
    #pragma unroll
    for (int w = 0; w < 4; ++w) {
        word[w] = low.word[w];
        word[w + 4] = high.word[w];
    }
#if ALIGNMENT < 16
    #pragma unroll
    for (int w = 0; w < 6; ++w)
        word[w] = bytes & 8 ? word[w + 2] : word[w];
#endif
#if ALIGNMENT < 8
    #pragma unroll
    for (int w = 0; w < 5; ++w)
        word[w] = bytes & 4 ? word[w + 1] : word[w];
#endif
#if ALIGNMENT < 4
    #pragma unroll
    for (int w = 0; w < 4; ++w)
        word[w] = (unsigned)(((unsigned long long)word[w + 1] << 32 | word[w]) >> bytes % 4 * 8);
#endif
    run_t run;
    #pragma unroll
    for (int w = 0; w < 4; ++w)
        run.word[w] = word[w];
    return run;
}

// The first elements of a run, and zeros.
__device__ inline run_t first_of(run_t run, int elements)
{
    #pragma unroll
    for (int w = 0; w < 4; ++w) {
        const int left = elements - w * WORD;
        run.word[w] = left >= WORD ? run.word[w] : left > 0 ? run.word[w] & ((1u << left % WORD * 8 * ELEMENT_BYTES) - 1) : 0;
    }
    return run;
}

// A run of which so many elements are inside, one by one; zeros for the others.
__device__ inline run_t run_by_elements(const in_t *from, int elements)
{
    run_t run;
    #pragma unroll
    for (int w = 0; w < 4; ++w) {
        run.word[w] = 0;
        #pragma unroll
        for (int e = 0; e < WORD; ++e)
            if (w * WORD + e < elements)
                run.word[w] |= (unsigned)from[w * WORD + e] << e % WORD * 8 * ELEMENT_BYTES;
    }
    return run;
}

// Sizes are those of the source, and those that it has once it is padded to the extent of the target.
extern "C" __global__ __launch_bounds__(ITEMS)
void relayout(
    const in_t *UNALIASED source, index_t source_offset, index_t source_ld, index_t source_stride,
    in_t *UNALIASED target, index_t target_offset, index_t target_ld, index_t target_stride,
    int rows, int columns, int padded_rows, int padded_columns)
{
#if TRANSPOSE
    __shared__ uint4 staged[TILE_COLUMNS * TARGET_RUNS];
#endif

    const tile_t tile = this_tile(TILE_ROWS, TILE_COLUMNS, padded_rows, padded_columns);
    const int item = (int)threadIdx.x;
    source += source_offset + tile.batch * source_stride;
    target += target_offset + tile.batch * target_stride;
    const index_t end = (rows - 1) * source_ld + columns;

    LET_NEXT()
    AWAIT_BEFORE()
    // All runs are on their way before the first is used. One that is not aligned lies in two that are, which are read where they
    // are between the first and the last element of the matrix.
    run_t low[EACH], high[EACH];
    int inside[EACH], behind[EACH], whole[EACH];
    #pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const int row = tile.row + ROW_OF(e), column = tile.column + COLUMN_OF(e);
        const index_t at = row * source_ld + column;
        inside[e] = row < rows ? columns - column : 0;
        behind[e] = ALIGNMENT < 16 ? (int)(((size_t)source / ELEMENT_BYTES + (size_t)at) % RUN) : 0;
        const index_t first = at - behind[e];
        whole[e] = inside[e] > 0 && first >= 0 && first + (behind[e] ? 2 * RUN : RUN) <= end;
        #pragma unroll
        for (int w = 0; w < 4; ++w)
            low[e].word[w] = high[e].word[w] = 0;
        if (whole[e]) {
            low[e].all = *(const uint4 *)(source + first);
            if (ALIGNMENT < 16)
                high[e].all = *(const uint4 *)(source + first + (behind[e] ? RUN : 0));
        }
    }
    #pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const int row = tile.row + ROW_OF(e), column = tile.column + COLUMN_OF(e);
        low[e] = run_behind(low[e], high[e], behind[e] * ELEMENT_BYTES);
        if (whole[e] && inside[e] < RUN)
            low[e] = first_of(low[e], inside[e]);
        if (!whole[e] && inside[e] > 0)
            low[e] = run_by_elements(source + row * source_ld + column, inside[e]);
        #pragma unroll
        for (int w = 0; w < 4; ++w)
            low[e].word[w] = TAKEN(low[e].word[w]);
#if !TRANSPOSE
        if (row < padded_rows && column < padded_columns)
            *(uint4 *)(target + row * target_ld + column) = low[e].all;
#endif
    }

#if TRANSPOSE
    // Words of one row become words of one column.
    #pragma unroll
    for (int e = 0; e < EACH; e += BLOCK) {
        const int column = COLUMN_OF(e), word = ROW_OF(e) / BLOCK;
        unsigned *const place = (unsigned *)(staged + STAGED(column, word / 4)) + word % 4;
        #pragma unroll
        for (int w = 0; w < 4; ++w) {
#if ELEMENT_BYTES == 4
            place[w * TARGET_RUNS * 4] = low[e].word[w];
#elif ELEMENT_BYTES == 2
            const unsigned x = low[e].word[w], y = low[e + 1].word[w];
            place[w * 2 * TARGET_RUNS * 4] = LOW_HALVES(x, y);
            place[(w * 2 + 1) * TARGET_RUNS * 4] = HIGH_HALVES(x, y);
#else
            const unsigned x = LOW_HALVES(low[e].word[w], low[e + 2].word[w]);
            const unsigned y = LOW_HALVES(low[e + 1].word[w], low[e + 3].word[w]);
            const unsigned u = HIGH_HALVES(low[e].word[w], low[e + 2].word[w]);
            const unsigned v = HIGH_HALVES(low[e + 1].word[w], low[e + 3].word[w]);
            place[w * 4 * TARGET_RUNS * 4] = EVEN_BYTES(x, y);
            place[(w * 4 + 1) * TARGET_RUNS * 4] = ODD_BYTES(x, y);
            place[(w * 4 + 2) * TARGET_RUNS * 4] = EVEN_BYTES(u, v);
            place[(w * 4 + 3) * TARGET_RUNS * 4] = ODD_BYTES(u, v);
#endif
        }
    }
    __syncthreads(); // the tile is complete
    #pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const int column = (e * ITEMS + item) / TARGET_RUNS, run = (e * ITEMS + item) % TARGET_RUNS;
        const int target_row = tile.column + column, target_column = tile.row + run * RUN;
        if (target_row < padded_columns && target_column < padded_rows)
            *(uint4 *)(target + target_row * target_ld + target_column) = staged[STAGED(column, run)];
    }
#endif
}
