// convert: A and B in scratch memory, rounded to a precision. A thread converts EACH numbers, and its neighbours those beside.
//
// Numbers lie in lines, `rows` of which are a matrix. Of long lines a block converts a part of one, of short ones several. With
// ITEMS = 4 and EACH = 2, block 1 converts the numbers 8 to 15 of a long line, and thread 1 of it the numbers 9 and 13.
#include "types.cu"
#include "rounding.cu"

// As float32, or in a narrower type that has all numbers of the precision.
#ifdef STORES_NARROW
__device__ inline out_t narrow(float x) { return to<out_t>::from(x); }
#define CONVERTED(x) narrow(rounded_to_precision(x))
#else
#define CONVERTED(x) rounded_to_precision(x)
#endif

#define SHARE (ITEMS * EACH)

// Of the blocks, the first groups_a convert A.
extern "C" __global__ __launch_bounds__(ITEMS)
void convert(
    const in_t *from, index_t offset, index_t ld, index_t stride,
    out_t *to, index_t to_ld, index_t to_stride, index_t rows, index_t lines, index_t columns,
    const in_t *from_b, index_t offset_b, index_t ld_b, index_t stride_b,
    out_t *to_b, index_t to_ld_b, index_t to_stride_b, index_t rows_b, index_t lines_b, index_t columns_b,
    index_t groups_a)
{
    index_t group = (index_t)blockIdx.x;
    if (group >= groups_a) {
        group -= groups_a;
        from = from_b, offset = offset_b, ld = ld_b, stride = stride_b;
        to = to_b, to_ld = to_ld_b, to_stride = to_stride_b;
        rows = rows_b, lines = lines_b, columns = columns_b;
    }
    from += offset;
    if (columns >= LONG_LINE) {
        const index_t pieces = (columns + SHARE - 1) / SHARE;
        const index_t line = group / pieces, matrix = line / rows, row = line % rows;
        from += matrix * stride + row * ld;
        to += matrix * to_stride + row * to_ld;
        index_t column = group % pieces * SHARE + (index_t)threadIdx.x;
        for (int i = 0; i < EACH; i++, column += ITEMS)
            if (column < columns)
                to[column] = CONVERTED(from[column]);
        return;
    }
    index_t number = group * SHARE + (index_t)threadIdx.x;
    for (int i = 0; i < EACH; i++, number += ITEMS) {
        const index_t line = number / columns, column = number % columns, matrix = line / rows, row = line % rows;
        if (line < lines)
            to[matrix * to_stride + row * to_ld + column] = CONVERTED(from[matrix * stride + row * ld + column]);
    }
}
