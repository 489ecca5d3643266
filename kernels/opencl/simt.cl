// simt: what a GPU's multiply-add units ask for. Tiles of A and B are copied to local memory while nobody waits for them,
// STAGES - 1 ahead of that which is multiplied; a warp computes a tile of its own, and a work-item has the numbers of the next term
// in registers while it multiplies those of this one; one barrier parts two tiles. A tile along k that is not whole comes first,
// so that the loop has nothing to check. With several SLICES, as many sets of warps share the terms of a step. Where tiles do not
// fill the compute units evenly, the last of them are cut along k.
//
// With SOON, loops that need not be written out are not, and nothing stands in two places, so that the program compiles in little
// more than half of the time: for first calls, without the matrix unit. The bits are the same.
#include "ptx.cl"
#include "runs.cl"
#include "shares.cl"

#if MMA == 2
#define WARP 64 // a wave
#else
#define WARP 32
#endif
#define WARPS_N (TSN / WN)
#define SLICE_THREADS (TSM / WM * WARPS_N * WARP)
#define THREADS (SLICE_THREADS * SLICES)
#define TERMS (TSK / SLICES) // of a step, for each slice
#define LANES_N (WN / WPTN) // work-items of a warp along its columns
#define LANES_M (WM / WPTM) // and along its rows
#define LANE_N(item) item % LANES_N // where it is among the former
#define LANE_M(item) item % WARP / LANES_N // and among the latter
#if MMA == 2
#define ROW_RUNS (WPTM / WIDTH / 4) // that it reads
#else
#define ROW_RUNS (WPTM / WIDTH)
#endif
#define COLUMN_RUNS (WPTN / WIDTH)
#define PITCH_A (TSM + PAD) // numbers from one term of a tile to the next
#define PITCH_B (TSN + PAD)
#define RUNS (WPTM * COLUMN_RUNS) // of a work-item's sums
#define RUNS_READ 8 // of C at once: what hides the latency, and fits in the registers that the loop no longer needs
#define STAGE (TSK * (PITCH_A + PITCH_B)) // numbers of one tile of A, and one of B behind it
#define STAGE_BYTES (STAGE * (int)sizeof(acc_t))
#define BYTES_ON(place, bytes) ((__local acc_t *)((__local char *)(place) + (bytes))) // one addition, with nothing to scale

// Where a tile, which holds its lines, rows of A or columns of B, by term, has a number; `more` is known to the compiler. With MMA, the
// matrix unit adds up AT_ONCE terms at once, and the lanes of a warp read different ones: the lines of each are turned by as many
// banks as keep these reads apart, which takes no memory.
#if LINES_A || LINES_B
// Or eight terms stand together, of which a lane reads two neighbouring ones: so what lies along k may be held as it lies, by line, in runs
// of 16 bytes. It is the operand of the unit's columns, B; where a warp's tile is spread the other way round, they are EXCHANGED: its rows
// are B's columns, and its columns A's rows. With UNIT_TERMS = 8, the other operand may be held so, too.
#define QUAD 4 // lanes that have the terms of one of its rows
#define TOGETHER (2 * QUAD)
#define AT_ONCE UNIT_TERMS
#define JOINED 1
#define EXCHANGED (WN / WPTN == 8)
#define TURNED(line, term) ((line) ^ (term) / 2 % QUAD * 4)
#define PLACE(pitch, term, line, more) (term) * (pitch) + TURNED((line) + (more), term)
#if EXCHANGED
#undef LANE_N
#undef LANE_M
#define LANE_N(item) item % WARP / LANES_M
#define LANE_M(item) item % LANES_M
#endif
#elif MMA == 1
#define AT_ONCE 4
#define JOINED 2 // neighbouring runs of columns of a work-item
#if defined(COMPLEX_ARITHMETIC)
#define TURNED(line, term) ((line) ^ (term) % AT_ONCE * 2)
#undef OF_A // `multiply` conjugates
#undef OF_B
#define OF_A(run) run
#define OF_B(run) run
#else
#define TURNED(line, term) ((line) ^ (term) % AT_ONCE * 4)
#endif
#define PLACE(pitch, term, line, more) (term) * (pitch) + TURNED((line) + (more), term)
#else
#if MMA == 2
#define AT_ONCE 4
#else
#define AT_ONCE 1
#endif
#define JOINED 1
#define PLACE(pitch, term, line, more) (term) * (pitch) + (line) + (more)
#endif

// Where rows of D are not aligned, elements are stored one by one. So that neighbours store neighbouring ones, the columns of a
// work-item's run are then APART, by as many as a warp has work-items side by side (else by 1). A tile holds the numbers of a run
// side by side all the same, so its slots hold columns in another order; this is the line in a slot. Where two slots have no bit in
// common, or one is a multiple of apart * WIDTH, the line of their sum is the sum of their lines: where a work-item begins, and how much
// further on its copies are.
#define LINE_IN(slot, apart) \
    ((apart) == 1 ? (slot) \
                  : (slot) / ((apart) * WIDTH) * ((apart) * WIDTH) + (slot) % WIDTH * (apart) + (slot) / WIDTH % (apart))

// Copies a run, or one element, to local memory where `wanted`: those of it that are present, and zeros for the rest. A copy
// that is not wanted is predicated off, not branched around: the loop remains one straight line.
#if ASYNC_COPIES
inline void copy_whole(__local acc_t *to, __global const in_t *from, int wanted)
{
    COPY_16(to, from, wanted);
}
inline void copy_part(__local acc_t *to, __global const in_t *from, int wanted, int present)
{
    const int bytes = max(min(present, WIDTH), 0) * (int)sizeof(in_t);
    COPY_16_OF(to, from, wanted, bytes);
}
inline void copy_element(__local acc_t *to, __global const in_t *from, int wanted, int whole, int present)
{
    if (whole)
        COPY_SIZE(to, from, wanted, sizeof(in_t));
    else {
        const int bytes = present ? (int)sizeof(in_t) : 0;
        COPY_SIZE_OF(to, from, wanted, sizeof(in_t), bytes);
    }
}
// The compiler shall have it now: go on from there by one addition, and not compute each address from that of the first.
#define TAKEN(place) TOUCH_PLACE(place)
// What is read before the loop, and again at its end, is read there: NVIDIA's OpenCL compiler makes one read of both, at the start of
// the loop, where all wait for it, but not where something in between may write memory.
#define END_OF_READS() TOUCH_MEMORY()
#define END_OF_COPIES() COMMIT_COPIES()
// Waits for all copies of this work-item but those of the last `tiles` tiles.
#define AWAIT_COPIES(tiles) WAIT_FOR_COPIES(tiles)
#else
inline void copy_part(__local acc_t *to, __global const in_t *from, int wanted, int present)
{
    if (wanted)
        *(__local wide_t *)to = to_sums(fetch_run(from, present, 1));
}
inline void copy_whole(__local acc_t *to, __global const in_t *from, int wanted) { copy_part(to, from, wanted, WIDTH); }
inline void copy_element(__local acc_t *to, __global const in_t *from, int wanted, int whole, int present)
{
    if (wanted)
        *to = whole || present ? load(from) : ACC_ZERO;
}
#define TAKEN(place)
#define END_OF_READS()
#define END_OF_COPIES()
#define AWAIT_COPIES(tiles)
#endif

// Where a work-item begins in a tile of an operand, rows of A or columns of B: its first slot and its first term. Along k neighbours
// bring neighbouring terms, one by one; else neighbouring runs of lines, with as many work-items beside it as leave each its term, or
// fill a sector. A work-item's copies lie at fixed distances from the first, and take few instructions: ACROSS of them side by side,
// STEP lines, or terms, before the next.
//
// In numbers, where 256 work-items bring tiles of 128 and of 256 lines: with TSM = 128, TSN = 256, TSK = 8, WM = 32, WN = 128, WPTM = 8,
// WPTN = 16, SLICES = 1, STAGES = 3 and WIDTH = 4,
//     THREADS = 256
//   runs lie along the lines: 32 work-items bring the runs of 128 lines of a term, and 8 times as many all terms,
//     BESIDE(128) = 32
//     LINE_STEP(128) = 128
//     STEP(128, 0) = 8
//   and as 256 lines are twice as many, each work-item has two copies side by side:
//     ACROSS(128, 0) = 1
//     COPIES(128, 0) = 1
//     ACROSS(256, 0) = 2
//     COPIES(256, 0) = 2
//   runs lie along k: 8 work-items bring the terms of a line, one by one, and all of them those of 32 lines,
//     STEP(128, 1) = 32
//     STEPS(128, 1) = 4
//     COPIES(128, 1) = 4
#define BESIDE(lines) min((lines) / WIDTH, max(THREADS / TSK, 8))
#define LINE_STEP(lines) (BESIDE(lines) * WIDTH)
#define ACROSS(lines, along_k) ((along_k) ? 1 : ((lines) + LINE_STEP(lines) - 1) / LINE_STEP(lines))
#define STEP(lines, along_k) (THREADS / ((along_k) ? TSK : BESIDE(lines)))
#define STEPS(lines, along_k) ((((along_k) ? (lines) : TSK) + STEP(lines, along_k) - 1) / STEP(lines, along_k))
#define COPIES(lines, along_k) (STEPS(lines, along_k) * ACROSS(lines, along_k))
inline int slot_of(int item, int lines, int along_k)
{
    return along_k ? item / TSK : item % BESIDE(lines) * WIDTH;
}
inline int term_of(int item, int lines, int along_k)
{
    return along_k ? item % TSK : item / BESIDE(lines);
}

// Brings TSK terms of so many lines of an operand to a tile that holds them by term: of a work-item's copies those from `begin` to before
// `end`. `from` is where the next of them begins, and so is what is returned; behind the last one, so many terms further on. Where
// nothing is known to be whole, lines and terms that are not left are zero.
inline __attribute__((always_inline)) __global const in_t *bring(
    __local acc_t *tile, int pitch, __global const in_t *from, index_t ld, int lines, int apart, int along_k, int aligned,
    int begin, int end, int wanted, int whole, int lines_left, int terms, int item)
{
    const int first_slot = slot_of(item, lines, along_k);
    const int first_term = term_of(item, lines, along_k);
    const int step = STEP(lines, along_k);
    const int line_step = along_k ? step : LINE_STEP(lines);
#define FURTHER(steps) (along_k ? LINE_IN((steps) * step, apart) : (steps) * step) // lines, or terms, from the first
    #pragma unroll
    for (int c = 0; c < COPIES(lines, along_k); ++c) {
        const int l = (along_k ? c : c % ACROSS(lines, along_k)) * line_step;
        const int p = along_k ? 0 : c / ACROSS(lines, along_k) * step;
        if (c < begin || c >= end)
            continue;
        if ((TSK % step == 0 || p + first_term < TSK) && (along_k || THREADS % BESIDE(lines) == 0 || first_term < step)
            && (lines % line_step == 0 || l + first_slot < lines)) {
            __local acc_t *to = tile + PLACE(pitch, first_term + p, first_slot, l);
            __global const in_t *run = along_k ? from : from + LINE_IN(l, apart);
            const int present = p + first_term < terms ? lines_left - LINE_IN(l, apart) - LINE_IN(first_slot, apart) : 0;
            if (along_k)
                copy_element(to, run, wanted, whole, present > 0);
            else if (aligned && whole)
                copy_whole(to, run, wanted);
            else if (aligned)
                copy_part(to, run, wanted, present);
            else
                #pragma unroll
                for (int w = 0; w < WIDTH; ++w)
                    copy_element(to + w, run + w * apart, wanted, whole, w * apart < present);
        }
        if ((c + 1) % ACROSS(lines, along_k) == 0) {
            from += (FURTHER(c / ACROSS(lines, along_k) + 1) - FURTHER(c / ACROSS(lines, along_k))) * ld;
            if (along_k)
                TAKEN(from);
        }
    }
    if (begin < COPIES(lines, along_k) && COPIES(lines, along_k) <= end)
        from += (along_k ? 1 : ld) * terms - FURTHER(STEPS(lines, along_k)) * ld;
    return from;
}

#if LINES_A || LINES_B
// Likewise of an operand along k, to a tile that holds it by line. Runs of 16 bytes bring two terms, and neighbours bring a line's. A warp
// reads from two lines at once, neighbours or APART_BY 2; where they have 128 bytes or more, one of them exchanges its pairs of four runs,
// so that they lie in other banks.
#define RUNS_OF_LINE (TSK / WIDTH)
#define LINES_BESIDE (THREADS / RUNS_OF_LINE)
#define COPIES_OF(lines) (((lines) + LINES_BESIDE - 1) / LINES_BESIDE)
#define PAIR_IN(line, apart_by) (TSK > TOGETHER ? (line) / (apart_by) % 2 * TOGETHER : 0)
inline int line_of(int item) { return item / RUNS_OF_LINE; }
inline int run_of_line(int item) { return item % RUNS_OF_LINE * WIDTH; }
inline __attribute__((always_inline)) __global const in_t *bring_lines(
    __local acc_t *tile, __global const in_t *from, index_t ld, int lines, int apart_by, int begin, int end, int wanted, int whole,
    int lines_left, int terms, int item)
{
    const int first_line = line_of(item);
    const int first_term = run_of_line(item);
    #pragma unroll
    for (int c = 0; c < COPIES_OF(lines); ++c) {
        const int l = c * LINES_BESIDE;
        if (c < begin || c >= end)
            continue;
        if (lines % LINES_BESIDE == 0 || l + first_line < lines) {
            __local acc_t *to = tile + (first_line + l) * TSK + (first_term ^ PAIR_IN(first_line + l, apart_by));
            if (whole)
                copy_whole(to, from, wanted);
            else
                copy_part(to, from, wanted, first_term < terms && l + first_line < lines_left ? WIDTH : 0);
        }
        from += LINES_BESIDE * ld;
        TAKEN(from);
    }
    if (begin < COPIES_OF(lines) && COPIES_OF(lines) <= end)
        from += terms - COPIES_OF(lines) * LINES_BESIDE * ld;
    return from;
}
#endif

// A work-item's copies of a tile of A and one of B set out in pieces, one behind the reads of each of the first terms: reads queue behind
// copies, of which one by elements takes as long as four reads. With two tiles there is no time to lose.
#define AT_A_TERM 4
#if LINES_A
#define SLICE_OF_A(slice) 0 // where it begins in a tile; by line, each run tells
#define COPIES_A COPIES_OF(TSM)
#define LINE_OF_A(item) line_of(item) // where it begins
#define TERM_OF_A(item) run_of_line(item)
#define BRING_A(tile, begin, end, wanted, whole, terms) \
    bring_lines(tile, a_from, ld_a, TSM, EXCHANGED ? 1 : 2, begin, end, wanted, whole, rows_left, terms, item)
#else
#define SLICE_OF_A(slice) slice * TERMS * PITCH_A
#define COPIES_A COPIES(TSM, A_RUNS_ALONG_K)
#define LINE_OF_A(item) slot_of(item, TSM, A_RUNS_ALONG_K)
#define TERM_OF_A(item) term_of(item, TSM, A_RUNS_ALONG_K)
#define BRING_A(tile, begin, end, wanted, whole, terms)                                                                 \
    bring(                                                                                                              \
        tile, PITCH_A, a_from, ld_a, TSM, 1, A_RUNS_ALONG_K, ALIGNED_A, begin, end, wanted, whole, rows_left, terms, item)
#endif
#if LINES_B
#define SLICE_OF_B(slice) 0 // where it begins in a tile; by line, each run tells
#define COPIES_B COPIES_OF(TSN)
#define LINE_OF_B(item) line_of(item)
#define TERM_OF_B(item) run_of_line(item)
#define BRING_B(tile, begin, end, wanted, whole, terms) \
    bring_lines(tile, b_from, ld_b, TSN, EXCHANGED ? 2 : 1, begin, end, wanted, whole, columns_left, terms, item)
#else
#define SLICE_OF_B(slice) slice * TERMS * PITCH_B
#define COPIES_B COPIES(TSN, B_RUNS_ALONG_K)
#define LINE_OF_B(item) LINE_IN(slot_of(item, TSN, B_RUNS_ALONG_K), APART)
#define TERM_OF_B(item) term_of(item, TSN, B_RUNS_ALONG_K)
#define BRING_B(tile, begin, end, wanted, whole, terms)                                                                     \
    bring(                                                                                                                  \
        tile, PITCH_B, b_from, ld_b, TSN, APART, B_RUNS_ALONG_K, ALIGNED_B, begin, end, wanted, whole, columns_left, terms, item)
#endif

// In the example above, with A_RUNS_ALONG_K = 1 and B_RUNS_ALONG_K = 0, 4 copies of A and 2 of B set out in two pieces of three, the
// second of which begins with copy 3:
//     COPIES_A = 4
//     COPIES_B = 2
//     PIECES = 2
//     PIECE(1) = 3
//     PIECE(2) = 6
#define PIECES min((COPIES_A + COPIES_B + AT_A_TERM - 1) / AT_A_TERM, STAGES > 2 ? TERMS / AT_ONCE - 1 : 1)
#define PIECE(number) ((COPIES_A + COPIES_B) * (number) / PIECES) // where it begins

// Which elements of a run of D are a tile's to store: those inside; of tiles that overlap, those from a multiple of their size on.
#if OVERLAP
#define FIND_OWN(tile)                                            \
    const int own_row = ((tile).row + TSM - 1) / TSM * TSM;       \
    const int own_column = ((tile).column + TSN - 1) / TSN * TSN
#define OWN_BEGIN(i, j) ((i) >= own_row ? own_column - (j) : WIDTH * APART)
#define OWN_END(i, j) (WIDTH * APART)
#else
#define FIND_OWN(tile)
#define OWN_BEGIN(i, j) 0
#define OWN_END(i, j) PRESENT((i) < m, n - (j))
#endif

#define PART(sharer, has_first, r, c, item) \
    (((((index_t)(sharer) * 2 + (has_first)) * WPTM + (r)) * COLUMN_RUNS + (c)) * SLICE_THREADS + (item))

// Where a work-item's sums lie in a tile, if it is that one of its slice: in runs, those of neighbours side by side.
inline int row_of(int item, int r)
{
    return item / WARP / WARPS_N * WM + (r / WIDTH * LANES_M + LANE_M(item)) * WIDTH + r % WIDTH;
}
inline int slot_of_columns(int item, int c)
{
    return item / WARP % WARPS_N * WN + ((c / JOINED * LANES_N + LANE_N(item)) * JOINED + c % JOINED) * WIDTH;
}
inline int column_of(int item, int c) { return LINE_IN(slot_of_columns(item, c), APART); }

inline wide_t wide_sum(wide_t x, wide_t y)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = sum_of(ELEMENT(x, w), ELEMENT(y, w));
    return x;
}

// Where in a tile the first of a work-item's numbers are. Without the matrix unit, they are those of its sums. What the unit
// multiplies and adds up is spread over a warp (PTX ISA, mma.m16n8k4 with .f64): work-item 4 · g + t has term t of the unit's rows g
// and g + 8 and of its column g, and the sums of these rows in columns 2 · t and 2 · t + 1.
#if LINES_A || LINES_B
#define ROW_LANES LANES_M
#define COLUMN_STEP (LANES_N * WIDTH)
#define UNIT_LANE(item) ((item) % WARP / QUAD) // g
#define UNIT_TERM(item) ((item) % QUAD * 2)    // of TOGETHER; and the next one
#define TERMS_BEFORE(p) ((p) / TOGETHER * TOGETHER + (p) / QUAD % 2) // of what it reads p terms on
#define PARTS (UNIT_TERMS / QUAD) // of the two terms, that the unit multiplies at once
#if EXCHANGED
#define A_READ ROW_RUNS
#define B_READ (COLUMN_RUNS * PARTS)
#else
#define A_READ (ROW_RUNS * PARTS)
#define B_READ COLUMN_RUNS
#endif
inline int first_by_line(int item, int line, int apart_by)
{
    return (line + UNIT_LANE(item) * apart_by) * TSK + UNIT_TERM(item);
}
inline int first_of_a(int item)
{
#if LINES_A
    return first_by_line(item, item / WARP / WARPS_N * WM, EXCHANGED ? 1 : 2);
#else
    return PLACE(PITCH_A, UNIT_TERM(item), row_of(item, 0), 0);
#endif
}
inline int first_of_b(int item)
{
#if LINES_B
    return first_by_line(item, item / WARP % WARPS_N * WN, EXCHANGED ? 2 : 1);
#else
    return PLACE(PITCH_B, UNIT_TERM(item), slot_of_columns(item, 0), 0);
#endif
}
#elif MMA == 1
#define ROW_LANES LANES_M
#define COLUMN_STEP (LANES_M * WIDTH)
inline int first_of_a(int item) { return PLACE(PITCH_A, item % AT_ONCE, row_of(item, 0), 0); }
inline int first_of_b(int item)
{
    return PLACE(PITCH_B, item % AT_ONCE, item / WARP % WARPS_N * WN + item % WARP / LANES_N * WIDTH, 0);
}
#elif MMA == 2
// AMD's matrix cores multiply 16 × 4 numbers by 4 × 16 that the 64 lanes of a wave have (AMD MI200 ISA guide; AMD Matrix Instruction
// Calculator, v_mfma_f32_16x16x4f32 and v_mfma_f64_16x16x4f64): lane 16 · t + i has term t of the cores' row i and of their column i, and
// four sums of column i: of float32 those of rows 4 · t to 4 · t + 3, of float64 those of rows t, t + 4, t + 8 and t + 12. Its s-th sum
// shall be that of line 4 · s + t of a tile, so that lanes have runs side by side. CORE_ROW is the line of the row that a lane has.
#define CORE_TERM(item) ((item) % WARP / 16)
#define CORE_COLUMN(item) ((item) % 16)
#define CORE_ROW(item) PASTE(CORE_ROW_, ACC)(item)
#define CORE_ROW_float32(item) ((item) % 4 * 4 + (item) % 16 / 4)
#define CORE_ROW_float64(item) ((item) % 16)
#define CORE_MUL_ADD PASTE(CORE_MUL_ADD_, ACC)
#define CORE_MUL_ADD_float32 CORE_MUL_ADD_32
#define CORE_MUL_ADD_float64 CORE_MUL_ADD_64
#define ROW_LANES LANES_N
#define COLUMN_STEP (LANES_N * WIDTH)
inline int first_of_a(int item)
{
    return PLACE(PITCH_A, CORE_TERM(item), item / WARP / WARPS_N * WM + CORE_ROW(item) * WIDTH, 0);
}
inline int first_of_b(int item)
{
    return PLACE(PITCH_B, CORE_TERM(item), item / WARP % WARPS_N * WN + CORE_COLUMN(item) * WIDTH, 0);
}
#else
#define ROW_LANES LANES_M
#define COLUMN_STEP (LANES_N * WIDTH)
inline int first_of_a(int item) { return row_of(item, 0); }
inline int first_of_b(int item) { return slot_of_columns(item, 0); }
#endif

#if !(LINES_A || LINES_B)
#define A_READ ROW_RUNS
#define B_READ COLUMN_RUNS / JOINED
#endif

// A work-item's numbers of the terms that are added at once; and what they add to its sums.
inline void read_rows(wide_t *a, __local const acc_t *place)
{
    #pragma unroll
    for (int r = 0; r < ROW_RUNS; ++r)
        a[r] = OF_A(*(__local const wide_t *)(place + r * ROW_LANES * WIDTH));
}
inline void read_columns(wide_t *b, __local const acc_t *place)
{
    #pragma unroll
    for (int c = 0; c < COLUMN_RUNS / JOINED; ++c)
        b[c] = OF_B(*(__local const wide_t *)(place + c * COLUMN_STEP));
}
#if MMA == 1
#if UNIT_ROWS == 8 // before compute capability 9.0: two products of 8 rows make one of 16
#define UNIT_MUL_ADD(d00, d01, d10, d11, a0, a1, b) \
    do {                                            \
        MATRIX_MUL_ADD_8(d00, d01, a0, b);          \
        MATRIX_MUL_ADD_8(d10, d11, a1, b);          \
    } while (0)
#else
#define UNIT_MUL_ADD MATRIX_MUL_ADD_16
#endif
#if defined(COMPLEX_ARITHMETIC)
// A product of complex numbers is four of real ones: (x + yi)(u + vi) = (x + yi)u + (-y + xi)v. A run is one number here, whose parts,
// as they lie in memory, are in the unit's rows g and g + 8, and so are those of its sums: a number of A is multiplied by real parts of B,
// and, times i, by imaginary ones. Where A is conjugated, so are the sums, behind the loop: conj(a)b = conj(a conj(b)). So nothing is
// negated but parts of B, where the unit reads them, which takes no instruction, and, once for a row, those of A times i.
#define REAL 0
#define IMAGINARY 1
#define NUMBER(x, part) (((number_t *)&(x))[part])
#define NEGATED(part) ((part) == IMAGINARY && CONJUGATE_A != CONJUGATE_B) // of B
inline void multiply(const wide_t *a, const wide_t *b, wide_t (*sum)[COLUMN_RUNS])
{
    #pragma unroll
    for (int r = 0; r < WPTM; ++r)
        #pragma unroll
        for (int part = REAL; part <= IMAGINARY; ++part) {
            const number_t real = part == REAL ? NUMBER(a[r], REAL) : -NUMBER(a[r], IMAGINARY);
            const number_t imaginary = part == REAL ? NUMBER(a[r], IMAGINARY) : NUMBER(a[r], REAL);
            #pragma unroll
            for (int c = 0; c < COLUMN_RUNS; c += JOINED)
                UNIT_MUL_ADD(
                    NUMBER(sum[r][c], REAL), NUMBER(sum[r][c + 1], REAL), NUMBER(sum[r][c], IMAGINARY), NUMBER(sum[r][c + 1], IMAGINARY),
                    real, imaginary, NEGATED(part) ? -NUMBER(b[c / JOINED], part) : NUMBER(b[c / JOINED], part));
        }
}
#else
#if LINES_A || LINES_B
#if UNIT_ROWS == 8
#define MUL_ADD_EIGHT(d00, d01, d10, d11, a0, a1, a2, a3, b0, b1) \
    do {                                                          \
        UNIT_MUL_ADD(d00, d01, d10, d11, a0, a1, b0);             \
        UNIT_MUL_ADD(d00, d01, d10, d11, a2, a3, b1);             \
    } while (0)
#else
#define MUL_ADD_EIGHT MATRIX_MUL_ADD_16_8
#endif
// Each run of the operand that the tile holds by line is two terms of one of the unit's columns, of which this takes `part`, or both at once.
// Of the other operand, it has two rows of one term and then of the next, or, by line, two terms of one row and then of the next.
#if LINES_A && LINES_B
#define FIRST_OF(x, group, groups) (x)[(group) * 2]
#define SECOND_OF(x, group, groups) (x)[(group) * 2 + 1]
#define MUL_ADD_PARTS(d00, d01, d10, d11, first, second, run, part) \
    MUL_ADD_EIGHT(                                                  \
        d00, d01, d10, d11, ELEMENT(first, 0), ELEMENT(second, 0), ELEMENT(first, 1), ELEMENT(second, 1), ELEMENT(run, 0), ELEMENT(run, 1))
#elif UNIT_TERMS == 8
#define FIRST_OF(x, group, groups) (x)[group]
#define SECOND_OF(x, group, groups) (x)[(group) + (groups)]
#define MUL_ADD_PARTS(d00, d01, d10, d11, first, second, run, part) \
    MUL_ADD_EIGHT(                                                  \
        d00, d01, d10, d11, ELEMENT(first, 0), ELEMENT(first, 1), ELEMENT(second, 0), ELEMENT(second, 1), ELEMENT(run, 0), ELEMENT(run, 1))
#else
#define FIRST_OF(x, group, groups) (x)[group]
#define SECOND_OF(x, group, groups) 0
#define MUL_ADD_PARTS(d00, d01, d10, d11, first, second, run, part) \
    UNIT_MUL_ADD(d00, d01, d10, d11, ELEMENT(first, 0), ELEMENT(first, 1), ELEMENT(run, part))
#endif
inline void multiply(const wide_t *a, const wide_t *b, int part, wide_t (*sum)[COLUMN_RUNS])
{
    #pragma unroll
    for (int r = 0; r < WPTM; r += WIDTH)
        #pragma unroll
        for (int c = 0; c < COLUMN_RUNS; ++c)
#if EXCHANGED
            MUL_ADD_PARTS(
                ELEMENT(sum[r][c], 0), ELEMENT(sum[r + 1][c], 0), ELEMENT(sum[r][c], 1), ELEMENT(sum[r + 1][c], 1),
                FIRST_OF(b, c, COLUMN_RUNS), SECOND_OF(b, c, COLUMN_RUNS), a[r / WIDTH], part);
#else
            MUL_ADD_PARTS(
                ELEMENT(sum[r][c], 0), ELEMENT(sum[r][c], 1), ELEMENT(sum[r + 1][c], 0), ELEMENT(sum[r + 1][c], 1),
                FIRST_OF(a, r / WIDTH, ROW_RUNS), SECOND_OF(a, r / WIDTH, ROW_RUNS), b[c], part);
#endif
}
// The runs of its lines that a work-item reads at once: of each group of the unit's 8 columns one, of its 16 rows two.
inline void read_lines(wide_t *runs, int groups, int each, __local const acc_t *place)
{
    #pragma unroll
    for (int x = 0; x < groups * each; ++x)
        runs[x] = *(__local const wide_t *)(place + (x / each * 8 * each + x % each) * TSK);
}
#else
// Which rows and columns of the tile the unit's are is free: its rows g and g + 8 are the numbers of a run here; and its column g is
// that of as many products as a run of columns has numbers, which makes their sums neighbours.
inline void multiply(const wide_t *a, const wide_t *b, wide_t (*sum)[COLUMN_RUNS])
{
    #pragma unroll
    for (int r = 0; r < WPTM; r += WIDTH)
        #pragma unroll
        for (int c = 0; c < COLUMN_RUNS; c += JOINED)
            #pragma unroll
            for (int w = 0; w < JOINED; ++w)
                UNIT_MUL_ADD(
                    ELEMENT(sum[r][c], w), ELEMENT(sum[r][c + 1], w), ELEMENT(sum[r + 1][c], w), ELEMENT(sum[r + 1][c + 1], w),
                    ELEMENT(a[r / WIDTH], 0), ELEMENT(a[r / WIDTH], 1), ELEMENT(b[c / JOINED], w));
}
#endif
#endif
#elif MMA == 2
// Each number of a run of rows meets each of a run of columns; the sums of a product lie in four runs of the lane's rows.
#define SUM(i) ELEMENT(sum[(4 * r + (i)) * WIDTH + v][c], w)
inline void multiply(const wide_t *a, const wide_t *b, wide_t (*sum)[COLUMN_RUNS])
{
    #pragma unroll
    for (int r = 0; r < ROW_RUNS; ++r)
        #pragma unroll
        for (int c = 0; c < COLUMN_RUNS; ++c)
            #pragma unroll
            for (int v = 0; v < WIDTH; ++v)
                #pragma unroll
                for (int w = 0; w < WIDTH; ++w)
                    CORE_MUL_ADD(SUM(0), SUM(1), SUM(2), SUM(3), ELEMENT(a[r], v), ELEMENT(b[c], w));
}
#else
inline void multiply(const wide_t *a, const wide_t *b, wide_t (*sum)[COLUMN_RUNS])
{
    #pragma unroll
    for (int r = 0; r < WPTM; ++r)
        #pragma unroll
        for (int c = 0; c < COLUMN_RUNS; ++c)
            sum[r][c] = wide_mul_add(ELEMENT(a[r / WIDTH], r % WIDTH), b[c], sum[r][c]);
}
#endif

__kernel RESIDENT(THREADS, GROUPS)
void simt(GEMM_ARGUMENTS, __global wide_t *parts, int whole, int shared, int sharers)
{
    __local acc_t tiles[STAGES * STAGE] __attribute__((aligned(16)));
    const int item = (int)get_local_id(0);
    const int slice = SLICES > 1 ? item / SLICE_THREADS : 0;
    const int place = item - slice * SLICE_THREADS; // in its slice
    const int steps = max((k + TSK - 1) / TSK, 1); // of a tile

    // The tile, its first step here, and the steps that this group has to do.
    int number = (int)get_group_id(0), first = 0, left = steps;
#if SHARES
    const int next = number + 1;
    first = first_step(number, sharers, shared, steps);
    left = first_step(next, sharers, shared, steps) - first;
    left += (first_tile(next, sharers, shared) - first_tile(number, sharers, shared)) * steps;
    number = whole + first_tile(number, sharers, shared);
    do {
        barrier(CLK_LOCAL_MEM_FENCE); // the tiles of the part before this one have been read
#endif
        const int last = min(first + left, steps);
        const tile_t tile = tile_of(number, m, n);
        const int rows_left = m - tile.row;
        const int columns_left = n - tile.column;
        // Step s begins with term s · TSK - missing: what is missing to whole tiles along k is missing in step 0.
        const int missing = steps * TSK - k;
        const int start = max(first * TSK - missing, 0);
        __global const in_t *a_from = A + offset_a + tile.batch * stride_a
            + INDEX_A(tile.row + LINE_OF_A(item), start + TERM_OF_A(item));
        __global const in_t *b_from = B + offset_b + tile.batch * stride_b
            + INDEX_B(start + TERM_OF_B(item), tile.column + LINE_OF_B(item));
#define BRING(stage, begin, end, wanted, is_whole, terms)                                                           \
    do {                                                                                                            \
        __local acc_t *a_tile = BYTES_ON(tiles, stage), *b_tile = a_tile + TSK * PITCH_A;                           \
        a_from = BRING_A(a_tile, begin, end, wanted, (is_whole) && WHOLE_ROWS, terms);                              \
        b_from = BRING_B(b_tile, (begin) - COPIES_A, (end) - COPIES_A, wanted, (is_whole) && WHOLE_COLUMNS, terms); \
    } while (0)

#if !SOON
        // The first tiles set out.
        BRING(0, 0, COPIES_A + COPIES_B, 1, 0, first == 0 ? TSK - missing : TSK);
        END_OF_COPIES();
        #pragma unroll
        for (int s = 1; s < STAGES - 1; ++s) {
            BRING(s * STAGE_BYTES, 0, COPIES_A + COPIES_B, first + s < last, 1, TSK);
            END_OF_COPIES();
        }
#endif

        wide_t sum[WPTM][COLUMN_RUNS];
        #pragma unroll
        for (int r = 0; r < WPTM; ++r)
            #pragma unroll
            for (int c = 0; c < COLUMN_RUNS; ++c)
                sum[r][c] = WIDE_ZERO;

        // A term comes into one half of these registers, while the products of what is in the other are added up.
        wide_t a[2][A_READ], b[2][B_READ];
        __local const acc_t *const a_place = tiles + SLICE_OF_A(slice) + first_of_a(place);
        __local const acc_t *const b_place = tiles + TSK * PITCH_A + SLICE_OF_B(slice) + first_of_b(place);
#if LINES_A || LINES_B
        // Runs by line are of TOGETHER terms. Where a step has an odd number of these, the first of the next step change places.
        const int pair = slice * TERMS ^ PAIR_IN(UNIT_LANE(place), 1);
#define EACH_PART(statement)                 \
    _Pragma("unroll")                        \
    for (int part = 0; part < PARTS; ++part) \
        statement
#define RUNS_HALF(p) ((p) / TOGETHER % 2)
#define NEXT_HALF (TERMS / TOGETHER % 2)
#if EXCHANGED
#define READ_LINES(half, p) read_lines(a[half], ROW_RUNS, 1, a_read + (pair ^ (p)))
#if LINES_B
#define READ_TERM(half, p) read_lines(b[half], COLUMN_RUNS, 2, b_read + (pair ^ (p)))
#else
#define READ_TERM(half, p) EACH_PART(read_columns(b[half] + part * COLUMN_RUNS, b_read + (TERMS_BEFORE(p) + part) * PITCH_B))
#endif
#define MULTIPLY(half, p) multiply(a[RUNS_HALF(p)], b[half], (p) / QUAD % 2, sum)
#define CHANGE_HALVES(x) a[0][x] = a[NEXT_HALF][x]
#define LINE_RUNS ROW_RUNS
#else
#define READ_LINES(half, p) read_lines(b[half], COLUMN_RUNS, 1, b_read + (pair ^ (p)))
#if LINES_A
#define READ_TERM(half, p) read_lines(a[half], ROW_RUNS, 2, a_read + (pair ^ (p)))
#else
#define READ_TERM(half, p) EACH_PART(read_rows(a[half] + part * ROW_RUNS, a_read + (TERMS_BEFORE(p) + part) * PITCH_A))
#endif
#define MULTIPLY(half, p) multiply(a[half], b[RUNS_HALF(p)], (p) / QUAD % 2, sum)
#define CHANGE_HALVES(x) b[0][x] = b[NEXT_HALF][x]
#define LINE_RUNS COLUMN_RUNS
#endif
#define READ(half, p)                         \
    do {                                      \
        READ_TERM(half, p);                   \
        if ((p) % TOGETHER == 0)              \
            READ_LINES(RUNS_HALF(p), p);      \
    } while (0)
#define READ_FIRST()             \
    do {                         \
        READ_TERM(0, 0);         \
        READ_LINES(NEXT_HALF, 0); \
    } while (0)
#define MULTIPLY_LAST()                        \
    do {                                    \
        MULTIPLY(1, TERMS - AT_ONCE);       \
        _Pragma("unroll")                   \
        for (int x = 0; x < LINE_RUNS; ++x) \
            CHANGE_HALVES(x);               \
    } while (0)
#else
#define READ(half, p)                              \
    do {                                            \
        read_rows(a[half], a_read + (p) * PITCH_A);    \
        read_columns(b[half], b_read + (p) * PITCH_B); \
    } while (0)
#define READ_FIRST() READ(0, 0)
#define MULTIPLY(half, p) multiply(a[half], b[half], sum)
#define MULTIPLY_LAST() multiply(a[1], b[1], sum)
#endif

#if SOON
        // One place for all copies, and one for the products of a term: the loop begins as many steps before the first as tiles
        // set out before one is multiplied. Nothing is read ahead.
        int stage = 0, free = 0; // bytes before that which is read, and that which is not
        #pragma unroll 1
        for (int step = first - (STAGES - 1); step < last; ++step) {
            AWAIT_COPIES(STAGES - 2);
            barrier(CLK_LOCAL_MEM_FENCE); // this tile is there, and the one before it has been read
            const int coming = step + STAGES - 1;
            BRING(free, 0, COPIES_A + COPIES_B, coming < last, 0, coming == 0 ? TSK - missing : TSK);
            END_OF_COPIES();
            free = free == (STAGES - 1) * STAGE_BYTES ? 0 : free + STAGE_BYTES;
            if (step >= first) {
                __local const acc_t *a_read = BYTES_ON(a_place, stage), *b_read = BYTES_ON(b_place, stage);
                #pragma unroll 1
                for (int p = 0; p < TERMS; ++p) {
                    READ(0, p);
                    MULTIPLY(0, p);
                }
                stage = stage == (STAGES - 1) * STAGE_BYTES ? 0 : stage + STAGE_BYTES;
            }
        }
#else
        AWAIT_COPIES(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        __local const acc_t *a_read = a_place, *b_read = b_place;
        int stage = 0, free = (STAGES - 1) * STAGE_BYTES; // bytes before that which is read, and that which is not
        int step = first;
        READ(0, 0);
        END_OF_READS();
        do {
            #pragma unroll
            for (int p = 0; p < TERMS - AT_ONCE; p += AT_ONCE) {
                READ((p / AT_ONCE + 1) % 2, p + AT_ONCE);
                if (p / AT_ONCE < PIECES) // one more tile sets out
                    BRING(free, PIECE(p / AT_ONCE), PIECE(p / AT_ONCE + 1), step + STAGES - 1 < last, 1, TSK);
                if (p / AT_ONCE == PIECES - 1)
                    END_OF_COPIES();
                MULTIPLY(p / AT_ONCE % 2, p);
            }
            AWAIT_COPIES(STAGES - 2);
            barrier(CLK_LOCAL_MEM_FENCE); // the next tile is there, and this one has been read
            free = stage;
            stage = stage == (STAGES - 1) * STAGE_BYTES ? 0 : stage + STAGE_BYTES;
            a_read = BYTES_ON(a_place, stage);
            b_read = BYTES_ON(b_place, stage);
            READ_FIRST();
            MULTIPLY_LAST();
        } while (++step < last);
#endif

#if SLICES > 1 // what the others have is added to what the first slice has, one after the other
        for (int s = 1; s < SLICES; ++s) {
            __local wide_t *const sums = (__local wide_t *)tiles + place;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (slice == s)
                #pragma unroll
                for (int r = 0; r < WPTM; ++r)
                    #pragma unroll
                    for (int c = 0; c < COLUMN_RUNS; ++c)
                        sums[(r * COLUMN_RUNS + c) * SLICE_THREADS] = sum[r][c];
            barrier(CLK_LOCAL_MEM_FENCE);
            if (slice == 0)
                #pragma unroll
                for (int r = 0; r < WPTM; ++r)
                    #pragma unroll
                    for (int c = 0; c < COLUMN_RUNS; ++c)
                        sum[r][c] = wide_sum(sum[r][c], sums[(r * COLUMN_RUNS + c) * SLICE_THREADS]);
        }
#endif
#if MMA == 1 && defined(COMPLEX_ARITHMETIC) && CONJUGATE_A
        #pragma unroll
        for (int r = 0; r < WPTM; ++r)
            #pragma unroll
            for (int c = 0; c < COLUMN_RUNS; ++c)
                NUMBER(sum[r][c], IMAGINARY) = 0 - NUMBER(sum[r][c], IMAGINARY); // a zero remains positive
#endif
        const int is_part = SHARES && last - first < steps;
        __global out_t *const d = D + offset_d + tile.batch * stride_d;
        __global const out_t *const c_of_tile = C + offset_c + tile.batch * stride_c;
#if SOON
        FIND_OWN(tile);
        // One place that stores a run. The others move up to it, since registers have no index.
        if (slice == 0)
            #pragma unroll 1
            for (int x = 0; x < RUNS; ++x) {
                const int r = x / COLUMN_RUNS;
                const int c = x % COLUMN_RUNS;
                const int i = tile.row + row_of(place, r);
                const int j = tile.column + column_of(place, c);
                if (is_part)
                    parts[PART(get_group_id(0), first == 0, r, c, place)] = sum[0][0];
                else
                    store_part_of_run(
                        d + (i * ld_d + j), c_of_tile + (i * ld_c + j), sum[0][0], alpha, beta, OWN_BEGIN(i, j), OWN_END(i, j));
                #pragma unroll
                for (int y = 1; y < RUNS; ++y)
                    sum[(y - 1) / COLUMN_RUNS][(y - 1) % COLUMN_RUNS] = sum[y / COLUMN_RUNS][y % COLUMN_RUNS];
            }
#else
        if (is_part && slice == 0)
            #pragma unroll
            for (int r = 0; r < WPTM; ++r)
                #pragma unroll
                for (int c = 0; c < COLUMN_RUNS; ++c)
                    parts[PART(get_group_id(0), first == 0, r, c, place)] = sum[r][c];
        FIND_OWN(tile);
        // C is read some runs at a time, before D, which may be C, is written there. Where elements are stored under conditions of their
        // own, the compiler shall know where the run is before it asks, and not find it out for each.
#define FOR_EACH_RUN(first, number, ld, statement)                                                       \
    _Pragma("unroll")                                                                                    \
    for (int x = first; x < (first) + (number); ++x)                                                     \
        if (x < RUNS) {                                                                                  \
            const int r = x / COLUMN_RUNS;                                                               \
            const int c = x % COLUMN_RUNS;                                                               \
            const int i = tile.row + row_of(place, r);                                                   \
            const int j = tile.column + column_of(place, c);                                             \
            const int begin = OWN_BEGIN(i, j);                                                           \
            const int end = OWN_END(i, j);                                                               \
            index_t at = i * ld + j;                                                                     \
            if (!ALIGNED_D)                                                                              \
                TAKEN(at);                                                                               \
            statement;                                                                                   \
        }
        if (slice == 0 && !is_part) {
            out_run_t before[RUNS_READ] = {(out_run_t)0};
            if (LEAVES_C_OUT(beta)) {
                FOR_EACH_RUN(0, RUNS, ld_d, store_over(d + at, before[0], sum[r][c], alpha, ACC_ZERO, begin, end))
            } else
                #pragma unroll
                for (int x0 = 0; x0 < RUNS; x0 += RUNS_READ) {
                    FOR_EACH_RUN(x0, RUNS_READ, ld_c, before[x - x0] = read_before(c_of_tile + at, begin, end))
                    FOR_EACH_RUN(x0, RUNS_READ, ld_d, store_over(d + at, before[x - x0], sum[r][c], alpha, beta, begin, end))
                }
        }
#endif
#if SHARES
        left -= last - first;
        first = 0;
        ++number;
    } while (left > 0);
#endif
}

#if SHARES
// The parts of a shared tile, added up in their order: a group for each run of its work-items. Tiles that a sharer had whole are done.
__kernel __attribute__((reqd_work_group_size(SLICE_THREADS, 1, 1)))
void combine(GEMM_ARGUMENTS, __global const wide_t *parts, int whole, int shared, int sharers)
{
    const int item = (int)get_local_id(0);
    const int c = (int)get_group_id(0) % COLUMN_RUNS;
    const int r = (int)get_group_id(0) / COLUMN_RUNS % WPTM;
    const int number = (int)get_group_id(0) / COLUMN_RUNS / WPTM;
    const int steps = max((k + TSK - 1) / TSK, 1);
    const int begin = first_sharer(number, sharers, shared, steps);
    const int end = last_sharer(number, sharers, shared);
    if (begin == end)
        return;

    wide_t sum = parts[PART(begin, 1, r, c, item)];
#if PARTS_READ > 1 // are read before one is added: else each waits for the read before it
#define ADD_PARTS(count, condition)                                               \
    do {                                                                          \
        wide_t some[count];                                                       \
        _Pragma("unroll")                                                         \
        for (int x = 0; x < (count); ++x)                                         \
            some[x] = (condition) ? parts[PART(sharer + x, 0, r, c, item)] : sum; \
        _Pragma("unroll")                                                         \
        for (int x = 0; x < (count); ++x)                                         \
            if (condition)                                                        \
                sum = wide_sum(sum, some[x]);                                     \
        sharer += (count);                                                        \
    } while (0)
    int sharer = begin + 1;
    while (sharer + PARTS_READ <= end + 1)
        ADD_PARTS(PARTS_READ, 1);
    while (sharer <= end)
        ADD_PARTS(4, sharer + x <= end);
#else
#if SOON
    #pragma unroll 1
#else
    #pragma unroll 4
#endif
    for (int sharer = begin + 1; sharer <= end; ++sharer)
        sum = wide_sum(sum, parts[PART(sharer, 0, r, c, item)]);
#endif
    const tile_t tile = tile_of(whole + number, m, n);
    const int i = tile.row + row_of(item, r);
    const int j = tile.column + column_of(item, c);
    FIND_OWN(tile);
    store_part_of_run(
        D + offset_d + tile.batch * stride_d + i * ld_d + j, C + offset_c + tile.batch * stride_c + i * ld_c + j, sum, alpha, beta,
        OWN_BEGIN(i, j), OWN_END(i, j));
}
#endif
