// hopper: the instructions of kernels/cuda/prelude/hopper.cu as the PTX ISA describes them, for the host: hopper.cpp has the units.
#include "ptx.cu"

#define BARRIER_INIT(bar, count) host::init_barrier(bar, count, __LINE__)
#define FENCE_BARRIERS() host::fence_barriers()
#define BARRIER_EXPECT(bar, bytes) host::arrive_expecting(bar, bytes, __LINE__)
#define BARRIER_ARRIVE(bar) host::arrive(bar, __LINE__)
#define BARRIER_WAIT(bar, parity) host::wait_for_barrier(bar, parity, __LINE__)

#define FENCE_SHARED() host::fence_shared()
#define COPY_TILE(to, map, bar, x, y, z) host::copy_tile(to, map, bar, x, y, z, __LINE__)
#define PREFETCH_MAP(map) host::check_map(map, __LINE__)

#define CLUSTER_BARRIER() host::cluster_barrier(__LINE__)
// On a GPU this one releases, too, so that arrivals in the other group have come. Here they count at once, and one that comes to a group that
// has ended is reported.
#define CLUSTER_END() host::cluster_barrier(__LINE__)
#define CLUSTER_ARRIVE(bar, rank) host::arrive_in(rank, bar, __LINE__)
#define CLUSTER_ADDRESS(there, place, rank) ((there) = host::address_in(rank, place, __LINE__))
#define CLUSTER_STORE(there, x, bar) host::store_in(there, x, bar, __LINE__)
#define CLUSTER_STORE_WHOLE(there, x, bar) host::store_in(there, x, bar, __LINE__)
#define COPY_TILE_TO(ranks, to, map, bar, x, y, z) host::copy_tile_to(ranks, to, map, bar, x, y, z, __LINE__)

#define REGISTERS_DOWN(n) host::fewer_registers(n, __LINE__)
#define REGISTERS_UP(n) host::more_registers(n, __LINE__)
#define NAMED_BARRIER(id, threads) host::named_barrier(id, threads, __LINE__)

// PTX ISA, "Matrix Descriptor Format": bits 0 to 13, 16 to 29 and 32 to 45 are an address and two distances, in 16 bytes; bits 62 and 63
// are 1 where 128 bytes are swizzled.
#define MATRIX_DESCRIPTOR(place, leading, stride)                                                                 \
    ((unsigned long long)(host::shared_address(place) / 16 % 16384) + (unsigned long long)(leading) / 16 * 65536 \
     + (unsigned long long)(stride) / 16 * 4294967296 + 4611686018427387904)

#define GROUP_FENCE() host::group_fence(__LINE__)
#define GROUP_COMMIT() host::group_commit(__LINE__)
#define GROUP_WAIT(n) host::group_wait(n, __LINE__)
#define TOUCH_SUM(x) ((void)0)
#define TOUCH_WHOLE_SUM(x) ((void)0)
#define TOUCH_NUMBER(x) ((void)0)

#define GROUP_MUL_ADD(numbers, columns, d, a, b, scale, turn_a, turn_b) \
    host::group_mul_add(d, {a, b, host::numbers, columns, (scale) != 0, (turn_a) != 0, (turn_b) != 0, __LINE__, false})
#define LINES_MUL_ADD(numbers, columns, d, a, b, scale) \
    host::group_mul_add(d, {0, b, host::numbers, columns, (scale) != 0, false, false, __LINE__, true}, a)
#define LINES_MUL_ADD_TF32_64(...) LINES_MUL_ADD(Numbers::TF32, 64, __VA_ARGS__)
#define LINES_MUL_ADD_TF32_128(...) LINES_MUL_ADD(Numbers::TF32, 128, __VA_ARGS__)
#define LINES_MUL_ADD_TF32_192(...) LINES_MUL_ADD(Numbers::TF32, 192, __VA_ARGS__)
#define LINES_MUL_ADD_TF32_256(...) LINES_MUL_ADD(Numbers::TF32, 256, __VA_ARGS__)
#define GROUP_MUL_ADD_F16_64(...) GROUP_MUL_ADD(Numbers::F16, 64, __VA_ARGS__)
#define GROUP_MUL_ADD_F16_128(...) GROUP_MUL_ADD(Numbers::F16, 128, __VA_ARGS__)
#define GROUP_MUL_ADD_F16_192(...) GROUP_MUL_ADD(Numbers::F16, 192, __VA_ARGS__)
#define GROUP_MUL_ADD_F16_256(...) GROUP_MUL_ADD(Numbers::F16, 256, __VA_ARGS__)
#define GROUP_MUL_ADD_BF16_64(...) GROUP_MUL_ADD(Numbers::BF16, 64, __VA_ARGS__)
#define GROUP_MUL_ADD_BF16_128(...) GROUP_MUL_ADD(Numbers::BF16, 128, __VA_ARGS__)
#define GROUP_MUL_ADD_BF16_192(...) GROUP_MUL_ADD(Numbers::BF16, 192, __VA_ARGS__)
#define GROUP_MUL_ADD_BF16_256(...) GROUP_MUL_ADD(Numbers::BF16, 256, __VA_ARGS__)
#define GROUP_MUL_ADD_TF32_64(...) GROUP_MUL_ADD(Numbers::TF32, 64, __VA_ARGS__)
#define GROUP_MUL_ADD_TF32_128(...) GROUP_MUL_ADD(Numbers::TF32, 128, __VA_ARGS__)
#define GROUP_MUL_ADD_TF32_192(...) GROUP_MUL_ADD(Numbers::TF32, 192, __VA_ARGS__)
#define GROUP_MUL_ADD_TF32_256(...) GROUP_MUL_ADD(Numbers::TF32, 256, __VA_ARGS__)
#define GROUP_MUL_ADD_E4M3_64(...) GROUP_MUL_ADD(Numbers::E4M3, 64, __VA_ARGS__)
#define GROUP_MUL_ADD_E4M3_128(...) GROUP_MUL_ADD(Numbers::E4M3, 128, __VA_ARGS__)
#define GROUP_MUL_ADD_E4M3_192(...) GROUP_MUL_ADD(Numbers::E4M3, 192, __VA_ARGS__)
#define GROUP_MUL_ADD_E4M3_256(...) GROUP_MUL_ADD(Numbers::E4M3, 256, __VA_ARGS__)
#define GROUP_MUL_ADD_E5M2_64(...) GROUP_MUL_ADD(Numbers::E5M2, 64, __VA_ARGS__)
#define GROUP_MUL_ADD_E5M2_128(...) GROUP_MUL_ADD(Numbers::E5M2, 128, __VA_ARGS__)
#define GROUP_MUL_ADD_E5M2_192(...) GROUP_MUL_ADD(Numbers::E5M2, 192, __VA_ARGS__)
#define GROUP_MUL_ADD_E5M2_256(...) GROUP_MUL_ADD(Numbers::E5M2, 256, __VA_ARGS__)
#define GROUP_MUL_ADD_S8_64(...) GROUP_MUL_ADD(Numbers::S8, 64, __VA_ARGS__)
#define GROUP_MUL_ADD_S8_128(...) GROUP_MUL_ADD(Numbers::S8, 128, __VA_ARGS__)
#define GROUP_MUL_ADD_S8_192(...) GROUP_MUL_ADD(Numbers::S8, 192, __VA_ARGS__)
#define GROUP_MUL_ADD_S8_256(...) GROUP_MUL_ADD(Numbers::S8, 256, __VA_ARGS__)
#define GROUP_MUL_ADD_U8_64(...) GROUP_MUL_ADD(Numbers::U8, 64, __VA_ARGS__)
#define GROUP_MUL_ADD_U8_128(...) GROUP_MUL_ADD(Numbers::U8, 128, __VA_ARGS__)
#define GROUP_MUL_ADD_U8_192(...) GROUP_MUL_ADD(Numbers::U8, 192, __VA_ARGS__)
#define GROUP_MUL_ADD_U8_256(...) GROUP_MUL_ADD(Numbers::U8, 256, __VA_ARGS__)
