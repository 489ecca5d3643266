// Hopper's units as the PTX ISA describes them: barriers in shared memory (mbarrier), the engine that copies tiles (cp.async.bulk.tensor),
// and products of four warps (wgmma).
//
// They work beside the work-items, and here as late as they may: a tile comes when a barrier has to be told so, a product reads its
// operands when it is awaited; shuffled, either may be earlier. Until then, where a tile will come, and in registers of sums, is poison.
//
// The units have a view of shared memory of their own, `seen`: what work-items write gets there by FENCE_SHARED() alone.

#include "group.h"

#include <math.h>
#include <memory>
#include <stdio.h>
#include <string.h>
#include <vector>

namespace host {

static const int LANES = 32, WARPS = 32, WARPS_OF_GROUP = 4, REGISTERS = 65536;
static const unsigned FIRST = 1024, WINDOW = 1 << 18, PIECE = 16;

// What there is of each group of a cluster, beside its work-items.

struct Barrier {
    unsigned address;
    int count, missing; // that have to arrive, and those that have not
    long long bytes; // that have been announced, but not come
    unsigned phase;
    int maker; // the work-item; none once the barrier is fenced
};

struct CopyOfTile {
    TensorMap map;
    unsigned to, barrier; // an address, and a number
    int at[3];
};

struct Sums { // of one array of each lane
    int columns;
    unsigned *registers[LANES];
    unsigned values[LANES][128];
    int under_way; // products
};

struct Lines { // of A, in registers: four words of each lane
    const unsigned *registers[LANES];
    unsigned values[LANES][4]; // that the unit has been let see
    int under_way;
};

struct UnderWay {
    Product what;
    std::shared_ptr<Sums> sums;
    std::shared_ptr<Lines> lines; // or none
    bool is_read;
    std::vector<double> a, b; // 16 lines of terms, and terms of as many columns as there are
};

struct UnitOfWarp {
    bool is_fenced, was_fenced; // since a product was awaited; ever
    std::vector<std::shared_ptr<Sums>> sums;
    std::vector<std::shared_ptr<Lines>> lines;
    std::vector<UnderWay> products;
    std::vector<size_t> batch_ends;
    size_t issued;
    unsigned registers;
    int register_changes;
};

struct NamedBarrier { unsigned threads, arrived, turn; };

struct Store {
    unsigned to, barrier; // an address, and a number
    unsigned char bytes[16];
};

struct Units {
    unsigned char *dynamic;
    bool ended;
    unsigned char seen[WINDOW];
    unsigned short readers[WINDOW / PIECE]; // products under way that read a piece of 16 bytes
    bool coming[WINDOW / PIECE]; // a copy on its way writes the piece
    std::vector<Barrier> barriers;
    std::vector<CopyOfTile> copies; // that come here
    std::vector<Store> stores;
    UnitOfWarp units[WARPS];
    std::vector<Product> issued[WARPS / WARPS_OF_GROUP]; // by a group's warps: each must issue the same
    unsigned warps_turn[WARPS], lanes_turn[LANES * WARPS];
    NamedBarrier named[16];
    long long free_registers;
    bool begins_early, has_awaited[LANES * WARPS]; // the launches before
};
static Units units_of[MOST_GROUPS], *now = units_of;
static int ranks; // groups of the cluster

void choose_units(int rank) { now = units_of + rank; }

// Of another group of the cluster, which is there as long as it has not ended; until this ends.
class InGroup {
    Units *const before = now;

public:
    InGroup(int rank, int line)
    {
        if (rank < 0 || rank >= ranks)
            fault("line %d must name one of %d groups of the cluster; got %d", line, ranks, rank);
        if (units_of[rank].ended)
            fault("line %d reaches shared memory of group %d of the cluster, which has ended", line, rank);
        now = units_of + rank;
    }
    ~InGroup() { now = before; }
};

// Shared memory by the addresses that the units know: declared arrays, and what the launch brings, each from a multiple of 1024 on.

static const Launch *launched_now;
static unsigned declared_end, dynamic_first, dynamic_end;

static unsigned char *memory_at(unsigned address)
{
    if (address >= FIRST && address < declared_end)
        return (unsigned char *)launched_now->shared + (address - FIRST);
    if (address >= dynamic_first && address < dynamic_end)
        return now->dynamic + (address - dynamic_first);
    return nullptr;
}

unsigned shared_address(const void *place)
{
    const char *const own = (const char *)place, *const dynamic = (const char *)now->dynamic;
    if (own >= launched_now->shared && own < launched_now->shared_end)
        return FIRST + (unsigned)(own - launched_now->shared);
    if (own >= dynamic && own < dynamic + launched_now->dynamic_bytes)
        return dynamic_first + (unsigned)(own - dynamic);
    fault("an address is not one of shared memory");
}

// Loops of their own, not memcpy and memcmp, which AddressSanitizer would hold to the bounds of each variable.
#if defined(__SANITIZE_ADDRESS__)
#define OVER_ALL __attribute__((no_sanitize_address))
#else
#define OVER_ALL
#endif
OVER_ALL static void show_all(unsigned char *to, const unsigned char *from, size_t bytes)
{
    for (size_t b = 0; b < bytes; ++b)
        to[b] = from[b];
}
OVER_ALL static bool is_shown(unsigned address)
{
    const unsigned char *const own = memory_at(address);
    for (unsigned b = 0; b < PIECE; ++b)
        if (own[b] != now->seen[address + b])
            return false;
    return true;
}

void fence_shared()
{
    show_all(now->seen + FIRST, (unsigned char *)launched_now->shared, declared_end - FIRST);
    show_all(now->seen + dynamic_first, now->dynamic, dynamic_end - dynamic_first);
}

static void set_piece(unsigned address, const void *from)
{
    memcpy(memory_at(address), from, PIECE);
    memcpy(now->seen + address, from, PIECE);
}

// Barriers. In shared memory is a mark, and the number of the barrier.

static const unsigned long long BARRIER_MARK = 0x6261727269657200;

static unsigned barrier_address(const void *place, int line)
{
    const unsigned address = shared_address(place);
    if (address % 8)
        fault("the barrier in line %d must be aligned to 8 bytes", line);
    return address;
}

static Barrier *barrier_at(unsigned address)
{
    unsigned long long mark;
    memcpy(&mark, memory_at(address), sizeof mark);
    const unsigned long long number = mark - BARRIER_MARK;
    return number < now->barriers.size() && now->barriers[number].address == address ? &now->barriers[number] : nullptr;
}

static Barrier &barrier_in(const void *place, int line)
{
    Barrier *const own = barrier_at(barrier_address(place, line));
    if (!own)
        fault("the barrier in line %d has not been initialized, or was overwritten", line);
    return *own;
}

void init_barrier(void *place, unsigned count, int line)
{
    const unsigned address = barrier_address(place, line);
    if (count < 1 || count >= 1 << 20)
        fault("the barrier in line %d must be for 1 to 2^20 - 1 that arrive; got %u", line, count);
    if (barrier_at(address))
        fault("the barrier in line %d has been initialized before", line);
    const unsigned long long mark = BARRIER_MARK + now->barriers.size();
    memcpy(memory_at(address), &mark, sizeof mark);
    now->barriers.push_back({address, (int)count, (int)count, 0, 0, this_item()});
}

void fence_barriers()
{
    for (Barrier &each : now->barriers)
        if (each.maker == this_item())
            each.maker = -1;
}

static void end_phase_if_complete(Barrier &own)
{
    if (own.missing == 0 && own.bytes == 0) {
        ++own.phase;
        own.missing = own.count;
    }
}

static void arrive_at(Barrier &own, int line)
{
    if (own.missing == 0)
        fault("more than %d arrive in line %d at the barrier at byte %u of shared memory, in its phase %u", own.count, line,
              own.address - FIRST, own.phase);
    --own.missing;
    end_phase_if_complete(own);
}

void arrive(void *place, int line) { arrive_at(barrier_in(place, line), line); }

void arrive_in(int rank, void *place, int line)
{
    const unsigned address = barrier_address(place, line);
    const InGroup there(rank, line);
    arrive_at(barrier_in(memory_at(address), line), line);
}

void arrive_expecting(void *place, unsigned bytes, int line)
{
    Barrier &own = barrier_in(place, line);
    own.bytes += bytes;
    if (own.bytes >= 1 << 20)
        fault("the barrier in line %d must expect fewer than 2^20 bytes; got %lld", line, own.bytes);
    arrive_at(own, line);
}

struct EndOfPhase : Awaited {
    unsigned number, parity;
    EndOfPhase(unsigned number, unsigned parity) : number(number), parity(parity) {}
    bool holds() const override { return (now->barriers[number].phase & 1) != parity; }
    void tell(char *text, size_t size) const override
    {
        const Barrier &own = now->barriers[number];
        snprintf(text, size, "the end of a phase of parity %u of the barrier at byte %u of shared memory, which is in phase %u "
                 "and lacks %d of %d that arrive and %lld bytes",
                 parity, own.address - FIRST, own.phase, own.missing, own.count, own.bytes);
    }
};

void wait_for_barrier(void *place, unsigned parity, int line)
{
    if (parity > 1)
        fault("the parity in line %d must be 0 or 1; got %u", line, parity);
    const Barrier &own = barrier_in(place, line);
    wait_for(EndOfPhase((unsigned)(&own - now->barriers.data()), parity), line);
    barrier_in(place, line); // it is still there
}

// The engine that copies tiles.


static unsigned row_bytes(const TensorMap &map) { return map.box[0] * map.element_bytes; }
static unsigned box_bytes(const TensorMap &map) { return row_bytes(map) * map.box[1] * map.box[2]; }

void check_map(const void *place, int line)
{
    const TensorMap &map = *(const TensorMap *)place;
    if ((size_t)place % 64)
        fault("the tensor map in line %d must be aligned to 64 bytes", line);
    if (memcmp(map.mark, MAP_MARK, sizeof map.mark))
        fault("there is no tensor map in line %d", line);
    if (map.address % 16)
        fault("the tensor map in line %d must begin at a multiple of 16 bytes", line);
    for (unsigned long long stride : map.strides)
        if (stride % 16 || stride >= 1ull << 40)
            fault("strides of the tensor map in line %d must be multiples of 16 bytes; got %llu", line, stride);
    for (int d = 0; d < 3; ++d)
        if (map.sizes[d] < 1 || map.sizes[d] > 1ull << 32 || map.box[d] < 1 || map.box[d] > 256)
            fault("dimension %d of the tensor map in line %d must be 1 to 2^32, and its box 1 to 256; got %llu and %u", d, line,
                  map.sizes[d], map.box[d]);
    if (row_bytes(map) != 128)
        fault("rows of a box are simulated where they have the 128 bytes that are swizzled; got %u in line %d", row_bytes(map), line);
}

static void start_copy(void *to, const void *map, void *barrier, int x, int y, int z, int line)
{
    check_map(map, line);
    CopyOfTile own = {*(const TensorMap *)map, shared_address(to), 0, {x, y, z}};
    Barrier &told = barrier_in(barrier, line);
    own.barrier = (unsigned)(&told - now->barriers.data());
    if (told.maker >= 0)
        fault("the copy in line %d tells a barrier that lacks FENCE_BARRIERS()", line);
    if (own.to % 1024)
        fault("the copy in line %d must go to a multiple of 1024 bytes, the pattern in which it is swizzled", line);
    if (x * (int)own.map.element_bytes % 16)
        fault("the copy in line %d must begin at a multiple of 16 bytes of a row, where an H100 reads; got element %d", line, x);
    const unsigned end = own.to + box_bytes(own.map);
    if (!memory_at(end - 1))
        fault("the copy in line %d goes beyond shared memory", line);
    for (unsigned address = own.to; address < end; address += PIECE) {
        if (now->coming[address / PIECE])
            fault("the copy in line %d goes where another one is on its way", line);
        if (now->readers[address / PIECE])
            fault("the copy in line %d overwrites what a product reads that was not awaited", line);
        if (!is_shown(address))
            fault("the copy in line %d overwrites what a work-item wrote without FENCE_SHARED()", line);
        now->coming[address / PIECE] = true;
        unsigned char poison[PIECE];
        memset(poison, 0xff, sizeof poison);
        set_piece(address, poison);
    }
    now->copies.push_back(own);
}

void let_next_begin() { now->begins_early = true; }

struct EndOfLaunches : Awaited {
    bool holds() const override { return have_launches_ended(); }
    void tell(char *text, size_t size) const override { snprintf(text, size, "the end of the launches before"); }
};

void await_launches(int line)
{
    wait_for(EndOfLaunches(), line);
    now->has_awaited[this_item()] = true;
}

static void check_order(int line)
{
    if (now->begins_early && !now->has_awaited[this_item()])
        fault("the copy in line %d lacks AWAIT_LAUNCHES() before it: who wrote what it reads may run still", line);
}

void copy_tile_to(unsigned ranks, void *to, const void *map, void *barrier, int x, int y, int z, int line)
{
    check_order(line);
    const unsigned place = shared_address(to), told = barrier_address(barrier, line);
    for (int rank = 0; rank < 32; ++rank)
        if (ranks >> rank & 1) {
            const InGroup there(rank, line);
            start_copy(memory_at(place), map, memory_at(told), x, y, z, line);
        }
}

void copy_tile(void *to, const void *map, void *barrier, int x, int y, int z, int line)
{
    check_order(line);
    start_copy(to, map, barrier, x, y, z, line);
}

// Zeros for what lies outside. The eight pieces of 128 bytes change places by XOR with the number of these 128 bytes, modulo 8.
static void bring(const CopyOfTile &own)
{
    const TensorMap &map = own.map;
    unsigned address = own.to;
    for (unsigned z = 0; z < map.box[2]; ++z)
        for (unsigned y = 0; y < map.box[1]; ++y) {
            const long long row = (long long)own.at[1] + y, matrix = (long long)own.at[2] + z;
            const bool there = row >= 0 && row < (long long)map.sizes[1] && matrix >= 0 && matrix < (long long)map.sizes[2];
            unsigned char bytes[128] = {};
            for (unsigned x = 0; x < map.box[0] && there; ++x) {
                const long long column = (long long)own.at[0] + x;
                if (column >= 0 && column < (long long)map.sizes[0])
                    memcpy(bytes + x * map.element_bytes,
                           (const char *)map.address + matrix * map.strides[1] + row * map.strides[0] + column * map.element_bytes,
                           map.element_bytes);
            }
            for (unsigned piece = 0; piece < sizeof bytes / PIECE; ++piece, address += PIECE) {
                set_piece(address ^ address / 128 % 8 * PIECE, bytes + piece * PIECE);
                now->coming[address / PIECE] = false;
            }
        }
    Barrier &told = now->barriers[own.barrier];
    told.bytes -= box_bytes(map);
    if (barrier_at(told.address))
        end_phase_if_complete(told);
    else
        complain("a barrier was overwritten that a copy has to tell");
}

// Stores in the memory of other groups: an address has the rank above those of a group.

unsigned address_in(int rank, const void *place, int line)
{
    const unsigned address = shared_address(place);
    const InGroup there(rank, line);
    return rank * WINDOW + address;
}

void store_in(unsigned to, const void *from, unsigned barrier, int line)
{
    if (to / WINDOW != barrier / WINDOW)
        fault("the store in line %d must tell a barrier of the group that it goes to", line);
    const InGroup there(to / WINDOW, line);
    unsigned char *const target = memory_at(to % WINDOW);
    if (to % PIECE || !target || !memory_at(barrier % WINDOW))
        fault("the store in line %d must go to a multiple of 16 bytes of shared memory", line);
    const Barrier &told = barrier_in(memory_at(barrier % WINDOW), line);
    Store own = {to % WINDOW, (unsigned)(&told - now->barriers.data()), {}};
    memcpy(own.bytes, from, sizeof own.bytes);
    memset(target, 0xff, PIECE); // until it has come
    now->stores.push_back(own);
}

static void come(const Store &own)
{
    memcpy(memory_at(own.to), own.bytes, sizeof own.bytes);
    Barrier &told = now->barriers[own.barrier];
    told.bytes -= sizeof own.bytes;
    end_phase_if_complete(told);
}

// Products. What the lanes of a warp do together the first one to go on does for all: `lanes_turn` and `warps_turn` count such turns.

static int items_of_group;

static int this_warp() { return this_item() / LANES; }

static bool first_of_warp()
{
    const bool first = ++now->lanes_turn[this_item()] > now->warps_turn[this_warp()];
    now->warps_turn[this_warp()] += first;
    return first;
}

// Where an operand's elements lie. Wide is what a row of the swizzled pattern has: 128, 64 or 32 bytes, or 16 where nothing is swizzled.
struct Layout {
    unsigned start, leading, stride, wide, element_bytes;
    bool turned;
    Layout(unsigned long long descriptor, bool turned, unsigned element_bytes)
        : start((descriptor & 0x3fff) << 4), leading((descriptor >> 16 & 0x3fff) << 4), stride((descriptor >> 32 & 0x3fff) << 4),
          wide(descriptor >> 62 ? 256u >> (descriptor >> 62) : 16), element_bytes(element_bytes), turned(turned)
    {
    }
    // PTX ISA, "Canonical Layouts" of wgmma's operands: eight rows of the pattern follow each other; a row is a line, or, turned, a term.
    unsigned operator()(int line, int term) const
    {
        const int row = turned ? term : line;
        const unsigned byte = (turned ? line : term) * element_bytes;
        const unsigned eighths = row / 8, repeats = byte / wide;
        // Unswizzled and turned, the two distances have each other's meaning.
        const bool exchanged = wide == 16 && turned;
        const unsigned place = start + row % 8 * wide + byte % wide + eighths * (exchanged ? leading : stride)
            + repeats * (exchanged ? stride : leading);
        return place ^ (place / 128 & (wide / PIECE - 1)) * PIECE;
    }
};

static unsigned element_bytes_of(Numbers numbers) { return numbers <= Numbers::BF16 ? 2 : numbers == Numbers::TF32 ? 4 : 1; }
static int terms_of(Numbers numbers) { return 32 / element_bytes_of(numbers); }
static bool are_whole(Numbers numbers) { return numbers >= Numbers::S8; }
static bool are_floats_of_8_bits(Numbers numbers) { return numbers == Numbers::E4M3 || numbers == Numbers::E5M2; }

static double half(unsigned bits)
{
    const int exponent = bits >> 10 & 31, digits = bits & 1023;
    const double size = exponent == 31 ? (digits ? NAN : INFINITY) : exponent ? ldexp(1024 + digits, exponent - 25) : ldexp(digits, -24);
    return bits >> 15 ? -size : size;
}

static double number(Numbers numbers, const unsigned char *from)
{
    static double halves[1 << 16];
    if (!halves[1])
        for (unsigned bits = 0; bits < 1 << 16; ++bits)
            halves[bits] = half(bits);
    unsigned wide;
    switch (numbers) {
    case Numbers::F16: return halves[from[0] | from[1] << 8];
    case Numbers::S8: return (signed char)from[0];
    case Numbers::U8: return from[0];
    case Numbers::E5M2: return halves[from[0] << 8]; // their upper halves
    case Numbers::E4M3:
        // A half has one bit more of an exponent, whose bias is greater by 8: so halves of these bits are 2^8 times smaller.
        return (from[0] & 0x7f) == 0x7f ? NAN : 256 * halves[(from[0] & 0x80) << 8 | (from[0] & 0x7f) << 7];
    case Numbers::BF16: wide = from[0] << 16 | from[1] << 24; break;
    case Numbers::TF32: // the low 13 bits are not looked at
        memcpy(&wide, from, sizeof wide);
        wide &= 0xffffe000;
    }
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

// Each element that the running warp's part of a product reads, and where it is: of A it has 16 lines of the 64.
template <class Each> static void for_each_element(const Product &what, bool of_a, int warp, Each each)
{
    const unsigned bytes = element_bytes_of(what.numbers);
    const Layout place(of_a ? what.a : what.b, of_a ? what.turn_a : what.turn_b, bytes);
    const int first = of_a ? warp % WARPS_OF_GROUP * 16 : 0, lines = of_a ? 16 : what.columns;
    for (int line = 0; line < lines; ++line)
        for (int term = 0; term < terms_of(what.numbers); ++term)
            each(line, term, place(first + line, term));
}

// For each operand of which the unit reads shared memory, whether it is A: B always is there, and A where registers do not hold it.
static std::vector<bool> in_memory(const Product &what)
{
    return what.by_registers ? std::vector<bool>{false} : std::vector<bool>{true, false};
}

static void count_readers(const Product &what, int warp, int change)
{
    for (bool of_a : in_memory(what))
        for_each_element(what, of_a, warp, [&](int, int, unsigned address) {
            if (address % PIECE == 0)
                now->readers[address / PIECE] += change;
        });
}

static void read_operands(UnderWay &own, int warp)
{
    const Product &what = own.what;
    own.is_read = true;
    own.a.resize(16 * terms_of(what.numbers));
    own.b.resize(what.columns * terms_of(what.numbers));
    if (what.by_registers) // PTX ISA, the figure of A's fragments of four bytes
        for (int line = 0; line < 16; ++line)
            for (int term = 0; term < terms_of(what.numbers); ++term) {
                const unsigned *const word = &own.lines->values[line % 8 * 4 + term % 4][line / 8 + term / 4 * 2];
                own.a[line * terms_of(what.numbers) + term] = number(what.numbers, (const unsigned char *)word);
            }
    else
        for_each_element(what, true, warp, [&](int line, int term, unsigned address) {
            own.a[line * terms_of(what.numbers) + term] = number(what.numbers, now->seen + address);
        });
    for_each_element(what, false, warp, [&](int line, int term, unsigned address) {
        own.b[term * what.columns + line] = number(what.numbers, now->seen + address);
    });
    for (bool of_a : in_memory(what))
        for_each_element(what, of_a, warp, [&](int, int, unsigned address) {
            if (address % PIECE == 0 && !is_shown(address))
                complain("the product in line %d reads what a work-item wrote without FENCE_SHARED()", what.line);
        });
}

// Of a sum and some products of 8-bit floats an H100 keeps about 14 bits (DeepSeek-V3 Technical Report, 2024, section 3.3.2): here, of
// each of them what is no less than 2^-13 of the power of two of the greatest.
static double cut_sum(double sum, const double *x, const double *y, int terms, int columns)
{
    double most = fabs(sum);
    for (int term = 0; term < terms; ++term)
        most = fmax(most, fabs(x[term] * y[term * columns]));
    const double least = most > 0 && isfinite(most) ? ldexp(1, ilogb(most) - 13) : 1;
    sum = trunc(sum / least);
    for (int term = 0; term < terms; ++term)
        sum += trunc(x[term] * y[term * columns] / least);
    return sum * least;
}

// The sums of a lane, by PTX ISA's figure of the fragments of D. Whole numbers wrap around. Floats are rounded once for each product: what
// the unit itself does to the last bits is not told.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("O3")))
#endif
static void add_products(const UnderWay &own)
{
    const Numbers numbers = own.what.numbers;
    const int terms = terms_of(numbers), columns = own.what.columns;
    for (int row = 0; row < 16; ++row) {
        double sum[256] = {};
        for (int term = 0; term < terms; ++term) {
            const double x = own.a[row * terms + term];
            const double *const y = &own.b[term * columns];
            for (int column = 0; column < columns; ++column)
                sum[column] += x * y[column];
        }
        for (int column = 0; column < columns; ++column) {
            unsigned &bits = own.sums->values[row % 8 * 4 + column % 8 / 2][column / 8 * 4 + row / 8 * 2 + column % 2];
            if (!own.what.keeps)
                bits = 0;
            if (are_whole(numbers)) {
                bits += (unsigned)(long long)sum[column];
                continue;
            }
            float value;
            memcpy(&value, &bits, sizeof value);
            value = (float)(are_floats_of_8_bits(numbers) ? cut_sum(value, &own.a[row * terms], &own.b[column], terms, columns)
                                                          : value + sum[column]);
            memcpy(&bits, &value, sizeof bits);
        }
    }
}

static bool are_registers(const Sums &sums, const unsigned (*values)[128])
{
    for (int lane = 0; lane < LANES; ++lane)
        if (memcmp(sums.registers[lane], values[lane], sums.columns * 2))
            return false;
    return true;
}
static void set_registers(const Sums &sums, const unsigned (*values)[128])
{
    for (int lane = 0; lane < LANES; ++lane)
        memcpy(sums.registers[lane], values[lane], sums.columns * 2);
}
static void look_at_registers(Sums &sums)
{
    for (int lane = 0; lane < LANES; ++lane)
        memcpy(sums.values[lane], sums.registers[lane], sums.columns * 2);
}

// Registers of A may be written once the product was awaited, and are the unit's to see behind a fence.
static bool are_as_seen(const Lines &lines)
{
    for (int lane = 0; lane < LANES; ++lane)
        if (memcmp(lines.registers[lane], lines.values[lane], sizeof lines.values[lane]))
            return false;
    return true;
}
static void look_at_registers(Lines &lines)
{
    for (int lane = 0; lane < LANES; ++lane)
        memcpy(lines.values[lane], lines.registers[lane], sizeof lines.values[lane]);
}
static const unsigned (*poison_of_sums())[128]
{
    static unsigned poison[LANES][128];
    if (!poison[0][0])
        memset(poison, 0xff, sizeof poison);
    return poison;
}

static void check_group(int line)
{
    const int group = this_warp() / WARPS_OF_GROUP * WARPS_OF_GROUP;
    if ((group + WARPS_OF_GROUP) * LANES > items_of_group)
        fault("line %d is for groups of four warps: the last one has fewer", line);
}

static bool together(int line)
{
    check_group(line);
    warp_barrier(0xffffffff, line);
    return first_of_warp();
}

void group_fence(int line)
{
    if (!together(line))
        return;
    UnitOfWarp &unit = now->units[this_warp()];
    unit.is_fenced = unit.was_fenced = true;
    for (auto &sums : unit.sums)
        if (!sums->under_way)
            look_at_registers(*sums);
    for (auto &lines : unit.lines)
        if (!lines->under_way)
            look_at_registers(*lines);
}

// Sums, or lines of A, that the unit meets for the first time: behind a fence it sees what registers hold.
template <class Held, class Registers>
static std::shared_ptr<Held> first_seen(
    const UnitOfWarp &unit, std::vector<std::shared_ptr<Held>> &known, const std::shared_ptr<Held> &fresh, const Registers *registers, int line)
{
    fresh->under_way = 0;
    memcpy(fresh->registers, registers, sizeof fresh->registers);
    if (!unit.is_fenced)
        fault("the product in line %d lacks GROUP_FENCE() before it", line);
    look_at_registers(*fresh);
    known.push_back(fresh);
    return fresh;
}

static std::shared_ptr<Sums> sums_in(UnitOfWarp &unit, unsigned *const *registers, int columns, int line)
{
    for (size_t s = 0; s < unit.sums.size(); ++s) {
        Sums &known = *unit.sums[s];
        if (known.columns == columns && !memcmp(known.registers, registers, sizeof known.registers))
            return unit.sums[s];
        if (registers[0] < known.registers[0] + known.columns / 2 && known.registers[0] < registers[0] + columns / 2) {
            if (known.under_way)
                fault("the product in line %d takes for its sums a part of those of another product under way", line);
            unit.sums.erase(unit.sums.begin() + s--);
        }
    }
    const std::shared_ptr<Sums> fresh(new Sums);
    fresh->columns = columns;
    return first_seen(unit, unit.sums, fresh, registers, line);
}

static std::shared_ptr<Lines> lines_in(UnitOfWarp &unit, const unsigned *const *registers, int line)
{
    for (auto &known : unit.lines)
        if (!memcmp(known->registers, registers, sizeof known->registers)) {
            if (!are_as_seen(*known))
                fault("A of the product in line %d was written after the last GROUP_FENCE(), or before an earlier one was awaited", line);
            return known;
        }
    return first_seen(unit, unit.lines, std::shared_ptr<Lines>(new Lines), registers, line);
}

static bool same(const Product &x, const Product &y)
{
    return x.by_registers == y.by_registers && x.a == y.a && x.b == y.b && x.numbers == y.numbers && x.columns == y.columns && x.keeps == y.keeps && x.turn_a == y.turn_a
        && x.turn_b == y.turn_b && x.line == y.line;
}

static void check_operands(const Product &what, int warp)
{
    for (unsigned long long descriptor : {what.a, what.b}) { // of 0 nothing is wrong: that of A which is in registers
        if (descriptor >> 49 & 7)
            fault("the base offset of a descriptor in line %d is not 0: what is swizzled must begin at multiples of 1024 bytes", what.line);
        if (descriptor & 0x3ff1c000c000c000)
            fault("a descriptor in line %d has bits that mean nothing", what.line);
    }
    for (bool of_a : in_memory(what))
        for_each_element(what, of_a, warp, [&](int, int, unsigned address) {
            if (address % PIECE)
                return;
            if (!memory_at(address))
                fault("the product in line %d reads outside of shared memory", what.line);
            if (now->coming[address / PIECE])
                fault("the product in line %d reads what a copy has not brought yet", what.line);
        });
}

void group_mul_add(void *place, const Product &product, const unsigned *lines)
{
    struct Request { unsigned *sums; const unsigned *lines; Product what; };
    Request own;
    memset(&own, 0, sizeof own);
    own.sums = (unsigned *)place;
    own.lines = lines;
    own.what = product;
    const int line = product.line, warp = this_warp();
    check_group(line);
    const Shown *const shown = shown_by_lanes(0xffffffff, &own, sizeof own, line);
    if (!first_of_warp())
        return;
    unsigned *registers[LANES];
    const unsigned *registers_of_a[LANES];
    for (int lane = 0; lane < LANES; ++lane) {
        Request theirs;
        memcpy(&theirs, shown[lane], sizeof theirs);
        if (!same(theirs.what, product))
            fault("lanes of a warp differ in descriptors, or in scale, of the product in line %d", line);
        registers[lane] = theirs.sums;
        registers_of_a[lane] = theirs.lines;
    }
    UnitOfWarp &unit = now->units[warp];
    std::vector<Product> &all = now->issued[warp / WARPS_OF_GROUP];
    if (unit.issued == all.size())
        all.push_back(product);
    else if (!same(all[unit.issued], product))
        fault("warps of a group differ in descriptors, or in scale, of the products in lines %d and %d", all[unit.issued].line, line);
    ++unit.issued;
    if (element_bytes_of(product.numbers) != 2 && (product.turn_a || product.turn_b))
        fault("the product in line %d must have operands along k: the unit turns elements of two bytes alone", line);
    if (!unit.was_fenced)
        fault("the product in line %d lacks GROUP_FENCE() before it", line);
    if (product.by_registers && product.numbers != Numbers::TF32)
        fault("the product in line %d has A in registers, which is simulated for elements of four bytes", line);
    check_operands(product, warp);
    const std::shared_ptr<Lines> own_lines = product.by_registers ? lines_in(unit, registers_of_a, line) : nullptr;

    const std::shared_ptr<Sums> sums = sums_in(unit, registers, product.columns, line);
    if (!are_registers(*sums, sums->under_way ? poison_of_sums() : sums->values))
        fault(sums->under_way ? "sums of the product in line %d were touched before they were awaited"
                              : "sums of the product in line %d were written after the last GROUP_FENCE()", line);
    if (!sums->under_way && !product.keeps && !unit.is_fenced)
        fault("the product in line %d begins new sums, and lacks GROUP_FENCE() behind the use of the old ones", line);
    set_registers(*sums, poison_of_sums());
    ++sums->under_way;
    if (own_lines)
        ++own_lines->under_way;
    unit.products.push_back({product, sums, own_lines, false, {}, {}});
    count_readers(product, warp, 1);
    if (drawn(2))
        read_operands(unit.products.back(), warp);
}

void group_commit(int line)
{
    if (together(line))
        now->units[this_warp()].batch_ends.push_back(now->units[this_warp()].products.size());
}

void group_wait(int batches_left, int line)
{
    if (!together(line))
        return;
    UnitOfWarp &unit = now->units[this_warp()];
    const int batches = (int)unit.batch_ends.size() - batches_left;
    if (batches <= 0)
        return;
    const size_t end = unit.batch_ends[batches - 1];
    for (size_t p = 0; p < end; ++p) {
        UnderWay &own = unit.products[p];
        if (!are_registers(*own.sums, poison_of_sums()))
            fault("sums of the product in line %d were touched before they were awaited", own.what.line);
        if (own.lines && !are_as_seen(*own.lines))
            fault("A of the product in line %d was written before it was awaited", own.what.line);
        if (own.lines)
            --own.lines->under_way;
        if (!own.is_read)
            read_operands(own, this_warp());
        count_readers(own.what, this_warp(), -1);
        add_products(own);
        if (--own.sums->under_way == 0)
            set_registers(*own.sums, own.sums->values);
        unit.is_fenced = false;
    }
    unit.products.erase(unit.products.begin(), unit.products.begin() + end);
    unit.batch_ends.erase(unit.batch_ends.begin(), unit.batch_ends.begin() + batches);
    for (size_t &each : unit.batch_ends)
        each -= end;
}

// Registers, of which the warps of a launch have as many as they can, evenly, until they give some away or take them.


struct FreeRegisters : Awaited {
    long long wanted;
    FreeRegisters(long long wanted) : wanted(wanted) {}
    bool holds() const override { return now->free_registers >= wanted; }
    void tell(char *text, size_t size) const override
    {
        snprintf(text, size, "%lld registers more, of which %lld are free", wanted, now->free_registers);
    }
};

static void check_registers(unsigned count, bool fewer, int line)
{
    const unsigned before = now->units[this_warp()].registers;
    if (count % 8 || count < 24 || count > 256)
        fault("registers in line %d must be a multiple of 8 from 24 to 256; got %u", line, count);
    if (fewer ? count > before : count < before)
        fault("line %d sets %u registers, which is not %s than the %u before", line, count, fewer ? "fewer" : "more", before);
}

static void set_count_of_registers(unsigned count)
{
    UnitOfWarp &unit = now->units[this_warp()];
    now->free_registers -= ((long long)count - unit.registers) * LANES;
    unit.registers = count;
    ++unit.register_changes;
}

void fewer_registers(unsigned count, int line)
{
    if (!together(line))
        return;
    check_registers(count, true, line);
    set_count_of_registers(count);
}

void more_registers(unsigned count, int line)
{
    const bool first = together(line);
    if (first) {
        check_registers(count, false, line);
        wait_for(FreeRegisters(((long long)count - now->units[this_warp()].registers) * LANES), line);
        set_count_of_registers(count);
    }
    warp_barrier(0xffffffff, line);
}

// Barriers by number, for some of the warps.

struct AllArrived : Awaited {
    unsigned number, turn;
    AllArrived(unsigned number, unsigned turn) : number(number), turn(turn) {}
    bool holds() const override { return now->named[number].turn != turn; }
    void tell(char *text, size_t size) const override
    {
        snprintf(text, size, "barrier %u, where %u of %u are", number, now->named[number].arrived, now->named[number].threads);
    }
};

void named_barrier(unsigned number, unsigned threads, int line)
{
    if (number > 15 || threads % LANES || threads < 1 || (int)threads > items_of_group)
        fault("line %d must name one of 16 barriers, for warps of the group; got barrier %u for %u threads", line, number, threads);
    NamedBarrier &own = now->named[number];
    if (own.arrived && own.threads != threads)
        fault("barrier %u is for %u threads elsewhere, and for %u in line %d", number, own.threads, threads, line);
    own.threads = threads;
    const AllArrived all(number, own.turn);
    if (++own.arrived == threads) {
        own.arrived = 0;
        ++own.turn;
    }
    wait_for(all, line);
}

// For the runner.

void start_units(const Launch &launch, int rank, unsigned char *dynamic)
{
    launched_now = &launch;
    ranks = (int)launch.cluster;
    choose_units(rank);
    now->dynamic = dynamic;
    now->ended = false;
    items_of_group = (int)(launch.items.x * launch.items.y * launch.items.z);
    declared_end = FIRST + (unsigned)(launch.shared_end - launch.shared);
    dynamic_first = (declared_end + 1023) / 1024 * 1024;
    dynamic_end = dynamic_first + (unsigned)launch.dynamic_bytes;
    memset(now->seen, 0xff, dynamic_end < WINDOW ? dynamic_end : WINDOW);
    memset(now->readers, 0, sizeof now->readers);
    memset(now->coming, 0, sizeof now->coming);
    now->barriers.clear();
    now->copies.clear();
    now->stores.clear();
    const unsigned registers = REGISTERS / items_of_group / 8 * 8;
    for (UnitOfWarp &unit : now->units) {
        unit = UnitOfWarp();
        unit.registers = registers < 256 ? registers : 256;
    }
    for (auto &group : now->issued)
        group.clear();
    memset(now->warps_turn, 0, sizeof now->warps_turn);
    memset(now->lanes_turn, 0, sizeof now->lanes_turn);
    memset(now->named, 0, sizeof now->named);
    now->free_registers = 0;
    now->begins_early = false;
    memset(now->has_awaited, 0, sizeof now->has_awaited);
}

void end_units_of_item()
{
    if (!now->units[this_warp()].products.empty())
        fault("a work-item ends before the product in line %d was awaited", now->units[this_warp()].products[0].what.line);
}

void end_units()
{
    now->ended = true;
    if (!now->stores.empty())
        complain("a group ends while others store in its memory");
    if (!now->copies.empty())
        complain("a group ends while %zu copies are on their way", now->copies.size());
    for (int w = 0; w * LANES < items_of_group; ++w) {
        const int first = w / WARPS_OF_GROUP * WARPS_OF_GROUP;
        if (now->units[w].issued != now->units[first].issued)
            complain("warps of a group differ in their number of products: %zu and %zu", now->units[first].issued, now->units[w].issued);
        if (now->units[w].register_changes != now->units[first].register_changes)
            complain("warps of a group differ in how often they set their number of registers");
    }
}

bool units_go_on()
{
    for (int rank = 0; rank < ranks; ++rank)
        if (!units_of[rank].stores.empty()) {
            choose_units(rank);
            for (const Store &each : now->stores)
                come(each);
            now->stores.clear();
            return true;
        }
    size_t coming = 0;
    for (int rank = 0; rank < ranks; ++rank)
        coming += units_of[rank].copies.size();
    if (!coming)
        return false;
    size_t next = launched_now->order == 1 ? coming - 1 : drawn((unsigned)coming);
    int rank = 0;
    for (; next >= units_of[rank].copies.size(); ++rank)
        next -= units_of[rank].copies.size();
    choose_units(rank);
    const CopyOfTile own = now->copies[next];
    now->copies.erase(now->copies.begin() + next);
    bring(own);
    return true;
}

}
