// ptx: NVIDIA's instructions that kernels ask for by name (PTX ISA), and AMD's matrix cores, each in one macro. This file and `hopper` have the
// only `asm`. A backend for other GPUs replaces this file (`overrides` of gemmport.runtime.sources.assemble).
//
// Macros, not functions: an instruction's operands are variables of the caller. HALF_MUL(r, 0x3e00, 0x4000) sets the register r to 0x4200:
// 1.5 · 2 = 3, by the bits of a half.

// Halves, by their bits, on devices of compute capability 5.3 and later: r = x · y + z, r = x · y, r = x + y, and conversions.
#define HALF_MUL_ADD(r, x, y, z) asm("fma.rn.f16 %0, %1, %2, %3;" : "=h"(r) : "h"(x), "h"(y), "h"(z))
#define HALF_MUL(r, x, y) asm("mul.rn.f16 %0, %1, %2;" : "=h"(r) : "h"(x), "h"(y))
#define HALF_ADD(r, x, y) asm("add.rn.f16 %0, %1, %2;" : "=h"(r) : "h"(x), "h"(y))
#define HALF_TO_FLOAT(r, x) asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x))
#define FLOAT_TO_HALF(r, x) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x))
#define DOUBLE_TO_HALF(r, x) asm("cvt.rn.f16.f64 %0, %1;" : "=h"(r) : "d"(x))
// Two floats as they are stored, rounded to nearest, from compute capability 8.0 on, in one register: 1 and -2 as float16 are 0xc0003c00,
// as bfloat16 0xc0003f80.
#define FLOATS_TO_HALVES(r, x, next) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(next), "f"(x))
#define FLOATS_TO_BFLOATS(r, x, next) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(next), "f"(x))

// Loads through the cache of data that nobody writes: 1 to 16 bytes from p to the 32-bit words r. CUDA C++ compiles them to
// ld.global.nc.
#define LOAD_READ_ONLY_1(r, p) r[0] = __ldg((const unsigned char *)p)
#define LOAD_READ_ONLY_2(r, p) r[0] = __ldg((const unsigned short *)p)
#define LOAD_READ_ONLY_4(r, p) r[0] = __ldg((const unsigned *)p)
#define LOAD_READ_ONLY_8(r, p) *(uint2 *)r = __ldg((const uint2 *)p)
#define LOAD_READ_ONLY_16(r, p) *(uint4 *)r = __ldg((const uint4 *)p)

// Has the line of memory in which p lies brought to the second-level cache; nobody waits for it.
#define FETCH_LINE(p) asm volatile("prefetch.global.L2 [%0];" ::"l"(p))

// Asynchronous copies from global to shared memory, from compute capability 8.0 on, where `wanted` is not 0. COPY_16 copies 16
// bytes and bypasses the first-level cache; COPY_SIZE copies 4, 8 or 16, a constant. COPY_…_OF reads `bytes` of them, and
// writes zeros for the rest: COPY_16_OF(to, from, 1, 12) copies three floats and a zero.
#define SHARED_ADDRESS(to) (unsigned)__cvta_generic_to_shared(to)
#define COPY_16(to, from, wanted)                                                                       \
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" \
                 ::"r"(SHARED_ADDRESS(to)), "l"(from), "r"((int)wanted))
#define COPY_16_OF(to, from, wanted, bytes)                                                                 \
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16, %3; }" \
                 ::"r"(SHARED_ADDRESS(to)), "l"(from), "r"((int)wanted), "r"(bytes))
#define COPY_SIZE(to, from, wanted, size)                                                               \
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], %3; }" \
                 ::"r"(SHARED_ADDRESS(to)), "l"(from), "r"((int)wanted), "n"(size))
#define COPY_SIZE_OF(to, from, wanted, size, bytes)                                                         \
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], %3, %4; }" \
                 ::"r"(SHARED_ADDRESS(to)), "l"(from), "r"((int)wanted), "n"(size), "r"(bytes))
// Ends a group of copies; and waits until all groups of this thread but the last so many have come.
#define COMMIT_COPIES() asm volatile("cp.async.commit_group;")
#define WAIT_FOR_COPIES(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory")

// Products of the matrix unit, from compute capability 9.0 on: the sums d00, d01 (row g) and d10, d11 (row g + 8) of a thread, plus
// 16 × 4 numbers by 4 × 8, of which it has a0 (row g), a1 (row g + 8) and b.
#define MATRIX_MUL_ADD_16(d00, d01, d10, d11, a0, a1, b)                                                                \
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
                 : "+d"(d00), "+d"(d01), "+d"(d10), "+d"(d11) : "d"(a0), "d"(a1), "d"(b))
// Likewise 16 × 8 numbers by 8 × 8, at the same rate with less power: a0 and a1 of term t, a2 and a3 of term t + 4, b0 and b1 likewise.
#define MATRIX_MUL_ADD_16_8(d00, d01, d10, d11, a0, a1, a2, a3, b0, b1)                                                          \
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+d"(d00), "+d"(d01), "+d"(d10), "+d"(d11) : "d"(a0), "d"(a1), "d"(a2), "d"(a3), "d"(b0), "d"(b1))
// And from 8.0 on: the sums d0 and d1 (row g), plus 8 × 4 numbers by 4 × 8, of which it has a (row g) and b.
#define MATRIX_MUL_ADD_8(d0, d1, a, b)                                                                \
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" \
                 : "+d"(d0), "+d"(d1) : "d"(a), "d"(b))

// Products of four bytes by four and their sum, from compute capability 6.1 on: sum plus those of the bytes of the words a and b, signed or
// not. It wraps around: 0x7fffffff plus 1 · 1 is 0x80000000.
#define DOT_S8(sum, a, b) asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b))
#define DOT_U8(sum, a, b) asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b))

// Four matrices of 8 rows of 16 bytes out of shared memory, from compute capability 7.5 on: lane 8 · j + i of a warp says where
// row i of matrix j is, and each lane gets of matrix j the 4 bytes r_j: those of row lane / 4 that are the (lane % 4)-th. Turned,
// and of 2-byte elements, lane gets those of column lane / 4 and of rows lane % 4 · 2 and the next.
#define LOAD_MATRICES(r0, r1, r2, r3, place) \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(SHARED_ADDRESS(place)))
#define LOAD_TURNED_MATRICES(r0, r1, r2, r3, place) \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(SHARED_ADDRESS(place)))

// Products of the matrix unit, from compute capability 8.0 on: the sums d0, d1 (row g = lane / 4, columns lane % 4 · 2 and the
// next) and d2, d3 (row g + 8) of a thread, plus 16 lines of 32 bytes by 8 lines of 32 bytes. Of A it has the (lane % 4)-th 4
// bytes of rows g (a0) and g + 8 (a1), and those 16 bytes further on (a2, a3); of B those of column g (b0), and 16 bytes further
// on (b1).
#define WARP_MUL_ADD_F16(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define WARP_MUL_ADD_BF16(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define WARP_MUL_ADD_S8(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+r"(d0), "+r"(d1), "+r"(d2), "+r"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define WARP_MUL_ADD_U8(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+r"(d0), "+r"(d1), "+r"(d2), "+r"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define WARP_MUL_ADD_TF32(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
// Of FP8 from compute capability 8.9 on (PTX ISA 8.4). The unit of 8.9 keeps 14 digits of a sum, whatever d0 to d3 hold.
#define WARP_MUL_ADD_E4M3(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define WARP_MUL_ADD_E5M2(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))

// The bits of a float32 rounded to TF32, to nearest, ties to even, from compute capability 9.0 on: the low 13 become 0. The unit itself
// would drop them. 0x3f801000, half way between 0x3f800000 and 0x3f802000, becomes the former.
#define ROUND_TO_TF32(r) asm volatile("cvt.rn.tf32.f32 %0, %1;" : "=r"(r) : "f"(__uint_as_float(r)))

// Products of AMD's matrix cores, in clang's words for them, of float32 and of float64: the sums d0 to d3 of a work-item, plus those of
// 16 × 4 numbers by 4 × 16, of which it has a and b.
#define CORE_MUL_ADD_32(d0, d1, d2, d3, a, b)                                             \
    do {                                                                                  \
        typedef acc_t four_t __attribute__((ext_vector_type(4)));                         \
        const four_t before = {d0, d1, d2, d3};                                           \
        const four_t after = __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, before, 0, 0, 0); \
        d0 = after.s0, d1 = after.s1, d2 = after.s2, d3 = after.s3;                       \
    } while (0)
#define CORE_MUL_ADD_64(d0, d1, d2, d3, a, b)                                             \
    do {                                                                                  \
        typedef acc_t four_t __attribute__((ext_vector_type(4)));                         \
        const four_t before = {d0, d1, d2, d3};                                           \
        const four_t after = __builtin_amdgcn_mfma_f64_16x16x4f64(a, b, before, 0, 0, 0); \
        d0 = after.s0, d1 = after.s1, d2 = after.s2, d3 = after.s3;                       \
    } while (0)

// Programmatic dependent launch, from compute capability 9.0 on: a launch may begin before the one before it in its stream has ended. The first
// macro lets the next such launch begin as soon as there is room for its blocks. The second waits until all launches before have ended, and
// what they wrote can be read.
#define LET_NEXT_BEGIN() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#define AWAIT_LAUNCHES() asm volatile("griddepcontrol.wait;" ::: "memory")

// No instruction, but what the compiler has to believe: that an address, or memory, is another now.
#define TOUCH_PLACE(place) asm volatile("" : "+l"(place))
#define TOUCH_MEMORY() asm volatile("" ::: "memory")
