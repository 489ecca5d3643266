// tiles: which part of D a work-group computes, and what is left of it at the edges.
//
// A D of 100 × 200 has 4 rows of 4 tiles of 32 × 64. With two such matrices, group 22 computes tile 22 - 16 = 6 of the second one:
// 6 / 4 = 1 and 6 % 4 = 2, so this_tile(32, 64, 100, 200) is {.row = 32, .column = 128, .batch = 1}. The last tile of a row begins at
// column 192, and 8 of its columns are inside: INSIDE(j < n) tells which. A D of 96 × 192 has only whole tiles. If k has
// only whole steps, too, EDGES is 0 and INSIDE(j < n) is 1.

// What lies beyond an edge is read as zero, which adds nothing to a sum, and not written. Where every tile is whole (EDGES
// is 0), there is nothing to check.
#if defined(EDGES) && !EDGES
#define INSIDE(condition) 1
#else
#define INSIDE(condition) (condition)
#endif

// The larger of two extents.
#define MOST(x, y) ((x) > (y) ? (x) : (y))

// A kernel of groups of so many work-items, as many of which a compute unit shall hold at a time. OpenCL has no word for that: the
// backend says it where NVIDIA's driver makes machine code of PTX.
#define RESIDENT(items, groups) __attribute__((reqd_work_group_size(items, 1, 1)))

// The tile of D that this work-group computes: grids have one dimension, columns of tiles first, then rows, then matrices.
typedef struct { int row, column, batch; } tile_t;

inline tile_t this_tile(int rows, int columns, int m, int n)
{
    const size_t across = ((size_t)n + columns - 1) / columns;
    const size_t down = ((size_t)m + rows - 1) / rows;
    const size_t group = get_group_id(0);
    tile_t tile;
    tile.column = (int)(group % across) * columns;
    tile.row = (int)(group / across % down) * rows;
    tile.batch = (int)(group / across / down);
    return tile;
}
