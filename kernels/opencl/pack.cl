// pack: op(A) in panels of ROWS rows, op(B) in panels of COLUMNS columns, both term by term: the order in which `packed` reads
// them. They are written as sums, with zeros beyond the edges. A group writes DEPTH terms of one panel.
#define LINES_A ((ROWS + WIDTH - 1) / WIDTH * WIDTH) // a panel of A is stored in whole runs; what is beyond its rows is not read

// Writes the terms from `start` to `end` of a panel whose first line is `first`, of `size` there are. Runs along k are turned, so
// that the lines of each term become runs. At edges, elements are moved one by one.
#define PACK(target, LINES, size, ALONG_K, RUN, NUMBER)                                                       \
    int p = start;                                                                                            \
    if (first + (LINES) <= (size)) {                                                                          \
        for (; ALONG_K && p + WIDTH <= end; p += WIDTH)                                                       \
            for (int line = 0; line < (LINES); line += WIDTH) {                                               \
                wide_t x[WIDTH];                                                                              \
                _Pragma("unroll")                                                                             \
                for (int w = 0; w < WIDTH; ++w)                                                               \
                    x[w] = RUN(first + line + w, p);                                                          \
                turn(x);                                                                                      \
                _Pragma("unroll")                                                                             \
                for (int w = 0; w < WIDTH; ++w)                                                               \
                    *(__global wide_t *)(target + (index_t)(p + w) * (LINES) + line) = x[w];                  \
            }                                                                                                 \
        for (; !ALONG_K && p < end; ++p)                                                                      \
            for (int line = 0; line < (LINES); line += WIDTH)                                                 \
                *(__global wide_t *)(target + (index_t)p * (LINES) + line) = RUN(first + line, p);            \
    }                                                                                                         \
    for (; p < end; ++p)                                                                                      \
        for (int line = 0; line < (LINES); ++line)                                                            \
            target[(index_t)p * (LINES) + line] = first + line < (size) ? NUMBER(first + line, p) : ACC_ZERO;

#define RUN_OF_A(i, p) OF_A(load_run_anywhere(A + INDEX_A(i, p)))
#define RUN_OF_B(j, p) OF_B(load_run_anywhere(B + INDEX_B(p, j)))
#define NUMBER_OF_B(j, p) LOAD_B(p, j)

// Of the groups, the first groups_a write panels of A.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack(
    __global const in_t *restrict A, index_t offset_a, index_t ld_a, index_t stride_a,
    __global const in_t *restrict B, index_t offset_b, index_t ld_b, index_t stride_b,
    __global acc_t *restrict panels_a, __global acc_t *restrict panels_b,
    int m, int n, int k, int groups_a)
{
    int group = (int)get_group_id(0);
    const int of_a = group < groups_a;
    group -= of_a ? 0 : groups_a;

    const int pieces = (k + DEPTH - 1) / DEPTH;
    const int panels = of_a ? (m + ROWS - 1) / ROWS : (n + COLUMNS - 1) / COLUMNS;
    // Neighbours among the groups read what are neighbours in memory.
    const int along_k = of_a ? A_RUNS_ALONG_K : B_RUNS_ALONG_K;
    const int piece = along_k ? group % pieces : group / panels % pieces;
    const int panel = along_k ? group / pieces % panels : group % panels;
    const int start = piece * DEPTH, end = min(k, start + DEPTH), matrix = group / pieces / panels;
    const index_t place = (index_t)matrix * panels + panel; // among those of all matrices
    if (of_a) {
        __global acc_t *target = panels_a + place * k * LINES_A;
        const int first = panel * ROWS;
        A += offset_a + matrix * stride_a;
        PACK(target, LINES_A, m, A_RUNS_ALONG_K, RUN_OF_A, LOAD_A)
    } else {
        __global acc_t *target = panels_b + place * k * COLUMNS;
        const int first = panel * COLUMNS;
        B += offset_b + matrix * stride_b;
        PACK(target, COLUMNS, n, B_RUNS_ALONG_K, RUN_OF_B, NUMBER_OF_B)
    }
}
