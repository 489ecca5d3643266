"""The first problems of a seed: each pair of kernel, type, op, size, batch, layout, scalars and data at least once.

Most faults of software show when two of its parameters have certain values (Kuhn, Wallace, Gallo, IEEE Trans. Softw. Eng.
30, 2004). Drawn one by one, thousands of problems meet all pairs, and each kernel with each type costs a compilation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from gemmport import kernels
from gemmport.core.dtypes import INPUTS, default_accumulator, default_output
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import Op
from gemmport.fuzz.case import Factor, draw_data, is_half
from gemmport.fuzz.covering import EACH_PAIR, covering
from gemmport.fuzz.plans import LAYOUTS, LayoutKind, Levels
from gemmport.fuzz.sizes import Batch, Extent
from gemmport.fuzz.specialization import (
    SOON_COMPILED,
    Specialization,
    Types,
    draw_ops,
    draw_parameters,
    draw_types,
    inputs,
)
from gemmport.planning.planner import AUTO

T = TypeVar("T")

_STREAM = 2
"""Tells the random numbers of these problems from those of a problem (0, 1) and of a pool."""

_CANDIDATES = 6
"""Rows of each kernel and type among which the first problems are chosen."""

_OTHER_TYPES = 12
"""Rows whose output or sums are of another type than the inputs: all of those with each kernel would be hundreds."""

_WORK_OF_MANY, _WORK_OF_LONG = 512, 4096
"""Multiplications of a group for a step along k, where there are many groups."""

_ONE = 0.2
"""How often one dimension is 1, which hides what there is to be seen of leading dimensions and sums."""

_CONJUGATIONS: tuple[tuple[Op, ...], ...] = (("N", "T"), ("C",), ("R",))
_LONG: tuple[Extent, ...] = ("long", "any", "any")
_EXTENTS: tuple[Extent, ...] = ("any", "before", "whole", "after")
_BATCHES: tuple[Batch, ...] = ("one", "few")
_SINGLE: tuple[LayoutKind, ...] = ("dense", "gaps", "gaps and offsets", "mixed")


@dataclass(frozen=True)
class Row:
    """What a first problem is like.

    Attributes:
        facets: by which it is chosen: what must come up in each pair. An op of complex numbers comes up with each kernel for
            each of their two types, which conjugate in code of their own.
    """

    kernel: str
    types: Types
    ops: tuple[Op, Op]
    levels: Levels
    facets: Mapping[str, Hashable]


def first_problem(
    seed: int, number: int, names: tuple[str, ...], dtypes: tuple[str, ...] = ()
) -> tuple[Specialization, Levels]:
    """What a first plan of a seed is, of the kernels of these names and inputs of these types. Parameters are drawn for what it
    is like.
    """
    row = first_rows(seed, names, dtypes)[number]
    return _specialization(np.random.default_rng([seed, number, _STREAM]), row), row.levels


@lru_cache(maxsize=8)
def first_rows(seed: int, names: tuple[str, ...], dtypes: tuple[str, ...] = ()) -> tuple[Row, ...]:
    """What the first plans are like, in order: each type, and each kernel, comes early."""
    rng = np.random.default_rng([seed, 0, _STREAM])
    candidates = _candidates(rng, names, dtypes)
    chosen = _spread([candidates[number] for number in covering([row.facets for row in candidates], EACH_PAIR)])
    # Signed and unsigned integers of a size were one type so far, of which each kernel has now met either.
    met = {(row.kernel, row.types) for row in chosen}
    for row in candidates:
        if "type" in row.facets and (row.kernel, row.types) not in met:
            met.add((row.kernel, row.types))
            chosen.append(row)
    return tuple(chosen)


def _candidates(rng: np.random.Generator, names: tuple[str, ...], dtypes: tuple[str, ...]) -> list[Row]:
    named = [name for name in names if name != AUTO] or list(names)
    products: list[tuple[str, Types, tuple[Op, Op]]] = []
    for kernel in named:
        for types in (_usual(dtype.name) for dtype in inputs(dtypes)):
            if INPUTS[types.dtype].kind != "complex":
                products += [(kernel, types, draw_ops(rng, types)) for _ in range(_CANDIDATES)]
                continue
            apart = int(rng.integers(len(_CONJUGATIONS)))
            for number, of_b in enumerate(_CONJUGATIONS):  # rows with three pairs of ops meet each op of either operand
                of_a = _CONJUGATIONS[(number + apart) % len(_CONJUGATIONS)]
                products += [(kernel, types, (_one(rng, of_a), _one(rng, of_b))) for _ in range(_CANDIDATES)]
    rows = [_draw_row(rng, number, *each) for number, each in enumerate(products)]
    rows += [_draw_idle(rng, kernel, dtypes) for kernel in named]
    for number in range(_OTHER_TYPES):
        types = draw_types(rng, dtypes, other=True)
        row = _draw_row(rng, number, _one(rng, named), types, draw_ops(rng, types))
        rows.append(replace(row, facets={"other types": str(types)}))
    if AUTO in names:
        usual = [name for name in ("float32", "int8") if not dtypes or name in dtypes] or dtypes[:1]
        for number, name in enumerate(usual):
            row = _draw_row(rng, number, AUTO, _usual(name), draw_ops(rng, _usual(name)))
            rows.append(replace(row, facets={"as configured": name}))
    return rows


def _usual(name: str) -> Types:
    """Inputs, output and sums as they are where only the inputs' type is said."""
    output = default_output(INPUTS[name])
    return Types(name, output.name, default_accumulator(INPUTS[name], output).name)


def _draw_row(rng: np.random.Generator, number: int, kernel: str, types: Types, ops: tuple[Op, Op]) -> Row:
    """Sums of a kernel. Where one size is large, the others are small; what only batches have, single products lack.

    Args:
        number: of the row: in turn, many matrices, a long dimension and whole tiles come up in a tenth of them each.
    """
    extents: list[Extent] = [_one(rng, _EXTENTS) for _ in range(3)]
    if rng.random() < _ONE:
        extents[int(rng.integers(3))] = "one"
    batch = _one(rng, _BATCHES)
    match number % 10:
        case 0:
            batch, extents = "many", [_one(rng, ("one", "any")) for _ in range(3)]
        case 1:
            batch, place = "one", number // 10 % 3
            extents = [*_LONG[3 - place :], *_LONG[: 3 - place]]
        case 2:
            extents = ["whole", "whole", "whole"]
    layout = _one(rng, LAYOUTS if batch == "few" else _SINGLE)
    alpha: Factor = _one(rng, ("1", "other", "other"))
    beta: Factor = _one(rng, ("0", "1", "other"))
    dtype = INPUTS[types.dtype]
    levels = Levels(
        (extents[0], extents[1], extents[2]), batch, layout, bool(rng.integers(2)), alpha, beta, draw_data(rng, dtype)
    )
    is_complex = dtype.kind == "complex"
    met = [(dtype.name, "N or T" if op in ("N", "T") else op) if is_complex else op for op in ops]
    facets: dict[str, Hashable] = {
        "kernel": kernel, "type": types.dtype.removeprefix("u"), "op of a": met[0], "op of b": met[1],
        "m": extents[0], "n": extents[1], "k": extents[2], "batch": batch, "layout": layout, "in place": levels.in_place,
        "scalars": (alpha, beta), "data": (is_half(dtype), levels.data),
    }  # fmt: skip
    if extents == ["whole"] * 3:
        facets["whole"] = True
    if not is_complex:
        facets["ops"] = ops
    return Row(kernel, types, ops, levels, facets)


def _draw_idle(rng: np.random.Generator, kernel: str, dtypes: tuple[str, ...]) -> Row:
    """A product without sums, which scales C. A and B are not read, so that their facets are left out."""
    types = draw_types(rng, dtypes, other=False)
    row = _draw_row(rng, 3, kernel, types, draw_ops(rng, types))
    m, n, _ = row.levels.extents
    levels = replace(row.levels, alpha="other", beta="other")
    levels = replace(levels, alpha="0") if rng.integers(2) else replace(levels, extents=(m, n, "none"))
    return replace(row, levels=levels, facets={"kernel": kernel, "idle": True})


def _specialization(rng: np.random.Generator, row: Row) -> Specialization:
    params: tuple[tuple[str, ParameterValue], ...] = ()
    if row.kernel != AUTO:
        levels = row.levels
        most = _WORK_OF_MANY if levels.batch == "many" else _WORK_OF_LONG if levels.dear else 0
        params = draw_parameters(rng, kernels.variant(row.kernel), limits=SOON_COMPILED, most_work=most)
    whole = row.levels.extents == ("whole", "whole", "whole")
    return Specialization(row.kernel, params, row.types, row.ops, whole)


def _spread(rows: Sequence[Row]) -> list[Row]:
    """First a row of each type and of each kernel, then a second of each, and so on; the most telling ones first."""
    met: Counter[str] = Counter()
    turns: list[tuple[int, Row]] = []
    for row in rows:
        of_type, of_kernel = str(row.types), row.kernel
        turns.append((min(met[of_type], met[of_kernel]), row))
        met.update((of_type, of_kernel))
    return [row for _, row in sorted(turns, key=lambda each: each[0])]


def _one(rng: np.random.Generator, values: Sequence[T]) -> T:
    return values[int(rng.integers(len(values)))]
