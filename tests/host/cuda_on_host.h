// The words of CUDA C++ that gemmport's kernels use, for a C++ compiler: work-items are fibers of the runner (group.h). host_compiler.py
// has two more, __global__ and __shared__.
#pragma once

#include "group.h"

#include <utility>

#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

#define threadIdx host::position.thread
#define blockIdx host::position.block
#define blockDim host::position.items
#define gridDim host::position.groups

#define __syncthreads() host::group_barrier(__LINE__)
#define __syncwarp() host::warp_barrier(0xffffffff, __LINE__)
// CUDA C++ Programming Guide, "Warp Shuffle Functions": lanes are counted modulo 32; where none is so far up, it is the own value.
#define __shfl_sync(mask, x, lane) host::shuffled(mask, x, (lane) & 31, __LINE__)
#define __shfl_down_sync(mask, x, offset) \
    host::shuffled(mask, x, host::this_lane() + (host::this_lane() + (offset) < 32 ? (offset) : 0), __LINE__)

struct alignas(8) float2 { float x, y; };
struct alignas(16) double2 { double x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) ulonglong2 { unsigned long long x, y; };

template <typename T> inline T min(T a, T b) { return b < a ? b : a; }
inline float fabsf(float x) { return __builtin_fabsf(x); }
inline float rintf(float x) { return __builtin_rintf(x); }
template <typename T> inline T max(T a, T b) { return a < b ? b : a; }
template <typename T> inline T __ldg(const T *p) { return *p; }

extern "C" double sqrt(double), log(double), sin(double), cos(double);
inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline float log(float x) { return __builtin_logf(x); }
inline float sin(float x) { return __builtin_sinf(x); }
inline float cos(float x) { return __builtin_cosf(x); }

// Each is rounded by itself: host_compiler.py allows the compiler no contraction.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

template <typename T, typename X> inline T same_bits_as(X x)
{
    static_assert(sizeof(T) == sizeof(X), "bits of one number");
    T r;
    __builtin_memcpy(&r, &x, sizeof r);
    return r;
}
inline unsigned __float_as_uint(float x) { return same_bits_as<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return same_bits_as<float>(x); }
inline float __double2float_rz(double x)
{
    const float nearest = (float)x; // whose number is one too high where it is further from zero
    return __builtin_fabs(nearest) > __builtin_fabs(x) ? __uint_as_float(__float_as_uint(nearest) - 1) : nearest;
}

namespace host {

template <typename T> inline T shuffled(unsigned mask, T x, unsigned lane, int line)
{
    T r;
    __builtin_memcpy(&r, shown_by_lanes(mask, &x, sizeof x, line)[lane], sizeof r);
    return r;
}

// Arguments are copied: in a structure's memory they need not be aligned.
template <typename T> inline T argument(const Launch &launch, size_t number)
{
    T x;
    __builtin_memcpy(&x, launch.argument[number], sizeof x);
    return x;
}
template <typename... Types, size_t... Numbers>
inline void call(void (*kernel)(Types...), const Launch &launch, std::index_sequence<Numbers...>)
{
    kernel(argument<Types>(launch, Numbers)...);
}
template <typename... Types> inline void call(void (*kernel)(Types...), const Launch &launch)
{
    call(kernel, launch, std::index_sequence_for<Types...>());
}
template <typename... Types> inline const char *mismatch(void (*)(Types...), const Launch &launch)
{
    const size_t bytes[] = {sizeof(Types)..., 0};
    if (launch.arguments != sizeof...(Types))
        return "the number of arguments is not that of the kernel's";
    for (size_t a = 0; a < launch.arguments; ++a)
        if (launch.argument_bytes[a] != bytes[a])
            return "an argument has not the size of the kernel's";
    return nullptr;
}

// Absent where the library has no shared memory.
extern "C" __attribute__((weak, visibility("hidden"))) char __start_host_shared[], __stop_host_shared[];

template <auto kernel, size_t cluster> inline const char *launched(Launch *launch)
{
    if (const char *wrong = mismatch(kernel, *launch))
        return wrong;
    launch->kernel = [](const Launch &own) { call(kernel, own); };
    launch->shared = __start_host_shared;
    launch->shared_end = __stop_host_shared;
    launch->cluster = cluster;
    return run_groups(*launch);
}

}
