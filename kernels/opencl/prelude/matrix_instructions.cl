// matrix_instructions: products of small matrices that a sub-group computes by one instruction: AMD's MFMA and WMMA by clang's words for
// them, Intel's dpas by OpenCL's extension. gemmport.contracts.matrix_instructions says where numbers lie in them.
//
// With INSTRUCTION WMMA_F16, a lane has 8 words of A and of B and 8 sums: multiply_matrices(a, b, sums) returns the sums plus those of 16 × 16
// numbers by 16 × 16. Where all of A and B are 1 and sums are 0, all that it returns is 16.
#include "types.cl"

#define SUM_PART_float32 float
#define SUM_PART_int32 int
typedef PASTE(PASTE(SUM_PART_, ACC), UNIT_SUMS) unit_sums_t;

// Words of an operand that a lane has, and how they are read from an array of them.
#define WORDS_1 uint
#define WORDS_2 uint2
#define WORDS_4 uint4
#define WORDS_8 uint8
#define READ_WORDS_1(words) ((words)[0])
#define READ_WORDS_2(words) vload2(0, words)
#define READ_WORDS_4(words) vload4(0, words)
#define READ_WORDS_8(words) vload8(0, words)
typedef PASTE(WORDS_, WORDS_OF_A) unit_a_t;
typedef PASTE(WORDS_, WORDS_OF_B) unit_b_t;
#define UNIT_A(words) PASTE(READ_WORDS_, WORDS_OF_A)(words)
#define UNIT_B(words) PASTE(READ_WORDS_, WORDS_OF_B)(words)

// The lanes of a sub-group. Intel's extension says which work-items these are; of AMD's waves they are neighbours.
#if defined(SUB_GROUPS_OF_INTEL)
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#define OF_LANES(lanes) __attribute__((intel_reqd_sub_group_size(lanes)))
#define THIS_LANE() ((int)get_sub_group_local_id())
#define THIS_SUB_GROUP() ((int)get_sub_group_id())
#else
#define OF_LANES(lanes)
#define THIS_LANE() ((int)get_local_id(0) % LANES)
#define THIS_SUB_GROUP() ((int)get_local_id(0) / LANES)
#endif

// Of 2-byte elements clang wants vectors, of bytes words.
#define VECTOR_OF(type, number) type __attribute__((ext_vector_type(number)))
typedef VECTOR_OF(half, 4) four_halves_t;
typedef VECTOR_OF(short, 4) four_shorts_t;
typedef VECTOR_OF(half, 8) eight_halves_t;
typedef VECTOR_OF(short, 8) eight_shorts_t;
typedef VECTOR_OF(half, 16) sixteen_halves_t;
typedef VECTOR_OF(short, 16) sixteen_shorts_t;
#define AS(type, x) __builtin_astype(x, type)
#define MFMA_F16(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16f16(AS(four_halves_t, a), AS(four_halves_t, b), c, 0, 0, 0)
#define MFMA_BF16(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(AS(four_shorts_t, a), AS(four_shorts_t, b), c, 0, 0, 0)
#define MFMA_S8(a, b, c) __builtin_amdgcn_mfma_i32_16x16x16i8(AS(int, a), AS(int, b), c, 0, 0, 0)
#define MFMA_LONG_S8(a, b, c) __builtin_amdgcn_mfma_i32_16x16x32_i8(AS(long, a), AS(long, b), c, 0, 0, 0)
#define WMMA_F16(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(AS(sixteen_halves_t, a), AS(sixteen_halves_t, b), c)
#define WMMA_BF16(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(AS(sixteen_shorts_t, a), AS(sixteen_shorts_t, b), c)
#define WMMA_S8(a, b, c) __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(1, AS(int4, a), 1, AS(int4, b), c, 0)
#define WMMA_U8(a, b, c) __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(0, AS(int4, a), 0, AS(int4, b), c, 0)
#define WMMA_GFX12_F16(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(AS(eight_halves_t, a), AS(eight_halves_t, b), c)
#define WMMA_GFX12_BF16(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(AS(eight_shorts_t, a), AS(eight_shorts_t, b), c)
#define WMMA_GFX12_S8(a, b, c) __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(1, AS(int2, a), 1, AS(int2, b), c, 0)
#define WMMA_GFX12_U8(a, b, c) __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(0, AS(int2, a), 0, AS(int2, b), c, 0)

// A sub-group of 16 lanes has two bytes of each row of A in a lane, one of 8 has four.
#define DPAS_8_F16(a, b, c) intel_sub_group_f16_f16_matrix_mad_k16(as_int8(a), as_int8(b), c)
#define DPAS_8_BF16(a, b, c) intel_sub_group_bf16_bf16_matrix_mad_k16(as_int8(a), as_int8(b), c)
#define DPAS_8_S8(a, b, c) intel_sub_group_i8_i8_matrix_mad_k32(as_int8(a), as_int8(b), c)
#define DPAS_8_U8(a, b, c) intel_sub_group_u8_u8_matrix_mad_k32(as_uint8(a), as_uint8(b), c)
#define DPAS_16_F16(a, b, c) intel_sub_group_f16_f16_matrix_mad_k16(as_short8(a), as_int8(b), c)
#define DPAS_16_BF16(a, b, c) intel_sub_group_bf16_bf16_matrix_mad_k16(as_short8(a), as_int8(b), c)
#define DPAS_16_S8(a, b, c) intel_sub_group_i8_i8_matrix_mad_k32(as_short8(a), as_int8(b), c)
#define DPAS_16_U8(a, b, c) intel_sub_group_u8_u8_matrix_mad_k32(as_ushort8(a), as_uint8(b), c)
// Intel's offline compiler has the functions, but declares them only in the driver.
#if defined(SUB_GROUPS_OF_INTEL) && !defined(cl_intel_subgroup_matrix_multiply_accumulate)
#define DECLARED(a_t, unsigned_a_t)                                                                                \
    float8 __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(a_t a, int8 b, float8 c);          \
    float8 __attribute__((overloadable)) intel_sub_group_bf16_bf16_matrix_mad_k16(a_t a, int8 b, float8 c);        \
    int8 __attribute__((overloadable)) intel_sub_group_i8_i8_matrix_mad_k32(a_t a, int8 b, int8 c);                \
    int8 __attribute__((overloadable)) intel_sub_group_u8_u8_matrix_mad_k32(unsigned_a_t a, uint8 b, int8 c);
DECLARED(int8, uint8)
DECLARED(short8, ushort8)
#endif

inline unit_sums_t multiply_matrices(unit_a_t a, unit_b_t b, unit_sums_t sums) { return INSTRUCTION(a, b, sums); }
