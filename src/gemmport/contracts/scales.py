"""Scales of the rows and columns of D, as kernels take them (prelude part `scales`): where they lie, and what names them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemmport.core.plan import SCALES, Argument, Buffer, Integer, Launch, ParameterValue


@dataclass(frozen=True)
class ScaleLayout:
    """Where scales lie, counted in elements of float32.

    Attributes:
        offset: of the first. step: to the next row's or column's, 0 where all have one. batch_stride: to the next matrix's.
    """

    offset: int
    step: int
    batch_stride: int = 0


ScaleLayouts = tuple[ScaleLayout | None, ScaleLayout | None]
"""Where the scales of D's rows lie, and those of its columns; None: there are none."""


def scale_arguments(layouts: ScaleLayouts) -> tuple[Argument, ...]:
    """SCALE_ARGUMENTS of the prelude."""
    arguments: list[Argument] = []
    for name, layout in zip(SCALES, layouts, strict=True):
        if layout is not None:
            arguments += [Buffer(name), *map(Integer, (layout.offset, layout.step, layout.batch_stride))]
    return tuple(arguments)


def scale_defines(layouts: ScaleLayouts) -> dict[str, ParameterValue]:
    """Macros that say which there are."""
    rows, columns = layouts
    return {**({} if rows is None else {"SCALES_ROWS": 1}), **({} if columns is None else {"SCALES_COLUMNS": 1})}


def with_scales(launch: Launch, layouts: ScaleLayouts) -> Launch:
    """The launch, with scales, of a kernel whose sources take SCALE_ARGUMENTS behind their own."""
    defines = {**dict(launch.kernel.defines), **scale_defines(layouts)}
    return replace(
        launch,
        kernel=replace(launch.kernel, defines=tuple(sorted(defines.items()))),
        arguments=(*launch.arguments, *scale_arguments(layouts)),
    )
