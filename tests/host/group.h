// What kernels on the host and the runner that runs them (runner.cpp) know of each other.
#pragma once

#include <stddef.h>

namespace host {

struct Indices { unsigned x, y, z; };

// A launch as host.py packs it. A kernel's library adds its function, and where its groups' shared memory lies.
struct Launch {
    Indices groups, items;
    size_t dynamic_bytes;
    unsigned order; // of work-items' turns: 0 forward, 1 reversed, others shuffled, by this seed
    unsigned arguments;
    const void *const *argument;
    const size_t *argument_bytes;
    void (*kernel)(const Launch &);
    char *shared, *shared_end;
};

// Where the running work-item is.
struct Position { Indices thread, block, items, groups; };
extern Position position;

extern unsigned char *dynamic_shared;

// What a lane shows to the others of its warp.
typedef unsigned char Shown[64];

// What the running work-item does wrong: the launch ends.
[[noreturn]] void fault(const char *what);

// Runs all groups. Returns the first fault; null where there is none.
const char *run_groups(const Launch &launch);

// Wait for all work-items of the group, or of the warp, that have not ended. The line is that of the source.
void group_barrier(int line);
void warp_barrier(unsigned mask, int line);

// Shows bytes to all lanes of the warp, and waits for theirs: what the 32 lanes show, FF where there is no such lane.
const Shown *shown_by_lanes(unsigned mask, const void *mine, size_t bytes, int line);
int this_lane();

// cp.async. Until it was waited for, the target is poison; then it gets `present` bytes of the source, and zeros for the rest.
void copy_later(void *target, const void *source, size_t bytes, size_t present);
void end_group_of_copies();
void await_copies(int groups_left);

}
