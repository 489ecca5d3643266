// packed: the loops of BLIS on a CPU. A thread computes a macro-tile of MC × NC, micro-tile by micro-tile: the sums of one stay
// in registers while a panel of ROWS rows of A and one of COLUMNS columns of B go by. `pack` has laid the panels out in the order
// in which they are read, with zeros beyond the edges: only what is written back looks at them. They hold numbers, MR = NUMBERS ·
// ROWS lines of them: a complex element is two.
#include "panels.cu"

#define LINES_A ((ROWS + WIDTH - 1) / WIDTH * WIDTH) // a panel of A is stored in whole runs; what is beyond its rows is not read

// The sums are variables of their own, sum_0_0 and so on: compilers keep these in registers, but not always arrays. So
// loops over them are macros, which write F(r, v) out for each of the NR vectors of a line, and for each of the MR lines.
#define VECTORS_1(F, r) F(r, 0)
#define VECTORS_2(F, r) VECTORS_1(F, r) F(r, 1)
#define VECTORS_3(F, r) VECTORS_2(F, r) F(r, 2)
#define VECTORS_4(F, r) VECTORS_3(F, r) F(r, 3)
#define EACH_VECTOR(F, r) PASTE(VECTORS_, NR)(F, r)
#define LINES_2(F) EACH_VECTOR(F, 0) EACH_VECTOR(F, 1)
#define LINES_4(F) LINES_2(F) EACH_VECTOR(F, 2) EACH_VECTOR(F, 3)
#define LINES_6(F) LINES_4(F) EACH_VECTOR(F, 4) EACH_VECTOR(F, 5)
#define LINES_8(F) LINES_6(F) EACH_VECTOR(F, 6) EACH_VECTOR(F, 7)
#define LINES_10(F) LINES_8(F) EACH_VECTOR(F, 8) EACH_VECTOR(F, 9)
#define LINES_12(F) LINES_10(F) EACH_VECTOR(F, 10) EACH_VECTOR(F, 11)
#define LINES_14(F) LINES_12(F) EACH_VECTOR(F, 12) EACH_VECTOR(F, 13)
#define EACH_SUM(F) PASTE(LINES_, MR)(F)

// Where a macro-tile reaches over all of the short side of D, no other reads its lines of the long operand: it makes their panels
// itself, in a cache, so that they do not travel through memory. Terms that lie apart in memory are packed a few at a time in
// all panels.
#define AT_ONCE(ALONG_K) (ALONG_K ? KC : 16)
#if OWN_A
#define SPACE_A // a pointer of CUDA's points anywhere
#define PANEL_A(i) ((acc_t *)own + ((i) - tile.row) / ROWS * (KC * LINES_A))
#else
#define SPACE_A
#define PANEL_A(i) (panels_a + (i) / ROWS * ld_a + (index_t)start * LINES_A)
#endif
#if OWN_B
#define SPACE_B // a pointer of CUDA's points anywhere
#define PANEL_B(j) ((acc_t *)own + ((j) - tile.column) / COLUMNS * (KC * COLUMNS))
#else
#define SPACE_B
#define PANEL_B(j) (panels_b + (j) / COLUMNS * ld_b + (index_t)start * COLUMNS)
#endif

// Where D cannot keep sums of some of the terms, they stand in memory of their own meanwhile: ROWS × NR vectors for each micro-tile.
#if KEEPS_SUMS
#define KEPT_SUMS , wide_t *kept_sums
#else
#define KEPT_SUMS
#endif

#define CLEAR(r, v) wide_t sum_##r##_##v = WIDE_ZERO;
#define LOAD(r, v) const wide_t b_##v = b[v];
#define ADD(r, v) sum_##r##_##v = add_products(a[r], b_##v, sum_##r##_##v);
#define KEEP(r, v) sums[r][v] = sum_##r##_##v;

extern "C" __global__ __launch_bounds__(1)
void packed(GEMM_ARGUMENTS KEPT_SUMS)
{
    const tile_t tile = this_tile(MC, NC, m, n);
    C += offset_c + tile.batch * stride_c;
    D += offset_d + tile.batch * stride_d;
    // Panels that `pack` made are ld_a, or ld_b, apart.
#if OWN_A
    __shared__ wide_t own[MC / ROWS * KC * LINES_A / WIDTH];
    A += offset_a + tile.batch * stride_a;
#else
    const acc_t *panels_a = (const acc_t *)A + tile.batch * stride_a;
#endif
#if OWN_B
    __shared__ wide_t own[NC / WIDTH * KC];
    B += offset_b + tile.batch * stride_b;
#else
    const acc_t *panels_b = (const acc_t *)B + tile.batch * stride_b;
#endif

    // KC terms at a time, so that what is read of a panel of B stays in a cache while the panels of A go by.
    int start = 0;
    do {
        const int end = min(k, start + KC);
#if OWN_A
        for (int first = start; first < end; first += AT_ONCE(A_RUNS_ALONG_K))
            for (int i = tile.row; i < min(tile.row + MC, m); i += ROWS)
                PACK_A(PANEL_A(i) + (first - start) * LINES_A, i, first, min(first + AT_ONCE(A_RUNS_ALONG_K), end));
#endif
#if OWN_B
        for (int first = start; first < end; first += AT_ONCE(B_RUNS_ALONG_K))
            for (int j = tile.column; j < min(tile.column + NC, n); j += COLUMNS)
                PACK_B(PANEL_B(j) + (first - start) * COLUMNS, j, first, min(first + AT_ONCE(B_RUNS_ALONG_K), end));
#endif
        for (int j = tile.column; j < min(tile.column + NC, n); j += COLUMNS)
            for (int i = tile.row; i < min(tile.row + MC, m); i += ROWS) {
                SPACE_A const number_t *a = (SPACE_A const number_t *)PANEL_A(i);
                SPACE_B const wide_t *b = (SPACE_B const wide_t *)PANEL_B(j);
                EACH_SUM(CLEAR)
                for (int p = start; p < end; ++p, a += NUMBERS * LINES_A, b += NR) {
                    EACH_VECTOR(LOAD, 0)
                    EACH_SUM(ADD)
                }
                wide_t sums[MR][NR];
                EACH_SUM(KEEP)
#if KEEPS_SUMS
                const index_t across = (n + COLUMNS - 1) / COLUMNS, down = (m + ROWS - 1) / ROWS; // micro-tiles
                wide_t *kept = kept_sums + ((tile.batch * down + i / ROWS) * across + j / COLUMNS) * (ROWS * NR);
#endif

                // The first terms meet beta and C, all others what was written before them.
                for (int r = 0; r < ROWS && INSIDE(i + r < m); ++r)
                    for (int v = 0; v < NR; ++v) {
                        const wide_t sum = joined(sums[NUMBERS * r][v], sums[NUMBERS * r + NUMBERS - 1][v]);
                        const int row = i + r, column = j + v * WIDTH;
#if KEEPS_SUMS
                        const wide_t with_kept = start ? lanes_sum(sum, kept[r * NR + v]) : sum;
                        if (end < k)
                            kept[r * NR + v] = with_kept;
                        else
                            store_run_anywhere(
                                D + row * ld_d + column, C + row * ld_c + column, with_kept, alpha, beta,
                                PRESENT(row < m, n - column));
#else
                        out_t *d = D + row * ld_d + column;
                        const out_t *c = start ? d : C + row * ld_c + column;
                        store_run_anywhere(d, c, sum, alpha, start ? ACC_ONE : beta, PRESENT(row < m, n - column));
#endif
                    }
            }
    } while ((start += KC) < k);
}
