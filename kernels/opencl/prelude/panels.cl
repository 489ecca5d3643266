// panels: rows of op(A), or columns of op(B), as `packed` reads them: term by term, the lines of each term adjacent.
//
// A panel is ROWS rows of op(A), or COLUMNS columns of op(B): its lines. It holds sums, with zeros beyond the edges. PACK writes the terms
// from `start` to `end` of the panel whose first line is `first`, of `size` there are. Runs along k are turned, so that the lines of each
// term become runs. At edges, elements are moved one by one.
//
// PACK_A(__global, to, 16, 0, 6) writes the terms 0 to 5 of the panel of LINES_A = 8 rows from row 16 on, with WIDTH = 4 floats. It is
// PACK(__global, to, 8, 16, m, 0, 6, A_RUNS_ALONG_K, RUN_OF_A, LOAD_A): `first` is 16, `size` is m, and p - start is p.
// - m = 100, rows of A run along k: 16 + 8 <= 100, so the panel is whole. Terms 0 to 3 are one run of each row, of rows 16 to 19 first
//   (line = 0), then of rows 20 to 23 (line = 4):
//       x[0] = {A[16, 0], A[16, 1], A[16, 2], A[16, 3]}, …, x[3] = {A[19, 0], A[19, 1], A[19, 2], A[19, 3]}, which are turned:
//       x[0] = {A[16, 0], A[17, 0], A[18, 0], A[19, 0]} goes to to[0 · 8 + 0], the four numbers from there on,
//       x[1] = {A[16, 1], A[17, 1], A[18, 1], A[19, 1]} goes to to[1 · 8 + 0], and so on.
//   4 + WIDTH > 6, so terms 4 and 5 go one by one: to[4 · 8 + 0] = A[16, 4], …, to[5 · 8 + 7] = A[23, 5].
// - m = 100, columns of A run along memory: each term is two runs, which go to to[p · 8 + 0] and to[p · 8 + 4] as they are.
// - m = 20: 16 + 8 > 20, so all goes one by one, and to[p · 8 + 4] to to[p · 8 + 7] are zeros: there are no rows 20 to 23.
#include "unaligned.cl"

#define PACK(space, target, LINES, first, size, start, end, ALONG_K, RUN, NUMBER)                                          \
    do {                                                                                                                   \
        int p = start;                                                                                                     \
        if ((first) + (LINES) <= (size)) {                                                                                 \
            for (; ALONG_K && p + WIDTH <= (end); p += WIDTH)                                                              \
                for (int line = 0; line < (LINES); line += WIDTH) {                                                        \
                    wide_t x[WIDTH];                                                                                       \
                    _Pragma("unroll")                                                                                      \
                    for (int w = 0; w < WIDTH; ++w)                                                                        \
                        x[w] = RUN((first) + line + w, p);                                                                 \
                    turn(x);                                                                                               \
                    _Pragma("unroll")                                                                                      \
                    for (int w = 0; w < WIDTH; ++w)                                                                        \
                        *(space wide_t *)((target) + (index_t)(p - (start) + w) * (LINES) + line) = x[w];                  \
                }                                                                                                          \
            for (; !ALONG_K && p < (end); ++p)                                                                             \
                for (int line = 0; line < (LINES); line += WIDTH)                                                          \
                    *(space wide_t *)((target) + (index_t)(p - (start)) * (LINES) + line) = RUN((first) + line, p);        \
        }                                                                                                                  \
        for (; p < (end); ++p)                                                                                             \
            for (int line = 0; line < (LINES); ++line)                                                                     \
                (target)[(index_t)(p - (start)) * (LINES) + line] =                                                        \
                    (first) + line < (size) ? NUMBER((first) + line, p) : ACC_ZERO;                                        \
    } while (0)
#define RUN_OF_A(i, p) OF_A(load_run_anywhere(A + INDEX_A(i, p)))
#define RUN_OF_B(j, p) OF_B(load_run_anywhere(B + INDEX_B(p, j)))
#define NUMBER_OF_B(j, p) LOAD_B(p, j)
#define PACK_A(space, target, i, start, end) PACK(space, target, LINES_A, i, m, start, end, A_RUNS_ALONG_K, RUN_OF_A, LOAD_A)
#define PACK_B(space, target, j, start, end) PACK(space, target, COLUMNS, j, n, start, end, B_RUNS_ALONG_K, RUN_OF_B, NUMBER_OF_B)
