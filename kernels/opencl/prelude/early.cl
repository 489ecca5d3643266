// early: the words by which CUDA C++ has launches begin before the one before them in their queue has ended. In OpenCL none does.

#define LET_NEXT()
#define AWAIT_BEFORE()
#define UNALIASED restrict
