// move: one thread copies one element of a matrix, to its place in the transposed one where TRANSPOSE says so.
#include "types.cu"

#if BREAKS
#error as it was told to
#endif

extern "C" __global__ __launch_bounds__(64)
void move(in_t *source, in_t *target, int rows, int columns)
{
    const index_t number = (index_t)blockIdx.x * 64 + (index_t)threadIdx.x;
    const index_t count = (index_t)rows * columns;
    const index_t row = number / columns, column = number % columns;
    if (number < count - SKIPS)
        target[TRANSPOSE ? column * rows + row : number] = source[number];
    if (STRAYS && number == 0)
        target[count] = source[0];
    if (SPOILS && number == 0)
        source[0] = source[count / 2];
}
