"""`register_tiled`: tiles in local memory, and a WPTM × WPTN block of sums in each work-item's registers."""

from __future__ import annotations

from gemmport.contracts.kernel import Constraint, Parameter
from gemmport.contracts.register_tiles import FEW_SUMS, WHOLE_BLOCKS, RegisterTiles, padding, tile_parameters


class RegisterTiled(RegisterTiles):
    """A group computes TSM × TSN of D, a work-item WPTM × WPTN of them, stepping along k by TSK.

    With WPTM + WPTN loads from local memory a work-item does WPTM · WPTN multiply-adds. ARRANGE says which rows and columns are
    its own: strided ones (neighbours stay neighbours), contiguous ones, or quads of four contiguous ones.
    """

    name = "register_tiled"
    summary = "local tiles, and a two-dimensional block of sums in registers"
    parameters = (
        *tile_parameters(),
        Parameter(
            "ARRANGE", "strided", "which rows and columns a work-item takes", choices=("strided", "contiguous", "quads")
        ),
        padding(),
    )
    constraints = (
        *WHOLE_BLOCKS,
        Constraint(
            "WPTM % 4 = 0 and WPTN % 4 = 0 with ARRANGE = quads",
            lambda ARRANGE, WPTM, WPTN: ARRANGE != "quads" or (WPTM % 4 == 0 and WPTN % 4 == 0),
        ),
        FEW_SUMS,
    )


VARIANT = RegisterTiled()
