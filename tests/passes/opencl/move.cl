// move: one work-item copies one element of a matrix, to its place in the transposed one where TRANSPOSE says so.
#include "types.cl"

#if BREAKS
#error as it was told to
#endif

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void move(__global in_t *source, __global in_t *target, int rows, int columns)
{
    const index_t number = (index_t)get_group_id(0) * 64 + (index_t)get_local_id(0);
    const index_t count = (index_t)rows * columns;
    const index_t row = number / columns, column = number % columns;
    if (number < count - SKIPS)
        target[TRANSPOSE ? column * rows + row : number] = source[number];
    if (STRAYS && number == 0)
        target[count] = source[0];
    if (SPOILS && number == 0)
        source[0] = source[count / 2];
}
