// ptx: NVIDIA's instructions that kernels ask for by name (PTX ISA), and AMD's matrix cores, each in one macro. This file and `hopper` have the
// only `asm`. A backend for other GPUs replaces this file (`overrides` of gemmport.runtime.sources.assemble).
//
// Macros, not functions: an instruction's operands are variables of the caller. Other compilers than NVIDIA's, and AMD's, do not meet them:
// no kernel asks. In a warp whose lanes have x = 100 + their number, WARP_SHUFFLE(y, x, 3) sets y to 103 in all of them.

// The lanes of a warp: y = what lane `lane` has in x; what the lane so far above has; and a barrier.
#define WARP_SHUFFLE(y, x, lane) __asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(y) : "r"(x), "r"(lane))
#define WARP_SHUFFLE_DOWN(y, x, up) __asm__ volatile("shfl.sync.down.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(y) : "r"(x), "r"(up))
#define WARP_SYNC() __asm__ volatile("bar.warp.sync 0xffffffff;" ::: "memory")

// Loads through the cache of data that nobody writes: so many bytes from p to the 32-bit words r.
#define LOAD_READ_ONLY_1(r, p) __asm__("ld.global.nc.u8 %0, [%1];" : "=r"(r[0]) : "l"(p))
#define LOAD_READ_ONLY_2(r, p) __asm__("ld.global.nc.u16 %0, [%1];" : "=r"(r[0]) : "l"(p))
#define LOAD_READ_ONLY_4(r, p) __asm__("ld.global.nc.u32 %0, [%1];" : "=r"(r[0]) : "l"(p))
#define LOAD_READ_ONLY_8(r, p) __asm__("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "l"(p))
#define LOAD_READ_ONLY_16(r, p) \
    __asm__("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(p))

// Two floats as they are stored, rounded to nearest, from compute capability 8.0 on, in one register: 1 and -2 as float16 are 0xc0003c00,
// as bfloat16 0xc0003f80.
#define FLOATS_TO_HALVES(r, x, next) __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(next), "f"(x))
#define FLOATS_TO_BFLOATS(r, x, next) __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(next), "f"(x))

// Has the line of memory in which p lies brought to the second-level cache; nobody waits for it.
#define FETCH_LINE(p) __asm__ volatile("prefetch.global.L2 [%0];" ::"l"(p))

// Asynchronous copies from global to local memory, from compute capability 8.0 on, if `wanted`, else predicated off: of
// 16 bytes, around the first-level cache; and of `size`, 4, 8 or 16, which the compiler knows. COPY_…_OF reads `bytes` of them, and
// writes zeros for the rest: COPY_16_OF(to, from, 1, 12) copies three floats and a zero.
#define SHARED_ADDRESS(to) (uint)(size_t)to
#define COPY_16(to, from, wanted)                                                                           \
    __asm__ volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" \
                 ::"r"(SHARED_ADDRESS(to)), "l"(from), "r"((int)wanted))
#define COPY_16_OF(to, from, wanted, bytes)                                                                     \
    __asm__ volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16, %3; }" \
                 ::"r"(SHARED_ADDRESS(to)), "l"(from), "r"((int)wanted), "r"(bytes))
#define COPY_SIZE(to, from, wanted, size)                                                                   \
    __asm__ volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], %3; }" \
                 ::"r"(SHARED_ADDRESS(to)), "l"(from), "r"((int)wanted), "n"(size))
#define COPY_SIZE_OF(to, from, wanted, size, bytes)                                                             \
    __asm__ volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], %3, %4; }" \
                 ::"r"(SHARED_ADDRESS(to)), "l"(from), "r"((int)wanted), "n"(size), "r"(bytes))
// Ends a group of copies; and waits until all groups of this work-item but the last so many have come.
#define COMMIT_COPIES() __asm__ volatile("cp.async.commit_group;")
#define WAIT_FOR_COPIES(groups) __asm__ volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory")

// Products of the matrix unit, from compute capability 9.0 on: the sums d00, d01 (row g) and d10, d11 (row g + 8) of a work-item, plus
// 16 × 4 numbers by 4 × 8, of which it has a0 (row g), a1 (row g + 8) and b.
#define MATRIX_MUL_ADD_16(d00, d01, d10, d11, a0, a1, b)                                                                    \
    __asm__ volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
                 : "+d"(d00), "+d"(d01), "+d"(d10), "+d"(d11) : "d"(a0), "d"(a1), "d"(b))
// Likewise 16 × 8 numbers by 8 × 8, at the same rate with less power: a0 and a1 of term t, a2 and a3 of term t + 4, b0 and b1 likewise.
#define MATRIX_MUL_ADD_16_8(d00, d01, d10, d11, a0, a1, a2, a3, b0, b1)                                                              \
    __asm__ volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+d"(d00), "+d"(d01), "+d"(d10), "+d"(d11) : "d"(a0), "d"(a1), "d"(a2), "d"(a3), "d"(b0), "d"(b1))
// And from 8.0 on: the sums d0 and d1 (row g), plus 8 × 4 numbers by 4 × 8, of which it has a (row g) and b.
#define MATRIX_MUL_ADD_8(d0, d1, a, b)                                                                \
    __asm__ volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" \
                 : "+d"(d0), "+d"(d1) : "d"(a), "d"(b))

// Products of four bytes by four and their sum, from compute capability 6.1 on: sum plus those of the bytes of the words a and b, signed or
// not. It wraps around: 0x7fffffff plus 1 · 1 is 0x80000000.
#define DOT_S8(sum, a, b) __asm__("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b))
#define DOT_U8(sum, a, b) __asm__("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b))

// Four matrices of 8 rows of 16 bytes out of local memory, from compute capability 7.5 on: lane 8 · j + i of a warp says where
// row i of matrix j is, and each lane gets of matrix j the 4 bytes r_j: those of row lane / 4 that are the (lane % 4)-th. Turned,
// and of 2-byte elements, lane gets those of column lane / 4 and of rows lane % 4 · 2 and the next.
#define LOAD_MATRICES(r0, r1, r2, r3, place) \
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(SHARED_ADDRESS(place)))
#define LOAD_TURNED_MATRICES(r0, r1, r2, r3, place) \
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(SHARED_ADDRESS(place)))

// Products of the matrix unit, from compute capability 8.0 on: the sums d0, d1 (row g = lane / 4, columns lane % 4 · 2 and the
// next) and d2, d3 (row g + 8) of a work-item, plus 16 lines of 32 bytes by 8 lines of 32 bytes. Of A it has the (lane % 4)-th 4
// bytes of rows g (a0) and g + 8 (a1), and those 16 bytes further on (a2, a3); of B those of column g (b0), and 16 bytes further
// on (b1).
#define WARP_MUL_ADD_F16(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    __asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define WARP_MUL_ADD_BF16(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    __asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define WARP_MUL_ADD_S8(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    __asm__ volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+r"(d0), "+r"(d1), "+r"(d2), "+r"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define WARP_MUL_ADD_U8(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    __asm__ volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+r"(d0), "+r"(d1), "+r"(d2), "+r"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define WARP_MUL_ADD_TF32(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    __asm__ volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
// Of FP8 from compute capability 8.9 on (PTX ISA 8.4). The unit of 8.9 keeps 14 digits of a sum, whatever d0 to d3 hold.
#define WARP_MUL_ADD_E4M3(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    __asm__ volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define WARP_MUL_ADD_E5M2(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1) \
    __asm__ volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))

// −x of a factor of a product. NVIDIA's compiler subtracts a factor from −0 to negate it, which ptxas leaves a subtraction; of this
// instruction it makes the factor's sign.
#define NEGATE(y, x) __asm__("neg.f32 %0, %1;" : "=f"(y) : "f"(x))

// The bits of a float32 rounded to TF32, to nearest, ties to even, from compute capability 9.0 on: the low 13 become 0. The unit itself
// would drop them. 0x3f801000, half way between 0x3f800000 and 0x3f802000, becomes the former.
#define ROUND_TO_TF32(r) __asm__ volatile("cvt.rn.tf32.f32 %0, %1;" : "=r"(r) : "f"(as_float(r)))

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

// No instruction, but what the compiler has to believe: that an address, or memory, is another now.
#define TOUCH_PLACE(place) __asm__ volatile("" : "+l"(place))
#define TOUCH_MEMORY() __asm__ volatile("" ::: "memory")
