// What test_host_hopper.py tries Hopper's units with. `fault` says what is done wrong: WRONG(NO_BARRIER).

struct __align__(64) map_t { char bytes[128]; };

#define WRONG(name) (fault == name)
#define TILE_A 16384
#define TILE_B (COLUMNS * 128)
#define STAGE (TILE_A + TILE_B)

// A group computes, of each of `tiles` matrices, 128 rows by COLUMNS columns: one thread of the last four warps has tiles brought, and
// eight warps multiply. A and B lie along k, or, turned, across; `terms` of them are added up, 64 at a time.
extern "C" __global__ void multiply(
    float *out, const __grid_constant__ map_t map_a, const __grid_constant__ map_t map_b, int terms, int tiles, int row, int column,
    int fault)
{
    extern __shared__ __align__(1024) char memory[];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    const int thread = threadIdx.x, steps = (terms + 63) / 64;
    if (thread == 0 && !WRONG(BARRIERS_MADE_AFTER_THEIR_USE)) {
        for (int s = WRONG(NO_BARRIER); s < STAGES; ++s) {
            BARRIER_INIT(&full[s], 1);
            BARRIER_INIT(&empty[s], 8);
        }
        if (WRONG(A_BARRIER_MADE_TWICE))
            BARRIER_INIT(&full[0], 1);
        if (!WRONG(NO_FENCE_OF_BARRIERS))
            FENCE_BARRIERS();
        PREFETCH_MAP(&map_a);
    }
    __syncthreads();
    if (thread >= 256) {
        REGISTERS_DOWN(40);
        if (thread == 256)
            for (int step = 0; step < steps * tiles; ++step) {
                const int s = step % STAGES, k = step % steps * 64, matrix = step / steps;
                char *a = memory + s * STAGE, *b = a + TILE_A;
                if (WRONG(TILES_OF_A_AND_B_EXCHANGE_PLACES))
                    a = b, b = memory + s * STAGE;
                if (WRONG(A_TILE_GOES_TO_NO_MULTIPLE_OF_1024))
                    b += 512;
                if (WRONG(A_TILE_GOES_BEYOND))
                    b += (STAGES - 1) * STAGE + 1024;
                if (!WRONG(NO_WAIT_FOR_ROOM))
                    BARRIER_WAIT(&empty[s], WRONG(THE_PRODUCER_S_PARITY) ? step / STAGES % 2 : step / STAGES % 2 ^ 1);
                BARRIER_EXPECT(
                    &full[s], STAGE - 128 * WRONG(TOO_FEW_BYTES_ARE_EXPECTED) + 128 * WRONG(TOO_MANY_BYTES_ARE_EXPECTED));
#if TURN_A
                for (int r = 0; r < 128; r += 64)
                    COPY_TILE(a + r * 128, &map_a, &full[s], row + r, k, matrix);
#else
                COPY_TILE(a, &map_a, &full[s], k, row, matrix);
#endif
#if TURN_B
                for (int c = 0; c < COLUMNS; c += 64)
                    COPY_TILE(b + c * 128, &map_b, &full[s], column + c, k, matrix);
#else
                COPY_TILE(b, &map_b, &full[s], k, column, matrix);
#endif
            }
        return;
    }
    REGISTERS_UP(WRONG(AN_ODD_NUMBER_OF_REGISTERS) ? 100 : WRONG(MORE_REGISTERS_THAN_THERE_ARE) ? 240 : 232);
    float d[COLUMNS / 2];
    for (int tile = 0, step = 0; tile < tiles; ++tile) {
        for (int first = step; step < first + steps; ++step) {
            const int s = step % STAGES;
            if (!WRONG(NO_WAIT_FOR_A_TILE))
                BARRIER_WAIT(&full[s], WRONG(THE_CONSUMERS__PARITY) ? step / STAGES % 2 ^ 1
                                       : WRONG(THE_CONSUMERS__PHASE) ? 0 : step / STAGES % 2);
            if (step == 0 || step > first ? !WRONG(NO_FENCE_OF_REGISTERS) : !WRONG(NO_FENCE_BEFORE_A_NEW_TILE))
                GROUP_FENCE();
            if (WRONG(SUMS_SET_AFTER_THE_FENCE) && step == first)
                d[5] = step;
            for (int turn = 0; turn < 4; ++turn) {
                const char *a = memory + s * STAGE + thread / 128 * 8192, *b = memory + s * STAGE + TILE_A;
                unsigned long long of_a = TURN_A ? MATRIX_DESCRIPTOR(a + turn * 2048, 8192, 1024) : MATRIX_DESCRIPTOR(a + turn * 32, 16, 1024);
                unsigned long long of_b = TURN_B ? MATRIX_DESCRIPTOR(b + turn * 2048, 8192, 1024) : MATRIX_DESCRIPTOR(b + turn * 32, 16, 1024);
                if (WRONG(NO_SWIZZLE))
                    of_a &= ~(3ull << 62);
                if (WRONG(THE_DISTANCE_OF_EIGHT_LINES))
                    of_a = TURN_A ? MATRIX_DESCRIPTOR(a + turn * 2048, 8192, 512) : MATRIX_DESCRIPTOR(a + turn * 32, 16, 512);
                if (WRONG(THE_DISTANCE_OF_BLOCKS))
                    of_b = TURN_B ? MATRIX_DESCRIPTOR(b + turn * 2048, 4096, 1024) : MATRIX_DESCRIPTOR(b + turn * 32, 16, 2048 / 4);
                if (WRONG(THE_PLACE_OF_TERMS) && turn == 2)
                    of_a += 1;
                if (WRONG(LANES_DIFFER) && thread == 70)
                    of_a += 2;
                if (WRONG(WARPS_DIFFER) && thread / 32 == 2)
                    of_b += 2;
                if (WRONG(A_DESCRIPTOR_OVERFLOWS))
                    of_a += 1 << 14;
                if (WRONG(A_WARP_LESS) && thread / 32 == 3 && tile + 1 == tiles && step + 1 == first + steps && turn == 3)
                    continue;
                const int scale = WRONG(OLD_SUMS_ARE_KEPT) ? 1 : WRONG(OLD_SUMS_ARE_DROPPED) ? turn != 0 : step > first || turn > 0;
                if (WRONG(AN_OPERAND_IS_NOT_TURNED))
                    MUL_ADD(d, of_a, of_b, scale, TURN_A, !TURN_B);
                else
                    MUL_ADD(d, of_a, of_b, scale, TURN_A, TURN_B);
            }
            GROUP_COMMIT();
            if (WRONG(SUMS_CHANGED_UNDER_WAY))
                d[3] = 7;
            // The step before has been read when this one is awaited but for one batch.
            int room = step > first ? (step - 1) % STAGES : -1;
            if (WRONG(RELEASED_BEFORE_IT_WAS_READ))
                room = s;
            if (!WRONG(PRODUCTS_THAT_NOBODY_AWAITS))
                GROUP_WAIT(1);
            if (room >= 0 && thread % 32 == 0 && !(WRONG(TOO_FEW_ARRIVE) && thread == 96))
                for (int often = 0; often < 1 + 2 * WRONG(TOO_MANY_ARRIVE); ++often)
                    BARRIER_ARRIVE(&empty[room]);
        }
        if (!(WRONG(LAST_PRODUCTS_THAT_NOBODY_AWAITS) && tile + 1 == tiles) && !WRONG(PRODUCTS_THAT_NOBODY_AWAITS)
            && !WRONG(SUMS_READ_UNDER_WAY))
            GROUP_WAIT(0);
        if (thread % 32 == 0 && !WRONG(RELEASED_BEFORE_IT_WAS_READ))
            BARRIER_ARRIVE(&empty[(step - 1) % STAGES]);
        const int lane = WRONG(LANES_EXCHANGED) ? thread % 32 ^ 1 : thread % 32;
        for (int i = 0; i < COLUMNS / 2; ++i)
            out[(tile * 128 + thread / 32 * 16 + lane / 4 + 8 * (i / 2 % 2 ^ WRONG(ROWS_EXCHANGED))) * COLUMNS
                + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
        if (WRONG(SUMS_READ_UNDER_WAY))
            GROUP_WAIT(0);
        NAMED_BARRIER(1 + thread / 128, WRONG(A_BARRIER_OF_TOO_MANY_WARPS) ? 256 : 128);
    }
    if (WRONG(BARRIERS_MADE_AFTER_THEIR_USE) && thread == 0)
        BARRIER_INIT(&full[0], 1);
}

// One group of four warps: its work-items write A, of 64 lines, and B, of 64, as they lie in global memory, and multiply 16 terms of them.
extern "C" __global__ void multiply_written(
    float *out, const unsigned *image, unsigned long long of_a, unsigned long long of_b, const __grid_constant__ map_t map, int fault)
{
    extern __shared__ __align__(1024) char memory[];
    __shared__ unsigned long long bar;
    const int thread = threadIdx.x;
    for (int i = thread; i < 4096; i += 128)
        ((unsigned *)memory)[i] = image[i];
    if (fault != 1)
        FENCE_SHARED();
    if (thread == 0) {
        BARRIER_INIT(&bar, 1);
        FENCE_BARRIERS();
    }
    __syncthreads();
    if (fault >= 2 && thread == 0) {
        ((int *)memory)[7] += fault == 2;
        BARRIER_EXPECT(&bar, 8192);
        COPY_TILE(memory, &map, &bar, 0, 0, 0);
        if (fault == 4)
            BARRIER_WAIT(&bar, 0);
    }
    if (fault == 4 && thread == 1)
        ((int *)&bar)[1] = 0;
    const unsigned long long at = MATRIX_DESCRIPTOR(memory, 0, 0) & 0x3fff;
    float d[32];
    GROUP_FENCE();
    if (fault == 0 || fault == 1)
        MUL_ADD(d, of_a + at, of_b + at + 512, 0, TURN_A, TURN_B);
    GROUP_COMMIT();
    GROUP_WAIT(0);
    for (int i = 0; i < 32; ++i)
        out[(thread / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2)) * 64 + i / 4 * 8 + thread % 4 * 2 + i % 2] = d[i];
}
