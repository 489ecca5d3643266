// transpose: dense matrices, rows × columns, from matrices that lie anywhere; one thread per element.
#include "tiles.cu"
#include "types.cu"

extern "C" __global__ __launch_bounds__(TS * TS)
void transpose(
    const in_t *source, index_t offset, index_t ld, index_t stride,
    in_t *target, int rows, int columns)
{
    const tile_t tile = this_tile(TS, TS, rows, columns);
    const int i = tile.row + (int)threadIdx.y;
    const int j = tile.column + (int)threadIdx.x;
    if (i < rows && j < columns)
        target[((index_t)tile.batch * columns + j) * rows + i] = source[offset + tile.batch * stride + i * ld + j];
}
