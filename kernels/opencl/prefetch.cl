// prefetch: what is needed next is on its way while what is there is multiplied. While a tile is computed, the next one comes
// from global memory into registers, to go on into the other stage of local memory; and while a term is multiplied, the next
// one comes from local memory. Both loops begin one pass early, when there is something to bring and nothing to multiply yet.
#include "runs.cl"

#define RTSM (TSM / WPTM) // work-items along the rows of the tile
#define RTSN (TSN / WPTN) // work-items along its columns
#define THREADS (RTSM * RTSN)

// Runs of a tile: of its rows, of its columns, and of its terms where an operand runs along k; and which of those that bring it
// together is the l-th of a work-item.
#define ROW_RUNS (TSM / WIDTH)
#define COLUMN_RUNS (TSN / WIDTH)
#define TERM_RUNS (TSK / WIDTH)
#define LOADS(runs) (((runs) + THREADS - 1) / THREADS)
#define RUN(l) ((l) * THREADS + item)
#define IS_RUN(run, runs) ((runs) % THREADS == 0 || (run) < (runs))

// Which run of rows is the r-th of work-item y, and of columns the c-th of x: strided, so that neighbours read neighbours.
#define ROW_RUN_OF(y, r) ((r) * RTSM + (y))
#define COLUMN_RUN_OF(x, c) ((c) * RTSN + (x))

// Where a run of a tile begins that lies along memory: on which line, which is a row of A or a column of B, and at which term.
typedef struct { int line, term; } place_t;

inline place_t place_of(int run, int line_runs, int along_k)
{
    place_t place;
    place.line = along_k ? run / TERM_RUNS : run % line_runs * WIDTH;
    place.term = along_k ? run % TERM_RUNS * WIDTH : run / line_runs;
    return place;
}

// Puts a run into a tile, which is stored by term: as it is, or, where it lies along k, element by element.
inline void put_run(__local wide_t *tile, int pitch, place_t place, int along_k, wide_t run)
{
    tile += place.term * pitch + place.line / WIDTH;
    if (along_k)
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            LOCAL_ELEMENT(tile[w * pitch], place.line % WIDTH) = ELEMENT(run, w);
    else
        STORE_LOCAL(*tile, run);
}

__kernel __attribute__((reqd_work_group_size(RTSN, RTSM, 1)))
void prefetched(GEMM_ARGUMENTS)
{
    __local wide_t a_tile[STAGES][TSK][(TSM + PAD) / WIDTH];
    __local wide_t b_tile[STAGES][TSK][(TSN + PAD) / WIDTH];

    const tile_t tile = this_tile(TSM, TSN, m, n);
    const int x = (int)get_local_id(0);
    const int y = (int)get_local_id(1);
    const int item = y * RTSN + x;
    SELECT_BATCH(tile.batch);

    wide_t sum[WPTM][WPTN / WIDTH];
    #pragma unroll
    for (int r = 0; r < WPTM; ++r)
        #pragma unroll
        for (int c = 0; c < WPTN / WIDTH; ++c)
            sum[r][c] = WIDE_ZERO;

    int stage = 0;
    int start = -TSK;
    do {
        // The next tiles set out, into registers: as they are stored, since to convert them would be to wait for them.
        const int next = start + TSK;
        in_run_t next_a[LOADS(ROW_RUNS * TSK)], next_b[LOADS(COLUMN_RUNS * TSK)];
        if (next < k) {
            #pragma unroll
            for (int l = 0; l < LOADS(ROW_RUNS * TSK); ++l) {
                const place_t place = place_of(RUN(l), ROW_RUNS, A_RUNS_ALONG_K);
                if (IS_RUN(RUN(l), ROW_RUNS * TSK))
                    next_a[l] = FETCH_RUN_A(tile.row + place.line, next + place.term);
            }
            #pragma unroll
            for (int l = 0; l < LOADS(COLUMN_RUNS * TSK); ++l) {
                const place_t place = place_of(RUN(l), COLUMN_RUNS, B_RUNS_ALONG_K);
                if (IS_RUN(RUN(l), COLUMN_RUNS * TSK))
                    next_b[l] = FETCH_RUN_B(next + place.term, tile.column + place.line);
            }
        }

        // Per term: a column of A and a row of B into registers, and the outer product of those read REG_PREFETCH terms before.
        if (start >= 0) {
            wide_t a[REG_PREFETCH + 1][WPTM / WIDTH], b[REG_PREFETCH + 1][WPTN / WIDTH];
            #pragma unroll
            for (int p = -REG_PREFETCH; p < TSK; ++p) {
                if (p + REG_PREFETCH < TSK) {
                    #pragma unroll
                    for (int r = 0; r < WPTM / WIDTH; ++r)
                        a[REG_PREFETCH][r] = a_tile[stage][p + REG_PREFETCH][ROW_RUN_OF(y, r)];
                    #pragma unroll
                    for (int c = 0; c < WPTN / WIDTH; ++c)
                        b[REG_PREFETCH][c] = b_tile[stage][p + REG_PREFETCH][COLUMN_RUN_OF(x, c)];
                }
                if (p >= 0) {
                    #pragma unroll
                    for (int r = 0; r < WPTM; ++r)
                        #pragma unroll
                        for (int c = 0; c < WPTN / WIDTH; ++c)
                            sum[r][c] = wide_mul_add(ELEMENT(a[0][r / WIDTH], r % WIDTH), b[0][c], sum[r][c]);
                }
                #pragma unroll
                for (int r = 0; r < WPTM / WIDTH; ++r)
                    a[0][r] = a[REG_PREFETCH][r];
                #pragma unroll
                for (int c = 0; c < WPTN / WIDTH; ++c)
                    b[0][c] = b[REG_PREFETCH][c];
            }
        }
#if STAGES == 1
        barrier(CLK_LOCAL_MEM_FENCE); // nobody reads the tiles any more
#endif

        // They arrive, in the stage that was computed before this one.
        stage = (stage + 1) % STAGES;
        if (next < k) {
            #pragma unroll
            for (int l = 0; l < LOADS(ROW_RUNS * TSK); ++l) {
                const place_t place = place_of(RUN(l), ROW_RUNS, A_RUNS_ALONG_K);
                if (IS_RUN(RUN(l), ROW_RUNS * TSK))
                    put_run(a_tile[stage][0], (TSM + PAD) / WIDTH, place, A_RUNS_ALONG_K, OF_A(to_sums(next_a[l])));
            }
            #pragma unroll
            for (int l = 0; l < LOADS(COLUMN_RUNS * TSK); ++l) {
                const place_t place = place_of(RUN(l), COLUMN_RUNS, B_RUNS_ALONG_K);
                if (IS_RUN(RUN(l), COLUMN_RUNS * TSK))
                    put_run(b_tile[stage][0], (TSN + PAD) / WIDTH, place, B_RUNS_ALONG_K, OF_B(to_sums(next_b[l])));
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE); // the next tiles are complete
    } while ((start += TSK) < k); // once without terms, too: PoCL runs on twice after a loop that is left out (pocl-skipped-loop)

    #pragma unroll
    for (int r = 0; r < WPTM; ++r) {
        const int i = tile.row + ROW_RUN_OF(y, r / WIDTH) * WIDTH + r % WIDTH;
        #pragma unroll
        for (int c = 0; c < WPTN / WIDTH; ++c) {
            const int j = tile.column + COLUMN_RUN_OF(x, c) * WIDTH;
            store_run(D + i * ld_d + j, C + i * ld_c + j, sum[r][c], alpha, beta, PRESENT(i < m, n - j));
        }
    }
}
