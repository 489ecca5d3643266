"""What CLBlast's own tuners found: their files, and the fastest parameters of each kernel among them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmport.core.errors import BaselineUnavailableError, UntrustedError
from gemmport.runtime import trust

VARIABLE = "GEMMPORT_CLBLAST_TUNING"
"""The environment variable that may name the folder of the tuners' files."""

_MOST_BYTES = 2**28
"""Of a tuner's file. It has all that was tried: a few megabytes at most."""

KERNELS = {
    **dict.fromkeys(("xgemm_1", "xgemm_2", "xgemm_11", "xgemm_12"), "Xgemm"),
    **dict.fromkeys(("xgemm_direct_1", "xgemm_direct_2"), "XgemmDirect"),
    "copy": "Copy",
    "pad": "Pad",
    "transpose": "Transpose",
    "padtranspose": "Padtranspose",
    "gemm_routine": "GemmRoutine",
}
"""What a product consists of: by the tuners' names, by which CLBlast's functions know it (src/database of its 1.5.3). The
tuners of Xgemm and XgemmDirect look through several sets of parameters, and write a file for each.
"""


@dataclass(frozen=True)
class Tuned:
    """A file of a tuner.

    Attributes:
        kernel: as CLBlast's functions name it.
        device: OpenCL's name of it.
        precision: CLBlast's number of the type: 16, 32, 64, 3232 or 6464.
        milliseconds: of the fastest that was tried and with which CLBlast computes right.
        parameters: of that one.
        product: what was computed, by the tuner's names: sizes and scalars.
    """

    file: Path
    kernel: str
    device: str
    precision: int
    milliseconds: float
    parameters: Mapping[str, int]
    product: Mapping[str, str]


def read(folder: Path) -> tuple[Tuned, ...]:
    """The files in a folder that belong to products.

    Raises:
        BaselineUnavailableError: the path is not a folder, the folder has no such file, or a file cannot be read or is not
            trusted (`gemmport.runtime.trust`); the message names it.
    """
    if not folder.is_dir():
        raise BaselineUnavailableError(
            f"{VARIABLE} = {folder}: there is no such folder; name that in which CLBlast's tuners were run, or unset {VARIABLE}"
        )
    try:
        trust.check_folder(folder)
        found = tuple(one for file in sorted(folder.glob("*.json")) if (one := _read(file)))
    except UntrustedError as error:
        raise BaselineUnavailableError(f"{VARIABLE}: {error}") from error
    if not found:
        raise BaselineUnavailableError(
            f"{VARIABLE} = {folder}: it has no results of CLBlast's tuners that can be used (those with which CLBlast computes "
            "wrongly are passed over: clblast-gemmk-1); clblast_tuner_xgemm and the others (Debian: clblast-utils) write them "
            "into the folder in which they run"
        )
    return found


def fastest(found: Sequence[Tuned], device: str, precision: int) -> dict[str, Tuned]:
    """By kernel, the fastest of what was found on a device in a type.

    Raises:
        BaselineUnavailableError: nothing was, or times of one kernel are of different products.
    """
    best: dict[str, Tuned] = {}
    for one in found:
        if (one.device, one.precision) != (device, precision):
            continue
        other = best.setdefault(one.kernel, one)
        if one.product != other.product:
            raise BaselineUnavailableError(
                f"{VARIABLE}: {other.file} and {one.file} are of different products, {dict(other.product)} and "
                f"{dict(one.product)}, so that their times say nothing about which is the better; keep one of them"
            )
        best[one.kernel] = min(other, one, key=lambda each: each.milliseconds)
    if not best:
        there = ", ".join(sorted({f"{one.device} ({one.precision})" for one in found}))
        raise BaselineUnavailableError(
            f"{VARIABLE}: no results are of {device} in CLBlast's precision {precision}, only of {there}; run the tuners with "
            f"-precision {precision} on that device, or unset {VARIABLE}"
        )
    return best


def computes_right(kernel: str, parameters: Mapping[str, int]) -> bool:
    """Whether CLBlast's products are right with parameters that its tuner found to be.

    The same is asked of versions in which that is mended: the library has no function that tells its version.
    """
    # clblast-gemmk-1
    return kernel != "Xgemm" or parameters["GEMMK"] != 1 or parameters["MWG"] == parameters["NWG"]


def _read(file: Path) -> Tuned | None:
    """A file; None where it is of a kernel that products do not need, or CLBlast is wrong with all that it has."""
    try:
        # The device's own words stand in it as they are, not as JSON would have them.
        content: dict[str, Any] = json.loads(trust.read_file(trust.real_path(file), _MOST_BYTES), strict=False)
        kernel = KERNELS.get(content["kernel_family"])
        if kernel is None:
            return None
        best = {name: int(value) for name, value in (pair.split("=") for pair in content["best_parameters"].split())}
        tried = [(float(result["time"]), result["parameters"]) for result in content["results"]]
        right = [each for each in tried if computes_right(kernel, each[1])]
        if tried and not right:
            return None
        # Times are rounded to microseconds: of equal ones, that is taken which the tuner found the best.
        milliseconds, parameters = min(right, key=lambda each: (each[0], each[1] != best))
        return Tuned(
            file,
            kernel,
            content["device"].strip(),
            int(content["precision"]),
            milliseconds,
            {name: value for name, value in parameters.items() if name != "PRECISION"},
            {name[len("arg_") :]: value for name, value in content.items() if name.startswith("arg_")},
        )
    except UntrustedError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise BaselineUnavailableError(
            f"{VARIABLE}: {file} is not what a tuner of CLBlast writes ({reason}); run the tuner again, or remove the file"
        ) from error
