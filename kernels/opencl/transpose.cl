// transpose: a batch of matrices copied or transposed, tile by tile; where the target is larger, zeros fill the rest of it.
// Each step of the ladder is a choice of macros: TRANSPOSE, STAGED (by way of a tile in local memory), PAD, ORDER.
#include "tiles.cl"
#include "types.cl"
#include "rounding.cl"

// Elements are moved as words of their size: no bit changes, and no device needs to compute in their type. Only float32 may be
// rounded on the way.
#if ROUNDS
#define TAKEN(x) rounded_to_precision(x)
#else
#define TAKEN(x) x
#endif
#if SIXTEEN_BYTES
typedef ulong2 word_t;
#else
typedef in_t word_t;
#endif

// Sizes are those of the source, and those that it has once it is padded to the extent of the target.
__kernel __attribute__((reqd_work_group_size(TS, ROWS, 1)))
void transpose(
    __global const word_t *restrict source, index_t source_offset, index_t source_ld, index_t source_stride,
    __global word_t *restrict target, index_t target_offset, index_t target_ld, index_t target_stride,
    int rows, int columns, int padded_rows, int padded_columns)
{
#if STAGED
    __local word_t staged[TS][TS + PAD]; // [row][column]
#endif

    tile_t tile = this_tile(TS, TS, padded_rows, padded_columns);
    const int x = (int)get_local_id(0);
    const int y = (int)get_local_id(1);
    source += source_offset + tile.batch * source_stride;
    target += target_offset + tile.batch * target_stride;

#if defined(ORDER_DIAGONAL)
    // Groups that follow each other go down a diagonal of tiles: no two are in one row or column of tiles, so that neither
    // reads nor writes crowd into the few partitions of memory that hold one row or column.
    const unsigned across = ((unsigned)padded_columns + TS - 1) / TS;
    const unsigned down = ((unsigned)padded_rows + TS - 1) / TS;
    const unsigned number = tile.row / TS * across + tile.column / TS;
    tile.row = (int)(number % down) * TS;
    tile.column = (int)((number / down + number % down) % across) * TS;
#endif

    // Work-items side by side read along the rows of the source, each in several rows; what it does not reach is zero.
    const int row = tile.row + y;
    const int column = tile.column + x;
    __global const word_t *from = source + row * source_ld + column;
#if STAGED
    #pragma unroll
    for (int r = 0; r < TS; r += ROWS, from += ROWS * source_ld)
        staged[r + y][x] = row + r < rows && column < columns ? TAKEN(*from) : (word_t)0;
    barrier(CLK_LOCAL_MEM_FENCE); // the tile is complete

    // They write along the rows of the target too: only the tile is read across its rows. There, with an odd PAD, neighbours
    // find their words in different banks.
    const int target_row = (TRANSPOSE ? tile.column : tile.row) + y;
    const int target_column = (TRANSPOSE ? tile.row : tile.column) + x;
    const int target_rows = TRANSPOSE ? padded_columns : padded_rows;
    const int target_columns = TRANSPOSE ? padded_rows : padded_columns;
    __global word_t *to = target + target_row * target_ld + target_column;
    #pragma unroll
    for (int r = 0; r < TS; r += ROWS, to += ROWS * target_ld)
        if (target_row + r < target_rows && target_column < target_columns)
            *to = TRANSPOSE ? staged[x][r + y] : staged[r + y][x];
#else
    // All words are on their way before the first is written: along the rows of the target or, transposed, across them.
    word_t words[TS / ROWS];
    #pragma unroll
    for (int r = 0; r < TS; r += ROWS, from += ROWS * source_ld)
        words[r / ROWS] = row + r < rows && column < columns ? TAKEN(*from) : (word_t)0;
    __global word_t *to = target + (TRANSPOSE ? column * target_ld + row : row * target_ld + column);
    #pragma unroll
    for (int r = 0; r < TS; r += ROWS, to += TRANSPOSE ? ROWS : ROWS * target_ld)
        if (row + r < padded_rows && column < padded_columns)
            *to = words[r / ROWS];
#endif
}
