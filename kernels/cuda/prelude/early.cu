// early: launches that begin before the one before them in their stream has ended (EARLY). Such a launch does nothing that others may see, or
// have seen, before AWAIT_BEFORE(), behind which all launches before have ended; LET_NEXT() lets the next one begin as soon as there is room.
//
// With EARLY = 0 both are nothing, and the stream waits between two launches. UNALIASED says of a pointer what `restrict` does.
#include "ptx.cu"

#if EARLY
#define LET_NEXT() LET_NEXT_BEGIN();
#define AWAIT_BEFORE() AWAIT_LAUNCHES();
#define UNALIASED // nothing: `restrict` would allow reads before AWAIT_BEFORE(), of what launches before still write
#else
#define LET_NEXT()
#define AWAIT_BEFORE()
#define UNALIASED __restrict__
#endif
