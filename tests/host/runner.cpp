// Runs the groups of a launch one after the other, those of a cluster together, and their work-items in turns, each on a stack of its own.
//
// A work-item runs until it waits or ends; then the next one does. The order of turns is the launch's: a kernel that lacks a barrier
// reads, in one order or another, what was not written yet. Shared memory is poison (FF, which is a NaN) when a group starts.

#include "group.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <vector>

#if !defined(__x86_64__)
#define WITH_UCONTEXT
#endif
#if defined(WITH_UCONTEXT)
#include <ucontext.h>
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1 // as GCC calls it
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace host {

static const int WARP = 32, MOST_ITEMS = 1024 * MOST_GROUPS, MOST_COPIES = 4096;
static const size_t STACK = 256 * 1024;

enum Order { FORWARD, REVERSED, SHUFFLED }; // and on, by the seed that it is
enum State { READY, AT_CLUSTER_BARRIER, AT_GROUP_BARRIER, AT_WARP_BARRIER, AWAITING, ENDED };

struct Copy { void *target; const void *source; size_t bytes, present; };

struct Item {
    Indices thread;
    int number; // in the cluster, group by group
    State state;
    int line; // at which it waits
    const Awaited *awaited;
    unsigned exchanges;
    Copy *copies; // that nobody waited for yet; the end of each of their groups
    int copied, *group_ends, groups;
};

struct Warp {
    int alive, waiting;
    Shown shown[2][WARP]; // in turns: a lane may show the next before all others have read this
};

Position position;
unsigned char *dynamic_shared;

static const Launch *launch_now;
static Item item[MOST_ITEMS];
static Warp warp[MOST_ITEMS / WARP];
static int items, warps, groups; // of a group; in a cluster
static int alive[MOST_GROUPS], waiting[MOST_GROUPS], waiting_in_cluster;
static Indices block[MOST_GROUPS];
static unsigned char *dynamic[MOST_GROUPS];
static Item *current;
static char message[800];

// Stacks and the switch between them.

static char *stacks; // each with a page below that nobody may touch

static char *bottom_of_stack(int number) { return stacks + number * (STACK + 4096) + 4096; }

static void make_stacks()
{
    if (stacks)
        return;
    const size_t each = STACK + 4096;
    stacks = (char *)mmap(nullptr, MOST_ITEMS * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        abort();
    for (int i = 0; i < MOST_ITEMS; ++i)
        mprotect(stacks + i * each, 4096, PROT_NONE);
}

#if defined(WITH_UCONTEXT)
typedef ucontext_t Context;
static void make_context(Context *context, char *bottom, void (*start)())
{
    getcontext(context);
    context->uc_stack.ss_sp = bottom;
    context->uc_stack.ss_size = STACK;
    makecontext(context, start, 0);
    context->uc_stack.ss_size = 0; // AddressSanitizer would take a switch for the end of what the stack holds
}
static void switch_context(Context *from, Context *to) { swapcontext(from, to); }
#else
typedef void *Context; // the stack pointer, below the registers that a function preserves
extern "C" void host_switch_context(Context *from, Context *to);
asm(R"(
.text
.hidden host_switch_context
.globl host_switch_context
.type host_switch_context, @function
host_switch_context:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size host_switch_context, . - host_switch_context
)");
static void switch_context(Context *from, Context *to) { host_switch_context(from, to); }
static void make_context(Context *context, char *bottom, void (*start)())
{
    void **top = (void **)(bottom + STACK);
    *--top = nullptr; // start returns nowhere; as behind a call, the stack pointer is 8 below a multiple of 16
    *--top = (void *)start;
    *context = top - 6;
}
#endif

static Context context_of_runner, context_of[MOST_ITEMS];

#if defined(__SANITIZE_ADDRESS__)
static void *shadow_of_runner;
static void *shadow_of[MOST_ITEMS];
static const void *bottom_of_runner;
static size_t size_of_runner;
#endif

static int group_of(const Item &own) { return own.number / items; }

static void choose_group(int rank)
{
    position.block = block[rank];
    dynamic_shared = dynamic[rank];
    choose_units(rank);
}

static void enter(Item *next)
{
    current = next;
    position.thread = next->thread;
    choose_group(group_of(*next));
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&shadow_of_runner, bottom_of_stack(next->number), STACK);
#endif
    switch_context(&context_of_runner, &context_of[next->number]);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(shadow_of_runner, nullptr, nullptr);
#endif
}

// Back to the runner; returns when the work-item has its next turn, which never comes to one that ended.
static void leave(bool for_good)
{
    Item *const own = current;
    (void)for_good;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(for_good ? nullptr : &shadow_of[own->number], bottom_of_runner, size_of_runner);
#endif
    switch_context(&context_of[own->number], &context_of_runner);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(shadow_of[own->number], &bottom_of_runner, &size_of_runner);
#endif
}

static void complain_of(const char *format, va_list values)
{
    if (!message[0])
        vsnprintf(message, sizeof message, format, values);
}

void complain(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    complain_of(format, values);
    va_end(values);
}

[[noreturn]] void fault(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    complain_of(format, values);
    va_end(values);
    leave(true);
    abort();
}

// The watchdog: a launch may take so much of the processor's time, else it ends with a fault. A work-item that comes to a barrier by
// then is the last to run. One that does not is left where it is, at the timer's second call: it is in the kernel's own code.

#if !defined(sigev_notify_thread_id)
#define sigev_notify_thread_id _sigev_un._tid
#endif
static volatile bool late, in_item;

static void complain_of_time()
{
    complain("work-item %d runs after %g seconds, the most that a launch may take; it last waited in line %d", this_item(),
             launch_now->seconds, current->line);
}

static void on_timer(int)
{
    const bool again = late;
    late = true;
    if (again && in_item) {
        complain_of_time();
        leave(true);
    }
}

class Watchdog {
    timer_t timer;
    struct sigaction before;
    const int number = SIGRTMIN + 4;

public:
    explicit Watchdog(double seconds)
    {
        late = false;
        struct sigaction own = {};
        own.sa_handler = on_timer;
        own.sa_flags = SA_NODEFER | SA_RESTART; // the handler may not return
        sigaction(number, &own, &before);
        struct sigevent event = {};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = number;
        event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
        if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer))
            abort();
        const struct timespec after = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
        const struct itimerspec set = {{1, 0}, after}; // all zeros set none
        timer_settime(timer, 0, &set, nullptr);
    }
    ~Watchdog()
    {
        timer_delete(timer);
        sigaction(number, &before, nullptr);
    }
};

// Barriers. The last one to come lets all go on.

static Warp &warp_of(const Item &own) { return warp[group_of(own) * warps + own.number % items / WARP]; }

static void release(State where, int first, int last)
{
    int line = 0;
    for (int i = first; i < last; ++i)
        if (item[i].state == where) {
            if (line && item[i].line != line)
                complain("work-items of one %s wait at different barriers, in lines %d and %d",
                         where == AT_WARP_BARRIER ? "warp" : where == AT_GROUP_BARRIER ? "group" : "cluster", line, item[i].line);
            line = item[i].line;
            item[i].state = READY;
        }
}

static void release_complete(Item &own)
{
    Warp &its = warp_of(own);
    const int group = group_of(own), begin = group * items, end = begin + items;
    const int first = begin + own.number % items / WARP * WARP, last = first + WARP < end ? first + WARP : end;
    if (its.waiting && its.waiting == its.alive) {
        its.waiting = 0;
        release(AT_WARP_BARRIER, first, last);
    }
    if (waiting[group] && waiting[group] == alive[group]) {
        waiting[group] = 0;
        release(AT_GROUP_BARRIER, begin, end);
    }
    int in_cluster = 0;
    for (int g = 0; g < groups; ++g)
        in_cluster += alive[g];
    if (waiting_in_cluster && waiting_in_cluster == in_cluster) {
        waiting_in_cluster = 0;
        release(AT_CLUSTER_BARRIER, 0, groups * items);
    }
}

static void wait_at(State where, int &others, int line)
{
    current->state = where;
    current->line = line;
    ++others;
    release_complete(*current);
    leave(false);
}

void group_barrier(int line) { wait_at(AT_GROUP_BARRIER, waiting[group_of(*current)], line); }

void cluster_barrier(int line) { wait_at(AT_CLUSTER_BARRIER, waiting_in_cluster, line); }

void warp_barrier(unsigned mask, int line)
{
    if (mask != 0xffffffff)
        fault("a warp's barriers and shuffles are simulated for all of its lanes alone: the mask must be 0xffffffff");
    wait_at(AT_WARP_BARRIER, warp_of(*current).waiting, line);
}

int this_lane() { return this_item() % WARP; }
int this_item() { return current->number % items; }

void wait_for(const Awaited &what, int line)
{
    current->line = line;
    if (drawn(4) == 0 && what.holds()) // or it comes back later
        return;
    current->state = AWAITING;
    current->awaited = &what;
    leave(false);
}

const Shown *shown_by_lanes(unsigned mask, const void *mine, size_t bytes, int line)
{
    Item &own = *current;
    Shown *const table = warp_of(own).shown[own.exchanges++ % 2];
    memcpy(table[this_lane()], mine, bytes);
    warp_barrier(mask, line);
    const Item *const lanes = &own - this_lane();
    for (int lane = 0; lane < WARP; ++lane)
        if (lanes[lane].exchanges < own.exchanges) // it ended before, or never was
            memset(table[lane], 0xff, sizeof(Shown));
    return table;
}

// Copies that are on their way.

void copy_later(void *target, const void *source, size_t bytes, size_t present)
{
    if ((size_t)target % bytes || (size_t)source % bytes)
        fault("cp.async: source and target must be aligned to the bytes that are copied");
    if (current->copied == MOST_COPIES)
        fault("cp.async: too many copies that nobody waited for");
    memset(target, 0xff, bytes);
    current->copies[current->copied++] = {target, source, bytes, present};
}

void end_group_of_copies()
{
    if (current->groups == MOST_COPIES)
        fault("cp.async: too many groups of copies that nobody waited for");
    current->group_ends[current->groups++] = current->copied;
}

void await_copies(int groups_left)
{
    const int arriving = current->groups - groups_left;
    if (arriving <= 0)
        return;
    const int end = current->group_ends[arriving - 1];
    for (int c = 0; c < end; ++c) {
        const Copy &copy = current->copies[c];
        memcpy(copy.target, copy.source, copy.present);
        memset((char *)copy.target + copy.present, 0, copy.bytes - copy.present);
    }
    current->copied -= end;
    memmove(current->copies, current->copies + end, current->copied * sizeof(Copy));
    current->groups = groups_left;
    for (int g = 0; g < groups_left; ++g)
        current->group_ends[g] = current->group_ends[g + arriving] - end;
}

// Groups.

static void run_item()
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &bottom_of_runner, &size_of_runner);
#endif
    launch_now->kernel(*launch_now);
    end_units_of_item();
    current->state = ENDED;
    --warp_of(*current).alive;
    if (--alive[group_of(*current)] == 0)
        end_units();
    release_complete(*current);
    leave(true);
}

// Not `memset`, which AddressSanitizer would hold to the bounds of each variable.
#if defined(__SANITIZE_ADDRESS__)
__attribute__((no_sanitize_address))
#endif
static void poison(char *begin, char *end)
{
    for (volatile char *p = begin; p < end; ++p)
        *p = (char)0xff;
}

static void start_group(int rank)
{
    for (int i = rank * items; i < (rank + 1) * items; ++i) {
        const Indices &size = launch_now->items;
        const unsigned number = i % items;
        Item &own = item[i];
        own.thread = {number % size.x, number / size.x % size.y, number / size.x / size.y};
        own.number = i;
        own.state = READY;
        own.line = own.copied = own.groups = 0;
        own.exchanges = 0;
        if (!own.copies) {
            own.copies = (Copy *)malloc(MOST_COPIES * sizeof(Copy));
            own.group_ends = (int *)malloc(MOST_COPIES * sizeof(int));
        }
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(bottom_of_stack(i), STACK); // of a work-item that a fault left where it was
#endif
        make_context(&context_of[i], bottom_of_stack(i), run_item);
    }
    alive[rank] = items;
    waiting[rank] = waiting_in_cluster = 0;
    for (int w = 0; w < warps; ++w) {
        warp[rank * warps + w].alive = items - w * WARP < WARP ? items - w * WARP : WARP;
        warp[rank * warps + w].waiting = 0;
    }
    poison(launch_now->shared, launch_now->shared_end);
    memset(dynamic[rank], 0xff, launch_now->dynamic_bytes);
    start_units(*launch_now, rank, dynamic[rank]);
}

static unsigned long long random_state;

static unsigned random_below(unsigned limit) // xorshift64*
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (unsigned)((random_state * 0x2545f4914f6cdd1dULL) >> 32) % limit;
}

unsigned drawn(unsigned limit) { return launch_now->order >= SHUFFLED ? random_below(limit) : 0; }

// The numbers from `first` on in the order of the launch.
static void put_in_order(int *turns, int first, int count)
{
    for (int i = 0; i < count; ++i)
        turns[i] = first + (launch_now->order == REVERSED ? count - 1 - i : i);
    if (launch_now->order >= SHUFFLED)
        for (int i = count - 1; i > 0; --i) {
            const int other = (int)random_below(i + 1), own = turns[i];
            turns[i] = turns[other];
            turns[other] = own;
        }
}

static bool goes_on(Item &own)
{
    choose_group(group_of(own));
    if (own.state == AWAITING && own.awaited->holds())
        own.state = READY;
    return own.state == READY;
}

// A turn of each of a warp's work-items that do not wait. Returns whether there were any.
static bool run_warp(int number)
{
    const int first = number % warps * WARP;
    int turns[WARP], count = items - first < WARP ? items - first : WARP;
    put_in_order(turns, number / warps * items + first, count);
    bool any = false;
    for (int i = 0; i < count && !message[0]; ++i)
        if (goes_on(item[turns[i]])) {
            any = true;
            in_item = true;
            enter(&item[turns[i]]);
            in_item = false;
            if (late)
                complain_of_time();
        }
    return any;
}

// The launches before this one, which it may overlap: what they write is kept here until they end.
static std::vector<std::vector<char>> to_be_written;

static void begin_before_others_end()
{
    to_be_written.clear();
    for (size_t r = 0; r < launch_now->early; ++r) {
        const Region &each = launch_now->region[r];
        to_be_written.emplace_back((char *)each.begin, (char *)each.begin + each.bytes);
    }
    for (size_t r = 0; r < launch_now->early; ++r)
        memset(launch_now->region[r].begin, 0xff, launch_now->region[r].bytes);
}

bool have_launches_ended() { return to_be_written.empty(); }

// Returns whether they had not ended before.
static bool end_launches()
{
    if (have_launches_ended())
        return false;
    for (size_t r = 0; r < launch_now->early; ++r)
        memcpy(launch_now->region[r].begin, to_be_written[r].data(), to_be_written[r].size());
    to_be_written.clear();
    return true;
}

// Of all that wait in vain, the first at each line, and what for.
static void tell_deadlock()
{
    char text[sizeof message];
    size_t end = 0;
    for (int i = 0; i < groups * items; ++i) {
        bool told = item[i].state == ENDED;
        for (int before = 0; before < i && !told; ++before)
            told = item[before].state != ENDED && item[before].line == item[i].line && group_of(item[before]) == group_of(item[i]);
        if (told || end >= sizeof text - 1)
            continue;
        char what[200] = "others that never come there";
        choose_group(group_of(item[i]));
        if (item[i].state == AWAITING)
            item[i].awaited->tell(what, sizeof what);
        char where[40] = "";
        if (groups > 1)
            snprintf(where, sizeof where, " of group %d of the cluster", group_of(item[i]));
        end += snprintf(text + end, sizeof text - end, "%swork-item %d%s waits in line %d for %s", end ? "; " : "", i % items, where,
                        item[i].line, what);
    }
    complain("%s", text);
}

// A turn of each of so many warps, which goes on as far as it can. Returns whether any did.
static bool run_warps(int first, int count)
{
    int turns[MOST_ITEMS / WARP];
    put_in_order(turns, first, count);
    bool any = false;
    for (int i = 0; i < count; ++i) {
        while (run_warp(turns[i])) {
            any = true;
            if (launch_now->order >= SHUFFLED && random_below(4) == 0)
                break;
        }
        if (drawn(2) && (end_launches() || units_go_on()))
            any = true; // who waited for that may go on
    }
    return any;
}

// A warp goes on until the group's barrier, before the next one sets out, and a group until it waits for another: so far apart may they
// be. Shuffled, they may also be anywhere in between. The units are as late as can be: shuffled, they go on at any time, else when
// nobody else can.
static void run_cluster()
{
    const auto any_alive = [] {
        for (int g = 0; g < groups; ++g)
            if (alive[g])
                return true;
        return false;
    };
    while (any_alive() && !message[0]) {
        bool any = false;
        if (launch_now->order >= SHUFFLED)
            any = run_warps(0, groups * warps);
        else
            for (int g = 0; g < groups; ++g)
                while (run_warps((launch_now->order == REVERSED ? groups - 1 - g : g) * warps, warps) && !message[0])
                    any = true;
        if (!any && !message[0] && !end_launches() && !units_go_on())
            tell_deadlock();
    }
}

const char *run_groups(const Launch &launch)
{
    launch_now = &launch;
    items = (int)(launch.items.x * launch.items.y * launch.items.z);
    warps = (items + WARP - 1) / WARP;
    groups = (int)launch.cluster;
    if (groups > MOST_GROUPS)
        return "a cluster must have at most two groups";
    if (launch.groups.x % groups)
        return "the number of groups must be a multiple of a cluster's";
    if (groups > 1 && launch.shared_end != launch.shared)
        return "a cluster's shared memory must be what the launch brings: none may be declared";
    random_state = 0x9e3779b97f4a7c15ULL * launch.order;
    message[0] = 0;
    make_stacks();
    // Of 1024 bytes are the patterns in which the copy engine and the matrix unit swizzle.
    for (int g = 0; g < groups; ++g)
        if (posix_memalign((void **)&dynamic[g], 1024, launch.dynamic_bytes ? launch.dynamic_bytes : 1))
            return "no memory for shared memory";
    position.items = launch.items;
    position.groups = launch.groups;
    begin_before_others_end();
    const Watchdog watchdog(launch.seconds);
    Indices at;
    for (at.z = 0; at.z < launch.groups.z && !message[0]; ++at.z)
        for (at.y = 0; at.y < launch.groups.y && !message[0]; ++at.y)
            for (at.x = 0; at.x < launch.groups.x && !message[0]; at.x += groups) {
                for (int g = 0; g < groups; ++g) {
                    block[g] = {at.x + g, at.y, at.z};
                    start_group(g);
                }
                run_cluster();
            }
    end_launches();
    for (int g = 0; g < groups; ++g)
        free(dynamic[g]);
    return message[0] ? message : nullptr;
}

}
