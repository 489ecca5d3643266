// rescale: D = alpha · (sums · scale of the row · scale of the column) + beta · C, rounded once. A thread makes EACH elements, and its
// neighbours those beside.
//
// Of long rows a block makes a part of one, of short ones several. With ITEMS = 4 and EACH = 2, block 1 makes the elements 8 to 15 of
// a long row, and thread 1 of it the elements 9 and 13. A sum of 3 with the scales 2 and 0.5, alpha = 4, beta = 1, and 5 in C
// becomes 4 · (3 · 2 · 0.5) + 5 = 17.
#include "arithmetic.cu"

#ifdef SCALES_ROWS
#define ROW_SCALES const float *row_scales, index_t row_offset, index_t row_step, index_t row_stride,
#define BY_ROW(x) ((x) * row_scales[row_offset + matrix * row_stride + row * row_step])
#else
#define ROW_SCALES
#define BY_ROW(x) (x)
#endif
#ifdef SCALES_COLUMNS
#define COLUMN_SCALES const float *column_scales, index_t column_offset, index_t column_step, index_t column_stride,
#define BY_COLUMN(x) ((x) * column_scales[column_offset + matrix * column_stride + column * column_step])
#else
#define COLUMN_SCALES
#define BY_COLUMN(x) (x)
#endif

#define SHARE (ITEMS * EACH)

// `rows` lines are a matrix, and `lines` all of them.
extern "C" __global__ __launch_bounds__(ITEMS)
void rescale(
    const in_t *sums, index_t offset_sums, ROW_SCALES COLUMN_SCALES
    const out_t *C, index_t offset_c, index_t ld_c, index_t stride_c,
    out_t *D, index_t offset_d, index_t ld_d, index_t stride_d,
    acc_t alpha, acc_t beta, index_t rows, index_t lines, index_t columns)
{
    const index_t group = (index_t)blockIdx.x;
    const int is_long = columns >= LONG_ROW;
    const index_t pieces = (columns + SHARE - 1) / SHARE;
    index_t number = (is_long ? group % pieces : group) * SHARE + (index_t)threadIdx.x;
    for (int i = 0; i < EACH; i++, number += ITEMS) {
        const index_t line = is_long ? group / pieces : number / columns;
        const index_t column = is_long ? number : number % columns;
        const index_t matrix = line / rows, row = line % rows;
        if (line < lines && column < columns)
            store(D + offset_d + matrix * stride_d + row * ld_d + column,
                  C + offset_c + matrix * stride_c + row * ld_c + column,
                  BY_COLUMN(BY_ROW(load(sums + offset_sums + line * columns + column))), alpha, beta);
    }
}
