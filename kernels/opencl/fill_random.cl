// fill_random: each element is a function of the seed and of its number alone, so that the host can tell any of them.
#include "arithmetic.cl"

typedef PASTE(SUM_, REAL) real_t;

// Output of a number, from 0, of SplitMix64 (Steele, Lea & Flood 2014; constants of S. Vigna's splitmix64.c).
inline ulong output(ulong seed, ulong number)
{
    ulong z = seed + (number + 1) * 0x9e3779b97f4a7c15UL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9UL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebUL;
    return z ^ (z >> 31);
}

// Two numbers from two outputs.
#if NORMAL // by Box and Muller's transform of numbers in (0, 1]
#define UNIT ((real_t)1 / ((ulong)1 << DIGITS))
inline real_t uniform_of(ulong bits) { return (real_t)((bits >> (64 - DIGITS)) + 1) * UNIT; }
#define TURN ((real_t)6.283185307179586476925)
#define MAKE(first, second)                                 \
    const real_t radius = sqrt(-2 * log(uniform_of(first))); \
    const real_t angle = TURN * uniform_of(second);          \
    const real_t x = radius * cos(angle), y = radius * sin(angle)
#else
inline real_t whole_of(ulong bits, ulong low, ulong count)
{
    return (real_t)(long)(low + (count ? ((bits >> 32) * count) >> 32 : bits));
}
#define MAKE(first, second) \
    const real_t x = whole_of(first, low, count), y = whole_of(second, low, count)
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void fill_random(__global out_t *matrix, index_t offset, index_t ld, index_t stride,
                 index_t rows, index_t columns, index_t batch, ulong seed, ulong low, ulong count, acc_t one, acc_t nothing)
{
    for (int e = 0; e < EACH; ++e) {
        const index_t number = ((index_t)get_group_id(0) * EACH + e) * ITEMS + (index_t)get_local_id(0);
        if (number >= rows * columns * batch)
            return;
        MAKE(output(seed, 2 * (ulong)number), output(seed, 2 * (ulong)number + 1));
#if PARTS == 2
        const acc_t value = (acc_t)(x, y);
#else
        const acc_t value = x;
#endif
        const index_t row = number / columns;
        __global out_t *p = matrix + offset + row / rows * stride + row % rows * ld + number % columns;
        store(p, p, value, one, nothing);
    }
}
