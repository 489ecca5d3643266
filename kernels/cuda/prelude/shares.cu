// shares: the tile of D that a block computes, in bands, and the tiles that blocks share along k (stream-K).
//
// A D of 100 × 200 in tiles of TSM × TSN = 32 × 64 has 4 rows of 4 tiles. With RASTER = 3, the first band has three of these
// rows: tile_of(1, 100, 200) is the one below the first, {.row = 32, .column = 0, .batch = 0}, tile_of(3, 100, 200) the second of
// the first row, and tile_of(12, 100, 200) the first of the last row, {.row = 96, .column = 0, .batch = 0}. Where 3 sharers share
// 2 tiles of 8 steps, they have 5, 5 and 6 steps: first_tile(1, 3, 2) is 0 and first_step(1, 3, 2, 8) is 5; tile 0 has the
// sharers first_sharer(0, 3, 2, 8) = 0 to last_sharer(0, 3, 2) = 1.
#include "tiles.cu"

// The tile of D that is the number-th: matrix by matrix, in bands of RASTER rows of tiles, column by column of a band, so that
// what is computed at one time reads few rows of A and columns of B. Where tiles OVERLAP, those at the edges begin earlier, so that
// they are whole, and the loop has no edges to look after.
__device__ inline tile_t tile_of(int number, int m, int n)
{
    const int across = (n + TSN - 1) / TSN;
    const int down = (m + TSM - 1) / TSM;
    const int height = min(down, RASTER); // of a band
    const int of_matrix = number % (across * down);
    const int band = of_matrix / (height * across);
    const int rows = min(down - band * height, height);
    const int of_band = of_matrix - band * height * across;
    tile_t tile;
    tile.row = (band * height + of_band % rows) * TSM;
    tile.column = of_band / rows * TSN;
#if OVERLAP
    tile.row = min(tile.row, m - TSM);
    tile.column = min(tile.column, n - TSN);
#endif
    tile.batch = number / (across * down);
    return tile;
}

// Tiles are computed in steps of TSK terms. Those behind the first `whole` tiles are shared: their steps stand in one row, which
// blocks, the sharers, cut into parts of one length. What a sharer has of a tile that it does not have whole it leaves in `parts`,
// in one of two places: that of a tile whose first step it has, and that of one whose first step it has not.
//
// A sharer begins at step sharer * shared * steps / sharers of the row. 32 bits do not hold that product, and a division of 64 bits
// is a function: where NVIDIA's linker has to call one, a kernel keeps everything where calls leave it, and moves it from there in
// its main loop. So the tile comes first, and then the step in it, by products below sharers * sharers: fewer tiles are shared than
// there are sharers, and these are at most 8 for each multiprocessor (SHARE), so that their square fits on up to 5,792 of them. A tile's
// first and last sharer are those that have its first and last step.
__device__ inline int first_tile(int sharer, int sharers, int shared) { return sharer * shared / sharers; }
__device__ inline int first_step(int sharer, int sharers, int shared, int steps)
{
    const int begun = sharer * shared % sharers; // so many of `sharers` parts of the tile are others'
    return begun * (steps / sharers) + begun * (steps % sharers) / sharers;
}
__device__ inline int first_sharer(int tile, int sharers, int shared, int steps)
{
    return (tile * sharers + (sharers - 1) / steps) / shared;
}
__device__ inline int last_sharer(int tile, int sharers, int shared) { return ((tile + 1) * sharers - 1) / shared; }
