"""What will be done, in full: which kernels, specialized how, launched in which order on which memory.

A plan is plain data. It names buffers, it does not hold them: the same plan runs on any operands of its problem's layout,
can be printed, saved as JSON and run again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gemmport.core.device import DeviceInfo
from gemmport.core.problem import OPERANDS, GemmProblem

ParameterValue = int | str

SCALES = ("row_scales", "column_scales")
"""Names of the buffers of scales: a number of float32 for each row of D, and each column."""


@dataclass(frozen=True)
class Choice:
    """The value of a parameter, and where it came from: "--set", "params=", "configs/pocl.yaml: wheel", …"""

    value: ParameterValue
    origin: str


@dataclass(frozen=True)
class KernelSource:
    """A function of one kernel source, specialized: everything that decides what is compiled.

    Attributes:
        stem: of the file in the backend's folder of kernels/, e.g. "register_tiled"; a variant may choose another stem for
            another architecture.
        function: the kernel's name in it.
        defines: macros in front of the source; the specialization key (data types, ops, edges, alignment, parameters).
        folder: where the language folders lie; empty for the family that gemmport ships.
    """

    stem: str
    function: str
    defines: tuple[tuple[str, ParameterValue], ...] = ()
    folder: str = ""


@dataclass(frozen=True)
class Buffer:
    """An argument: the operand "a", "b", "c" or "d", one of `SCALES`, or a scratch buffer, by name."""

    name: str


@dataclass(frozen=True)
class Integer:
    """An argument: a signed integer of 32 or 64 bits."""

    value: int
    bits: int = 64


@dataclass(frozen=True)
class Scalar:
    """An argument: a number of a named type of sums. Integers are taken modulo its size."""

    value: complex | float | int
    dtype: str


@dataclass(frozen=True)
class TensorMap:
    """An argument: what tells a copy engine of matrices whose tiles it copies (CUDA: a CUtensorMap, by value).

    In a tile the eight pieces of 16 bytes of each 128 bytes change places, by XOR with the number of these 128 bytes modulo 8;
    what lies outside of a matrix is zero.

    Attributes:
        name: of the buffer, as of `Buffer`. Its start must be aligned to 16 bytes.
        dtype: of the elements.
        sizes: elements of a row, rows of a matrix, and matrices.
        strides: bytes from one row to the next, and from one matrix to the next; multiples of 16.
        tile: elements and rows that are copied at once, of one matrix.
    """

    name: str
    dtype: str
    sizes: tuple[int, int, int]
    strides: tuple[int, int]
    tile: tuple[int, int]


Argument = Buffer | Integer | Scalar | TensorMap


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        groups: work-groups per dimension. The family uses the first alone, because CUDA limits the others to 65,535.
        work_group: work-items per group and dimension.
        local_bytes: statically declared local memory per group.
        dynamic_local_bytes: local memory per group given at launch; OpenCL receives it as one more, last argument.
    """

    kernel: KernelSource
    groups: tuple[int, int, int]
    work_group: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    local_bytes: int = 0
    dynamic_local_bytes: int = 0


@dataclass(frozen=True)
class Scratch:
    """Device memory that a plan needs between its launches."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class Plan:
    """How one problem is computed on one device.

    Attributes:
        parameters: every parameter of the variant with its value and origin.
        entry: file and entry of the configuration that chose the kernel or its parameters.
        launches: in order; each sees what those before it wrote. Empty where D has no elements.
        scratch: buffers shared by the launches, beside the operands.
        meanwhile: launches that write the same bits with the same scratch memory, and whose programs compile sooner: for first
            calls, until the others' are there. Empty where there are none.
    """

    problem: GemmProblem
    device: DeviceInfo
    variant: str
    parameters: tuple[tuple[str, Choice], ...]
    entry: str
    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...] = ()
    meanwhile: tuple[Launch, ...] = ()

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """What the caller brings, in order: A, B, C and D, and where rows or columns of D have scales these."""
        named = {x.name for launch in self.launches for x in launch.arguments if isinstance(x, Buffer | TensorMap)}
        return (*OPERANDS, *(name for name in SCALES if name in named))

    @property
    def values(self) -> dict[str, ParameterValue]:
        """Parameter values by name."""
        return {name: choice.value for name, choice in self.parameters}

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch memory in all."""
        return sum(scratch.nbytes for scratch in self.scratch)

    def __str__(self) -> str:
        lines = [f"{self.problem} on {self.device.label}", f"  kernel {self.variant}, from {self.entry}"]
        lines += [f"    {name} = {choice.value}  ({choice.origin})" for name, choice in self.parameters]
        lines += [f"  scratch {scratch.name}: {scratch.nbytes} bytes" for scratch in self.scratch]
        for number, launch in enumerate(self.launches, 1):
            lines.append(
                f"  launch {number}: {launch.kernel.stem}.{launch.kernel.function}, {_extent(launch.groups)} groups of "
                f"{_extent(launch.work_group)}, {launch.local_bytes + launch.dynamic_local_bytes} bytes of local memory"
            )
            lines.append("    " + " ".join(f"{name}={value}" for name, value in launch.kernel.defines))
        return "\n".join(lines)

    def to_json(self) -> str:
        """The plan as JSON text; `from_json` reads it back."""
        return json.dumps(
            {
                "schema": 1,
                "problem": self.problem.to_dict(),
                "device": self.device.to_dict(),
                "variant": self.variant,
                "parameters": {name: [choice.value, choice.origin] for name, choice in self.parameters},
                "entry": self.entry,
                "launches": [_launch_to_dict(launch) for launch in self.launches],
                "scratch": {scratch.name: scratch.nbytes for scratch in self.scratch},
                "meanwhile": [_launch_to_dict(launch) for launch in self.meanwhile],
            },
            indent=2,
        )

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that `to_json` wrote.

        Raises:
            ValueError: the text is not a plan of this schema.
        """
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("schema") != 1:
            raise ValueError("this is not a gemmport plan of schema 1")
        try:
            return cls(
                problem=GemmProblem.from_dict(data["problem"]),
                device=DeviceInfo.from_dict(data["device"]),
                variant=data["variant"],
                parameters=tuple((name, Choice(*choice)) for name, choice in data["parameters"].items()),
                entry=data["entry"],
                launches=tuple(_launch_from_dict(launch) for launch in data["launches"]),
                scratch=tuple(Scratch(name, nbytes) for name, nbytes in data["scratch"].items()),
                meanwhile=tuple(_launch_from_dict(launch) for launch in data.get("meanwhile", ())),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this gemmport plan of schema 1 is damaged: {error!r}") from error


def _extent(sizes: tuple[int, int, int]) -> str:
    trimmed = list(sizes)
    while len(trimmed) > 1 and trimmed[-1] == 1:
        trimmed.pop()
    return "×".join(map(str, trimmed))


def _launch_to_dict(launch: Launch) -> dict[str, Any]:
    return {
        "stem": launch.kernel.stem,
        "function": launch.kernel.function,
        "folder": launch.kernel.folder,
        "defines": dict(launch.kernel.defines),
        "groups": launch.groups,
        "work_group": launch.work_group,
        "arguments": [_argument_to_dict(argument) for argument in launch.arguments],
        "local_bytes": launch.local_bytes,
        "dynamic_local_bytes": launch.dynamic_local_bytes,
    }


def _launch_from_dict(data: Mapping[str, Any]) -> Launch:
    kernel = KernelSource(data["stem"], data["function"], tuple(data["defines"].items()), data["folder"])
    for extent in (data["groups"], data["work_group"]):
        if len(extent) != 3 or not all(isinstance(size, int) and size > 0 for size in extent):
            raise ValueError(f"a launch has three positive sizes per dimension, not {extent}")
    return Launch(
        kernel,
        groups=tuple(data["groups"]),
        work_group=tuple(data["work_group"]),
        arguments=tuple(_argument_from_dict(argument) for argument in data["arguments"]),
        local_bytes=data["local_bytes"],
        dynamic_local_bytes=data["dynamic_local_bytes"],
    )


def _argument_to_dict(argument: Argument) -> dict[str, Any]:
    match argument:
        case Buffer(name):
            return {"buffer": name}
        case Integer(value, bits):
            return {"integer": value, "bits": bits}
        case TensorMap(name, dtype, sizes, strides, tile):
            return {"map": name, "dtype": dtype, "sizes": sizes, "strides": strides, "tile": tile}
        case Scalar(value, dtype):
            return {"scalar": [value.real, value.imag] if isinstance(value, complex) else value, "dtype": dtype}


def _argument_from_dict(data: Mapping[str, Any]) -> Argument:
    if "buffer" in data:
        return Buffer(data["buffer"])
    if "integer" in data:
        return Integer(data["integer"], data["bits"])
    if "map" in data:
        return TensorMap(data["map"], data["dtype"], tuple(data["sizes"]), tuple(data["strides"]), tuple(data["tile"]))
    value = data["scalar"]
    return Scalar(complex(*value) if isinstance(value, list) else value, data["dtype"])
