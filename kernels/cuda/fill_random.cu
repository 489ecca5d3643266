// fill_random: each element is a function of the seed and of its number alone, so that the host can tell any of them.
#include "arithmetic.cu"

typedef PASTE(SUM_, REAL) real_t;
typedef unsigned long long bits_t;

// Output of a number, from 0, of SplitMix64 (Steele, Lea & Flood 2014; constants of S. Vigna's splitmix64.c).
__device__ inline bits_t output(bits_t seed, bits_t number)
{
    bits_t z = seed + (number + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

// Two numbers from two outputs.
#if NORMAL // by Box and Muller's transform of numbers in (0, 1]
#define UNIT ((real_t)1 / ((bits_t)1 << DIGITS))
__device__ inline real_t uniform_of(bits_t bits) { return (real_t)((bits >> (64 - DIGITS)) + 1) * UNIT; }
#define TURN ((real_t)6.283185307179586476925)
#define MAKE(first, second)                                 \
    const real_t radius = sqrt(-2 * log(uniform_of(first))); \
    const real_t angle = TURN * uniform_of(second);          \
    const real_t x = radius * cos(angle), y = radius * sin(angle)
#else
__device__ inline real_t whole_of(bits_t bits, bits_t low, bits_t count)
{
    return (real_t)(long long)(low + (count ? ((bits >> 32) * count) >> 32 : bits));
}
#define MAKE(first, second) \
    const real_t x = whole_of(first, low, count), y = whole_of(second, low, count)
#endif

extern "C" __global__ __launch_bounds__(ITEMS)
void fill_random(out_t *matrix, index_t offset, index_t ld, index_t stride,
                 index_t rows, index_t columns, index_t batch, bits_t seed, bits_t low, bits_t count, acc_t one, acc_t nothing)
{
    for (int e = 0; e < EACH; ++e) {
        const index_t number = ((index_t)blockIdx.x * EACH + e) * ITEMS + (index_t)threadIdx.x;
        if (number >= rows * columns * batch)
            return;
        MAKE(output(seed, 2 * (bits_t)number), output(seed, 2 * (bits_t)number + 1));
#if PARTS == 2
        const acc_t value = {x, y};
#else
        const acc_t value = x;
#endif
        const index_t row = number / columns;
        out_t *p = matrix + offset + row / rows * stride + row % rows * ld + number % columns;
        store(p, p, value, one, nothing);
    }
}
