// hopper: the instructions of compute capability 9.0 alone (PTX ISA, target sm_90a): copies of tiles by the copy engine (TMA), barriers that
// count what it has brought (mbarrier), and products of groups of four warps (wgmma). Each stands in one macro, as in ptx.cl.
//
// NVIDIA's compiler for OpenCL knows the target sm_90, and refuses what sm_90a alone has. So these instructions stand behind LATER,
// as comments for it, whose registers it allocates. The backend completes what the compiler made of them, PTX, before it is machine code
// (backends/_completion.py): a program that is not completed would compute nothing, and is refused.
//
// A barrier of local memory is 8 bytes. BARRIER_INIT(bar, 2) has its phase 0 end once two have arrived, and all bytes that
// BARRIER_EXPECT announced have come: BARRIER_WAIT(bar, 0) returns then, BARRIER_WAIT(bar, 1) at the end of phase 1, and so on in turns;
// before the end of phase 0, BARRIER_WAIT(bar, 1) returns at once.
#include "ptx.cl"

#define LATER "// sm_90a: "

// So many bytes of local memory, a constant, for the whole kernel: `place` is where they begin. OpenCL tells of 48 KB and may refuse to declare
// more, sm_90a has 227.
#define DECLARE_LOCAL(place, bytes)                                                                         \
    __asm__ volatile(LATER ".shared .align 1024 .b8 local_memory[%1]; mov.u64 %0, local_memory;" : "=l"(place) : "n"(bytes))

// A barrier for so many that arrive, made by one work-item, which then lets others, and the copy engine, see it.
#define BARRIER_INIT(bar, count) \
    __asm__ volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SHARED_ADDRESS((bar))), "r"(count) : "memory")
#define FENCE_BARRIERS() __asm__ volatile("fence.mbarrier_init.release.cluster;" ::: "memory")
// Arrives, and announces so many bytes; arrives; waits until the phase of this parity, 0 or 1, has ended.
#define BARRIER_EXPECT(bar, bytes) \
    __asm__ volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SHARED_ADDRESS((bar))), "r"(bytes) : "memory")
#define BARRIER_ARRIVE(bar) __asm__ volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SHARED_ADDRESS((bar))) : "memory")
#define BARRIER_WAIT(bar, parity)                                                                                      \
    __asm__ volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra AGAIN; }" ::"r"( \
                     SHARED_ADDRESS((bar))),                                                                             \
                 "r"(parity)                                                                                           \
                 : "memory")

// Lets the copy engine and the matrix unit see what this work-item has written to local memory by ordinary stores.
#define FENCE_SHARED() __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory")

// Starts to copy a tile to local memory: the box of a tensor map (the address of its 128 bytes, as the driver encodes them) that begins
// at element x of row y of matrix z, zeros for what lies outside. The barrier gets to know of each byte that has come.
#define COPY_TILE(to, map, bar, x, y, z)                                                                                       \
    __asm__ volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" \
                 ::"r"(SHARED_ADDRESS((to))), "l"(map), "r"(x), "r"(y), "r"(z), "r"(SHARED_ADDRESS((bar))) : "memory")
#define PREFETCH_MAP(map) __asm__ volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory")
// Lets the copy engine see two maps that this work-item has written to global memory (PTX ISA, fence.proxy with .tensormap). They are on their
// way there at one time.
#define FENCE_MAPS(map, other)                                                                                                   \
    __asm__ volatile("fence.proxy.tensormap::generic.release.gpu; fence.proxy.tensormap::generic.acquire.gpu [%0], 128; "        \
                     "fence.proxy.tensormap::generic.acquire.gpu [%1], 128;" ::"l"(map), "l"(other) : "memory")

// The address of a kernel's parameter, which PTX knows by that name.
#define PARAMETER_PLACE(place, name) __asm__ volatile("{ .reg .b64 p; mov.b64 p, " name "; cvta.param.u64 %0, p; }" : "=l"(place))

// Each work-item of a group of four warps from now on has so many registers, a constant: fewer, or more, than before.
#define REGISTERS_DOWN(n) __asm__ volatile(LATER "setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
#define REGISTERS_UP(n) __asm__ volatile(LATER "setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))

// A barrier for so many work-items of a group, of which there are 16, told by number; barrier() is that of number 0.
#define NAMED_BARRIER(id, threads) __asm__ volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory")

// Where 128 bytes make a row, and the eight pieces of 16 bytes of a row change places by XOR with the row's number modulo 8, as the copy
// engine leaves them: what tells the matrix unit of an operand's terms that begin at a place of local memory. Along k, a row
// is a line, and the next eight lines begin `stride` bytes further on. Across, a row is a term, with 64 lines of 2 bytes: the next 64
// lines begin `leading` bytes further on, and the next eight terms `stride` bytes.
#define MATRIX_DESCRIPTOR(place, leading, stride)                                                           \
    ((ulong)(SHARED_ADDRESS((place)) >> 4 & 0x3fff) | (ulong)((leading) >> 4) << 16 \
     | (ulong)((stride) >> 4) << 32 | 1ul << 62)

// Products of groups of four warps. They read and write registers until they were awaited: GROUP_FENCE() lets them see what registers
// hold, GROUP_COMMIT() ends a batch of products, and GROUP_WAIT(n) waits until all batches but the last n have ended. The compiler
// has to believe that a sum is another after that: TOUCH_SUM, and TOUCH_WHOLE_SUM of whole numbers.
#define GROUP_FENCE() __asm__ volatile(LATER "wgmma.fence.sync.aligned;" ::: "memory")
#define GROUP_COMMIT() __asm__ volatile(LATER "wgmma.commit_group.sync.aligned;" ::: "memory")
#define GROUP_WAIT(n) __asm__ volatile(LATER "wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
#define TOUCH_SUM(x) __asm__ volatile("" : "+f"(x)::"memory")
#define TOUCH_WHOLE_SUM(x) __asm__ volatile("" : "+r"(x)::"memory")

// Likewise, a whole number is another now: what is computed from it is computed anew.
#define TOUCH_NUMBER(x) __asm__ volatile("" : "+r"(x))

// 64 rows of A by N columns of B, 32 bytes of terms, added to the sums d of a group, or instead of them where `scale` is 0. A work-item has
// N / 2 of them: with t = item % 128, d[4 · j + 2 · h + e] is that of row t / 32 · 16 + t % 32 / 4 + 8 · h and column 8 · j + t % 4 · 2 + e. A and
// B are told by descriptors; where `turn` is 1, a constant, an operand of 2-byte elements lies across k. Others must lie along k. Of
// 4-byte elements the unit takes the upper 19 bits. Sums of whole numbers wrap around; those of 8-bit numbers with an exponent keep about
// 14 bits on an H100 (DeepSeek-V3 Technical Report, 2024, section 3.3.2).
#define PLACES_32() \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES_64() \
    PLACES_32() \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PLACES_96() \
    PLACES_64() \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define PLACES_128() \
    PLACES_96() \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS_8(sort, d, i) \
    sort((d)[(i) + 0]), sort((d)[(i) + 1]), sort((d)[(i) + 2]), sort((d)[(i) + 3]), \
    sort((d)[(i) + 4]), sort((d)[(i) + 5]), sort((d)[(i) + 6]), sort((d)[(i) + 7])
#define SUMS_32(sort, d, i) SUMS_8(sort, d, i), SUMS_8(sort, d, i + 8), SUMS_8(sort, d, i + 16), SUMS_8(sort, d, i + 24)
#define SUMS_64(sort, d, i) SUMS_32(sort, d, i), SUMS_32(sort, d, i + 32)
#define SUMS_96(sort, d, i) SUMS_64(sort, d, i), SUMS_32(sort, d, i + 64)
#define SUMS_128(sort, d, i) SUMS_96(sort, d, i), SUMS_32(sort, d, i + 96)
#define GROUP_MUL_ADD_64(types, more, sort, d, a, b, scale, turn_a, turn_b) \
    __asm__ volatile(LATER "{ .reg .pred p; setp.ne.s32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64" types " {" PLACES_32() \
                 "}, %32, %33, p" more "; }" \
                 : SUMS_32(sort, d, 0) : "l"(a), "l"(b), "r"((int)(scale)), "n"(turn_a), "n"(turn_b) : "memory")
#define GROUP_MUL_ADD_128(types, more, sort, d, a, b, scale, turn_a, turn_b) \
    __asm__ volatile(LATER "{ .reg .pred p; setp.ne.s32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128" types " {" PLACES_64() \
                 "}, %64, %65, p" more "; }" \
                 : SUMS_64(sort, d, 0) : "l"(a), "l"(b), "r"((int)(scale)), "n"(turn_a), "n"(turn_b) : "memory")
#define GROUP_MUL_ADD_192(types, more, sort, d, a, b, scale, turn_a, turn_b) \
    __asm__ volatile(LATER "{ .reg .pred p; setp.ne.s32 p, %98, 0; wgmma.mma_async.sync.aligned.m64n192" types " {" PLACES_96() \
                 "}, %96, %97, p" more "; }" \
                 : SUMS_96(sort, d, 0) : "l"(a), "l"(b), "r"((int)(scale)), "n"(turn_a), "n"(turn_b) : "memory")
#define GROUP_MUL_ADD_256(types, more, sort, d, a, b, scale, turn_a, turn_b) \
    __asm__ volatile(LATER "{ .reg .pred p; setp.ne.s32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256" types " {" PLACES_128() \
                 "}, %128, %129, p" more "; }" \
                 : SUMS_128(sort, d, 0) : "l"(a), "l"(b), "r"((int)(scale)), "n"(turn_a), "n"(turn_b) : "memory")
// Likewise, of A that registers hold: with t = item % 128, a[2 · h + e] is line t / 32 · 16 + t % 32 / 4 + 8 · e, term t % 4 + 4 · h, of 4-byte
// elements. They may be written again once the product was awaited, and GROUP_FENCE() lets the unit see them.
#define LINES_MUL_ADD_64(types, d, a, b, scale) \
    __asm__ volatile(LATER "{ .reg .pred p; setp.ne.s32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64" types " {" PLACES_32() \
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1; }" \
                 : SUMS_32("+f", d, 0) : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b), "r"((int)(scale)) : "memory")
#define LINES_MUL_ADD_128(types, d, a, b, scale) \
    __asm__ volatile(LATER "{ .reg .pred p; setp.ne.s32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128" types " {" PLACES_64() \
                 "}, {%64, %65, %66, %67}, %68, p, 1, 1; }" \
                 : SUMS_64("+f", d, 0) : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b), "r"((int)(scale)) : "memory")
#define LINES_MUL_ADD_192(types, d, a, b, scale) \
    __asm__ volatile(LATER "{ .reg .pred p; setp.ne.s32 p, %101, 0; wgmma.mma_async.sync.aligned.m64n192" types " {" PLACES_96() \
                 "}, {%96, %97, %98, %99}, %100, p, 1, 1; }" \
                 : SUMS_96("+f", d, 0) : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b), "r"((int)(scale)) : "memory")
#define LINES_MUL_ADD_256(types, d, a, b, scale) \
    __asm__ volatile(LATER "{ .reg .pred p; setp.ne.s32 p, %133, 0; wgmma.mma_async.sync.aligned.m64n256" types " {" PLACES_128() \
                 "}, {%128, %129, %130, %131}, %132, p, 1, 1; }" \
                 : SUMS_128("+f", d, 0) : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b), "r"((int)(scale)) : "memory")
#define LINES_MUL_ADD_TF32_64(d, a, b, scale) LINES_MUL_ADD_64("k8.f32.tf32.tf32", d, a, b, scale)
#define LINES_MUL_ADD_TF32_128(d, a, b, scale) LINES_MUL_ADD_128("k8.f32.tf32.tf32", d, a, b, scale)
#define LINES_MUL_ADD_TF32_192(d, a, b, scale) LINES_MUL_ADD_192("k8.f32.tf32.tf32", d, a, b, scale)
#define LINES_MUL_ADD_TF32_256(d, a, b, scale) LINES_MUL_ADD_256("k8.f32.tf32.tf32", d, a, b, scale)
#define GROUP_MUL_ADD_F16_64(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_64("k16.f32.f16.f16", ", 1, 1, %35, %36", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_F16_128(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_128("k16.f32.f16.f16", ", 1, 1, %67, %68", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_F16_192(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_192("k16.f32.f16.f16", ", 1, 1, %99, %100", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_F16_256(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_256("k16.f32.f16.f16", ", 1, 1, %131, %132", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_BF16_64(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_64("k16.f32.bf16.bf16", ", 1, 1, %35, %36", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_BF16_128(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_128("k16.f32.bf16.bf16", ", 1, 1, %67, %68", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_BF16_192(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_192("k16.f32.bf16.bf16", ", 1, 1, %99, %100", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_BF16_256(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_256("k16.f32.bf16.bf16", ", 1, 1, %131, %132", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_TF32_64(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_64("k8.f32.tf32.tf32", ", 1, 1", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_TF32_128(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_128("k8.f32.tf32.tf32", ", 1, 1", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_TF32_192(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_192("k8.f32.tf32.tf32", ", 1, 1", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_TF32_256(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_256("k8.f32.tf32.tf32", ", 1, 1", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_E4M3_64(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_64("k32.f32.e4m3.e4m3", ", 1, 1", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_E4M3_128(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_128("k32.f32.e4m3.e4m3", ", 1, 1", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_E4M3_192(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_192("k32.f32.e4m3.e4m3", ", 1, 1", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_E4M3_256(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_256("k32.f32.e4m3.e4m3", ", 1, 1", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_E5M2_64(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_64("k32.f32.e5m2.e5m2", ", 1, 1", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_E5M2_128(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_128("k32.f32.e5m2.e5m2", ", 1, 1", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_E5M2_192(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_192("k32.f32.e5m2.e5m2", ", 1, 1", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_E5M2_256(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_256("k32.f32.e5m2.e5m2", ", 1, 1", "+f", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_S8_64(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_64("k32.s32.s8.s8", "", "+r", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_S8_128(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_128("k32.s32.s8.s8", "", "+r", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_S8_192(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_192("k32.s32.s8.s8", "", "+r", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_S8_256(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_256("k32.s32.s8.s8", "", "+r", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_U8_64(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_64("k32.s32.u8.u8", "", "+r", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_U8_128(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_128("k32.s32.u8.u8", "", "+r", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_U8_192(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_192("k32.s32.u8.u8", "", "+r", d, a, b, scale, turn_a, turn_b)
#define GROUP_MUL_ADD_U8_256(d, a, b, scale, turn_a, turn_b) GROUP_MUL_ADD_256("k32.s32.u8.u8", "", "+r", d, a, b, scale, turn_a, turn_b)
