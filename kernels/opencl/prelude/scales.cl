// scales: a number of float32 for each row of D (SCALES_ROWS) and for each column (SCALES_COLUMNS), by which a sum is multiplied before alpha.
//
// SCALE_ARGUMENTS follows a kernel's own arguments, and brings its comma. SCALES_OF(matrix) initializes a scales_t with the scales of one
// matrix. SCALES is whether there are any. Rows alone may have scales, {2, 4, 8} in the first matrix and {1, 3, 5} in the second, one
// behind the other. Then row_step is 1 and row_stride 3. With const scales_t scales = SCALES_OF(1)
//     row_scale(scales, 2) is 5
//     column_scale(scales, 2) is 1: there are none
#include "types.cl"

typedef struct { __global const float *rows, *columns; index_t row_step, column_step; } scales_t;

#define SCALES (SCALES_ROWS || SCALES_COLUMNS)
#if SCALES_ROWS
#define ROW_SCALES , __global const float *row_scales, index_t row_offset, index_t row_step, index_t row_stride
#define ROW_SCALES_OF(matrix) row_scales + row_offset + (matrix) * row_stride
#define SCALES_ROW_STEP row_step
#else
#define ROW_SCALES
#define ROW_SCALES_OF(matrix) 0
#define SCALES_ROW_STEP 0
#endif
#if SCALES_COLUMNS
#define COLUMN_SCALES , __global const float *column_scales, index_t column_offset, index_t column_step, index_t column_stride
#define COLUMN_SCALES_OF(matrix) column_scales + column_offset + (matrix) * column_stride
#define SCALES_COLUMN_STEP column_step
#else
#define COLUMN_SCALES
#define COLUMN_SCALES_OF(matrix) 0
#define SCALES_COLUMN_STEP 0
#endif
#define SCALE_ARGUMENTS ROW_SCALES COLUMN_SCALES
#define SCALES_OF(matrix) {ROW_SCALES_OF(matrix), COLUMN_SCALES_OF(matrix), SCALES_ROW_STEP, SCALES_COLUMN_STEP}

inline float row_scale(scales_t scales, index_t row)
{
#if SCALES_ROWS
    return scales.rows[row * scales.row_step];
#else
    return 1;
#endif
}
inline float column_scale(scales_t scales, index_t column)
{
#if SCALES_COLUMNS
    return scales.columns[column * scales.column_step];
#else
    return 1;
#endif
}
