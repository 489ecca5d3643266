"""The kernel family: one module per variant or pass, holding its contract, beside its sources in cuda/ and opencl/."""

from __future__ import annotations

from collections.abc import Mapping

from gemmport.contracts.kernel import Contract, KernelVariant, Pass, Rung
from gemmport.core.errors import UnknownNameError
from gemmport.core.names import did_you_mean
from gemmport.kernels import (
    batched,
    convert,
    copy_strided,
    direct,
    fill_random,
    gemv,
    microbenchmarks,
    mma,
    naive,
    pack,
    packed,
    padded,
    prefetch,
    reduce,
    register_tiled,
    register_tiled_vectorized,
    relayout,
    rescale,
    shuffle,
    simt,
    sub_group_mma,
    tiled,
    times_vector,
    transpose,
    transposed_b,
    vectorized,
    wgmma,
    wpt,
)

# In the order of the ladder: each step adds one idea to the one before it.
_LADDER = (
    naive,
    tiled,
    wpt,
    vectorized,
    transposed_b,
    register_tiled,
    register_tiled_vectorized,
    shuffle,
    prefetch,
    padded,
    direct,
)

# Beside the ladder: the kernels that win, each on its kind of device.
_BEYOND = (simt, gemv, packed, batched, mma, wgmma, sub_group_mma)

_FAMILY: dict[str, KernelVariant] = {module.VARIANT.name: module.VARIANT for module in (*_LADDER, *_BEYOND)}

_PASSES: tuple[Pass, ...] = (
    copy_strided.PASS,
    convert.PASS,
    rescale.PASS,
    times_vector.PASS,
    fill_random.PASS,
    microbenchmarks.PASS,
    transpose.PASS,
    relayout.PASS,
    reduce.PASS,
    pack.PASS,
)

_LADDERS: dict[str, tuple[Rung, ...]] = {
    "transpose": transpose.LADDER,
    "reduce": reduce.LADDER,
}


def family() -> Mapping[str, KernelVariant]:
    """All variants by name; another object from `register` on, and not changed itself."""
    return _FAMILY


def variants() -> tuple[KernelVariant, ...]:
    """All variants, in the order of the ladder, then those beyond it; registered ones last."""
    return tuple(_FAMILY.values())


def ladder() -> tuple[KernelVariant, ...]:
    """The steps of the ladder, and the variants that were registered after them, without those that stand beside it."""
    beyond = {module.VARIANT.name for module in _BEYOND}
    return tuple(variant for variant in variants() if variant.name not in beyond)


def passes() -> tuple[Pass, ...]:
    """All passes that stand by themselves; each module holds its own as PASS."""
    return _PASSES


def ladders() -> Mapping[str, tuple[Rung, ...]]:
    """Passes as ladders: for each job, the steps that do it, each of which adds one idea to the one before."""
    return _LADDERS


def variant(name: str) -> KernelVariant:
    """The variant of that name.

    Raises:
        UnknownNameError: there is none.
    """
    try:
        return _FAMILY[name]
    except (KeyError, TypeError):  # TypeError: it cannot be a name
        hint = did_you_mean(name, _FAMILY)
        raise UnknownNameError(f"no kernel {name!r}: there are {', '.join(_FAMILY)}{hint}") from None


def contract(name: str) -> Contract:
    """The variant or the pass of that name.

    Raises:
        UnknownNameError: there is none; the message lists the variants.
    """
    return next((each for each in _PASSES if each.name == name), None) or variant(name)


def register(new: KernelVariant) -> None:
    """Adds a variant of your own, whose `folder` holds its sources, or replaces the one of the same name."""
    global _FAMILY  # noqa: PLW0603 - replaced as a whole: what was decided among others is known by that
    _FAMILY = {**_FAMILY, new.name: new}
