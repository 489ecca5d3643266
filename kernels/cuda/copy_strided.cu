// copy_strided: one thread copies one element of an array of up to four dimensions, the last of which runs fastest.
// Equal types are moved as words, others are loaded, converted and stored (one and zero are the scalars of `store`).
#include "arithmetic.cu"

#if WORD_BYTES == 1
typedef unsigned char source_t;
#elif WORD_BYTES == 2
typedef unsigned short source_t;
#elif WORD_BYTES == 4
typedef unsigned source_t;
#elif WORD_BYTES == 8
typedef unsigned long long source_t;
#endif
#if WORD_BYTES
typedef source_t target_t;
#define SCALARS
#define COPY(target, source) (*(target) = *(source))
#else
typedef in_t source_t;
typedef out_t target_t;
#define SCALARS , acc_t one, acc_t zero
#define COPY(target, source) store(target, target, load(source), one, zero)
#endif

extern "C" __global__ void copy_strided(
    const source_t *source, index_t source_offset, target_t *target, index_t target_offset,
    index_t total, index_t n1, index_t n2, index_t n3,
    index_t s0, index_t s1, index_t s2, index_t s3,
    index_t t0, index_t t1, index_t t2, index_t t3
    SCALARS)
{
    index_t i = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total)
        return;
    const index_t i3 = i % n3;
    i /= n3;
    const index_t i2 = i % n2;
    i /= n2;
    const index_t i1 = i % n1;
    const index_t i0 = i / n1;
    source += source_offset + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3;
    target += target_offset + i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3;
    COPY(target, source);
}
