// pack: op(A) in panels of ROWS rows, op(B) in panels of COLUMNS columns, both term by term: the order in which `packed` reads
// them. They are written as sums, with zeros beyond the edges. A group writes DEPTH terms of one panel.
#include "panels.cl"

#define LINES_A ((ROWS + WIDTH - 1) / WIDTH * WIDTH) // a panel of A is stored in whole runs; what is beyond its rows is not read

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
        A += offset_a + matrix * stride_a;
        PACK_A(__global, (panels_a + (place * k + start) * LINES_A), panel * ROWS, start, end);
    } else {
        B += offset_b + matrix * stride_b;
        PACK_B(__global, (panels_b + (place * k + start) * COLUMNS), panel * COLUMNS, start, end);
    }
}
