"""`register_tiled_vectorized`: as `register_tiled`, in vectors: wide accesses of global and of local memory."""

from __future__ import annotations

from gemmport.contracts.register_tiles import (
    FEW_SUMS,
    WHOLE_BLOCKS,
    WHOLE_RUNS,
    WIDTH,
    RegisterTilesOfRuns,
    padding,
    tile_parameters,
)


class RegisterTiledVectorized(RegisterTilesOfRuns):
    """A group computes TSM × TSN of D, a work-item WPTM × WPTN of them, stepping along k by TSK; all of it moves in runs of
    WIDTH neighbours.

    Global memory is read and written a run at a time where rows are aligned to runs. Both tiles are stored by term, so that a
    run of rows of A or of columns of B is one access of local memory; an operand that runs along k is transposed on its way
    there, element by element. A work-item's runs are strided, so that work-items side by side read runs side by side.

    Runs are dealt out one after another and need not come out even, so that myGEMM's rules for that (TSK · WPTM · WPTN
    divisible by TSN · WIDTH and by TSM · WIDTH) are not needed. That TSM and TSN are divisible by WIDTH follows from the rules
    below; TSK must be, because an operand may run along k.
    """

    name = "register_tiled_vectorized"
    summary = "register tiles with wide accesses of global and local memory"
    parameters = (*tile_parameters(), WIDTH, padding())
    constraints = (*WHOLE_BLOCKS, *WHOLE_RUNS, FEW_SUMS)


VARIANT = RegisterTiledVectorized()
