// early: the words by which CUDA C++ has launches begin before the one before them in their stream has ended. In OpenCL none does.
//
// They are what they are in CUDA C++ with EARLY = 0. UNALIASED says of a pointer what `restrict` does.

#define LET_NEXT()
#define AWAIT_BEFORE()
#define UNALIASED restrict
