// vectors: how WIDTH elements are held, as they are stored and as sums (wide_t), and arithmetic on WIDTH of them at once.
//
// With WIDTH = 4 and float32, a run has 16 bytes and a wide_t is four floats; with complex64, 32 bytes and four float2.
// Of x = {1, 2, 3, 4},
//     ELEMENT(x, 2) is 3
//     wide_mul_add(2, x, {10, 10, 10, 10}) is {12, 14, 16, 18}
//     lanes_mul_add(x, x, {0, 0, 0, 0}) is {1, 4, 9, 16}
// and turn(x) makes of x[0] = {11, 12, 13, 14}, x[1] = {21, 22, 23, 24}, x[2] = {31, 32, 33, 34}, x[3] = {41, 42, 43, 44} their columns:
// x[0] = {11, 21, 31, 41}, x[1] = {12, 22, 32, 42}, x[2] = {13, 23, 33, 43}, x[3] = {14, 24, 34, 44}.
#include "arithmetic.cu"
#include "rounding.cu"

// An array, which the compiler moves at once because it is aligned to its size.
template <typename T> struct alignas(WIDTH * sizeof(T)) run_of { T element[WIDTH]; };
typedef run_of<in_t> in_run_t;
typedef run_of<out_t> out_run_t;
typedef run_of<acc_t> wide_t;

#define RUN_ELEMENT(T, run, w) run.element[w] // the w-th element, of type T, of a run as it is stored
#define ELEMENT(x, w) ((x).element[w])        // the w-th number of a wide_t
#define LOCAL_ELEMENT(x, w) ELEMENT(x, w)
#define STORE_LOCAL(place, x) ((place) = (x)) // as OpenCL asks for it
#define WIDE_ZERO wide_zero()
__device__ inline wide_t wide_zero()
{
    wide_t x;
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = ACC_ZERO;
    return x;
}

// Numbers as a product multiplies them: rounded, where it asks for a precision.
#if defined(DROPPED_BITS)
__device__ inline acc_t rounded_number(acc_t x)
{
#if defined(COMPLEX_ARITHMETIC)
    x.x = rounded_to_precision((float)x.x);
    x.y = rounded_to_precision((float)x.y);
    return x;
#else
    return rounded_to_precision((float)x);
#endif
}
__device__ inline wide_t rounded_numbers(wide_t x)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = rounded_number(ELEMENT(x, w));
    return x;
}
#else
#define rounded_number(x) x
#define rounded_numbers(x) x
#endif

// sum + a · b for WIDTH numbers b.
__device__ inline wide_t wide_mul_add(acc_t a, wide_t b, wide_t sum)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(sum, w) = mul_add(a, ELEMENT(b, w), ELEMENT(sum, w));
    return sum;
}

// sum + a · b, lane by lane.
__device__ inline wide_t lanes_mul_add(wide_t a, wide_t b, wide_t sum)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(sum, w) = mul_add(ELEMENT(a, w), ELEMENT(b, w), ELEMENT(sum, w));
    return sum;
}

#if KEEPS_SUMS
__device__ inline wide_t lanes_sum(wide_t a, wide_t b)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(a, w) = sum_of(ELEMENT(a, w), ELEMENT(b, w));
    return a;
}
#endif

#if CONJUGATE_A || CONJUGATE_B
__device__ inline wide_t wide_conjugated(wide_t x)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w)
        ELEMENT(x, w) = conjugated(ELEMENT(x, w));
    return x;
}
#endif

// Exchanges the rows and columns of WIDTH runs.
__device__ inline void turn(wide_t *x)
{
    #pragma unroll
    for (int r = 0; r < WIDTH; ++r)
        #pragma unroll
        for (int c = 0; c < r; ++c) {
            const acc_t below = ELEMENT(x[r], c);
            ELEMENT(x[r], c) = ELEMENT(x[c], r);
            ELEMENT(x[c], r) = below;
        }
}

// Products of numbers, of which a complex element is two: one of A's numbers with all numbers of a run of B is added up by itself,
// and what came of the real and of the imaginary part of A is joined in the end: (x + yi)(u + vi) = xu - yv + (xv + yu)i.
#define ACC_ONE to<acc_t>::from(1u)
#if defined(COMPLEX_ARITHMETIC)
#define NUMBERS 2 // of an element
typedef decltype(acc_t().x) number_t;
__device__ inline wide_t add_products(number_t a, wide_t b, wide_t sum)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w) {
        ELEMENT(sum, w).x += a * ELEMENT(b, w).x;
        ELEMENT(sum, w).y += a * ELEMENT(b, w).y;
    }
    return sum;
}
__device__ inline wide_t joined(wide_t of_real, wide_t of_imaginary)
{
    #pragma unroll
    for (int w = 0; w < WIDTH; ++w) {
        ELEMENT(of_real, w).x -= ELEMENT(of_imaginary, w).y;
        ELEMENT(of_real, w).y += ELEMENT(of_imaginary, w).x;
    }
    return of_real;
}
#else
#define NUMBERS 1
typedef acc_t number_t;
__device__ inline wide_t add_products(number_t a, wide_t b, wide_t sum) { return wide_mul_add(a, b, sum); }
__device__ inline wide_t joined(wide_t sum, wide_t itself) { return sum; }
#endif
