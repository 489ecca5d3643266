// transpose: dense matrices, rows × columns, from matrices that lie anywhere; one work-item per element.
#include "tiles.cl"
#include "types.cl"

__kernel __attribute__((reqd_work_group_size(TS, TS, 1)))
void transpose(
    __global const in_t *source, index_t offset, index_t ld, index_t stride,
    __global in_t *target, int rows, int columns)
{
    const tile_t tile = this_tile(TS, TS, rows, columns);
    const int i = tile.row + (int)get_local_id(1);
    const int j = tile.column + (int)get_local_id(0);
    if (i < rows && j < columns)
        target[((index_t)tile.batch * columns + j) * rows + i] = source[offset + tile.batch * stride + i * ld + j];
}
