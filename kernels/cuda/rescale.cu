// rescale: D = alpha · (sums · scale of the row · scale of the column) + beta · C, rounded once. A thread makes EACH elements, and its
// neighbours those beside.
//
// Of long rows a block makes a part of one, of short ones several. With ITEMS = 4 and EACH = 2, block 1 makes the elements 8 to 15 of
// a long row, and thread 1 of it the elements 9 and 13. A sum of 3 with the scales 2 and 0.5, alpha = 4, beta = 1, and 5 in C
// becomes 4 · (3 · 2 · 0.5) + 5 = 17.
#include "arithmetic.cu"
#include "scales.cu"

#define SHARE (ITEMS * EACH)

// `rows` lines are a matrix, and `lines` all of them.
extern "C" __global__ __launch_bounds__(ITEMS)
void rescale(
    const in_t *sums, index_t offset_sums,
    const out_t *C, index_t offset_c, index_t ld_c, index_t stride_c,
    out_t *D, index_t offset_d, index_t ld_d, index_t stride_d,
    acc_t alpha, acc_t beta, index_t rows, index_t lines, index_t columns SCALE_ARGUMENTS)
{
    const index_t group = (index_t)blockIdx.x;
    const int is_long = columns >= LONG_ROW;
    const index_t pieces = (columns + SHARE - 1) / SHARE;
    index_t number = (is_long ? group % pieces : group) * SHARE + (index_t)threadIdx.x;
    for (int i = 0; i < EACH; i++, number += ITEMS) {
        const index_t line = is_long ? group / pieces : number / columns;
        const index_t column = is_long ? number : number % columns;
        const index_t matrix = line / rows, row = line % rows;
        if (line < lines && column < columns) {
            const scales_t scales = SCALES_OF(matrix);
            const acc_t sum = load(sums + offset_sums + line * columns + column) * row_scale(scales, row) * column_scale(scales, column);
            store(D + offset_d + matrix * stride_d + row * ld_d + column,
                  C + offset_c + matrix * stride_c + row * ld_c + column, sum, alpha, beta);
        }
    }
}
