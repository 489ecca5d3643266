// What kernels on the host and the runner that runs them (runner.cpp) know of each other.
#pragma once

#include <stddef.h>

namespace host {

struct Indices { unsigned x, y, z; };

struct Region { void *begin; size_t bytes; };

// A launch as host.py packs it. A kernel's library adds its function, and where its groups' shared memory lies.
struct Launch {
    Indices groups, items;
    size_t dynamic_bytes;
    unsigned order; // of work-items' turns: 0 forward, 1 reversed, others shuffled, by this seed
    double seconds; // of the processor's time, after which the launch ends with a fault; 0: no limit
    unsigned arguments;
    const void *const *argument;
    const size_t *argument_bytes;
    size_t early; // regions of memory that launches before still write when this one begins; 0: all have ended
    const Region *region;
    void (*kernel)(const Launch &);
    char *shared, *shared_end;
    size_t cluster; // groups that run at one time, and reach each other's shared memory
};

// Where the running work-item is.
struct Position { Indices thread, block, items, groups; };
extern Position position;

extern unsigned char *dynamic_shared;

// What a lane shows to the others of its warp.
typedef unsigned char Shown[64];

// What the running work-item does wrong, as printf has it: the launch ends.
[[noreturn]] void fault(const char *format, ...);
// Likewise, of what no work-item does that runs now.
void complain(const char *format, ...);

// Runs all groups. Returns the first fault; null where there is none.
const char *run_groups(const Launch &launch);

// Wait for all work-items of the group, or of the warp, that have not ended. The line is that of the source.
void group_barrier(int line);
void warp_barrier(unsigned mask, int line);
void cluster_barrier(int line);

// Shows bytes to all lanes of the warp, and waits for theirs: what the 32 lanes show, FF where there is no such lane.
const Shown *shown_by_lanes(unsigned mask, const void *mine, size_t bytes, int line);
int this_lane();
int this_item();

// What a work-item waits for, which is looked at anew when it could have a turn, as a loop that polls would; and its words for that.
struct Awaited {
    virtual bool holds() const = 0;
    virtual void tell(char *text, size_t size) const = 0;
};
void wait_for(const Awaited &what, int line);

// Below the limit: 0, unless work-items are shuffled.
unsigned drawn(unsigned limit);

// cp.async. Until it was waited for, the target is poison; then it gets `present` bytes of the source, and zeros for the rest.
void copy_later(void *target, const void *source, size_t bytes, size_t present);
void end_group_of_copies();
void await_copies(int groups_left);

// Hopper's units (hopper.cpp), which work beside the work-items. Lines are those of the source.

// A tensor map, of three dimensions: what cuTensorMapEncodeTiled puts in the same 128 bytes in its own way. Strides are in bytes.
struct TensorMap {
    unsigned long long address; // first, so that another one is put there as where an argument is memory
    char mark[8]; // MAP_MARK
    unsigned long long sizes[3], strides[2];
    unsigned box[3], element_bytes;
};
#define MAP_MARK "tilemap"

void init_barrier(void *barrier, unsigned count, int line);
void fence_barriers();
void arrive(void *barrier, int line);
void arrive_expecting(void *barrier, unsigned bytes, int line);
void wait_for_barrier(void *barrier, unsigned parity, int line);

// In other groups of the cluster, by their ranks: the address of the same place there; 16 bytes that go to such an address, of which the
// barrier at another gets to know; who arrives at the barrier in the same place; copies to several groups.
unsigned address_in(int rank, const void *place, int line);
void store_in(unsigned to, const void *from, unsigned barrier, int line);
void arrive_in(int rank, void *barrier, int line);
void copy_tile_to(unsigned ranks, void *to, const void *map, void *barrier, int x, int y, int z, int line);

void fence_shared();
void check_map(const void *map, int line);
void copy_tile(void *to, const void *map, void *barrier, int x, int y, int z, int line);

// Launches that begin early. Those before end as late as they may: their memory is poison until all work-items that can go on wait. What
// was written there by then is lost. Copies must wait for them.
void let_next_begin();
void await_launches(int line);
bool have_launches_ended();

void fewer_registers(unsigned count, int line);
void more_registers(unsigned count, int line);
void named_barrier(unsigned number, unsigned threads, int line);

// A product of four warps: 64 rows by so many columns, of 32 bytes of terms.
enum class Numbers { F16, BF16, TF32, E4M3, E5M2, S8, U8 };
struct Product {
    unsigned long long a, b;
    Numbers numbers;
    int columns;
    bool keeps, turn_a, turn_b;
    int line;
    bool by_registers; // of A, which then has no descriptor: each lane has four words of it
};
unsigned shared_address(const void *place);
void group_fence(int line);
void group_mul_add(void *sums, const Product &product, const unsigned *lines = nullptr);
void group_commit(int line);
void group_wait(int batches_left, int line);

// What the runner tells the units: of which group of a cluster it speaks from now on; that one begins, in this memory; a work-item ends; the
// group has ended; no work-item can go on. Whether that lets one.
static const int MOST_GROUPS = 2; // of a cluster
void choose_units(int rank);
void start_units(const Launch &launch, int rank, unsigned char *dynamic);
void end_units_of_item();
void end_units();
bool units_go_on();

}
