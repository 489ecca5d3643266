"""What a launch runs, as a short text that differs where the launch does.

A figure belongs to the code that it was measured with. The digest of a launch holds what decides its speed on a device: the
kernel function and all that it reaches, after macro expansion, as tokens; the compiler's options; what is done to the compiled
code; geometry, and arguments that are numbers. It holds no comment, no name of a file, and no order of definitions, and
nothing of the source that the function does not reach.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from gemmport.backends import _compilation
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Argument, Buffer, Integer, KernelSource, Launch, Scalar, TensorMap
from gemmport.runtime.fingerprint import of_code, of_texts
from gemmport.runtime.sources import assemble

Token = str

CALL_PATH = (
    "api.matmul", "api.gemm", "api.copied", "api.precision", "api.scales", "api.arguments", "api.placement", "api.overlap",
    "api.views", "api.product", "api.host", "api.plans", "api.sharded", "api.collections", "api.streamed", "api.within",
    "outofcore.operands", "execution.repeated", "execution.prepared", "execution.executor", "execution.adapters",
    "execution._views", "execution.selection", "execution.copies", "core.layout", "runtime.sources", "core.plan",
    "core.problem", "core.precision", "core.dtypes", "core.device", "core.quirks", "runtime.cache", "kernels",
    "backends.array", "backends.base", "backends.segments", "backends.objects", "backends._ordering", "backends._workspace",
    "backends._ending", "backends._ownership", "backends._errors", "backends._compilation", "backends._fork",
    "backends._scripts", "backends._launching", "backends._transfers",
)  # fmt: skip
"""Modules of gemmport that run when a product is called again, beside those of its backend: with them changes what a call costs
beyond its launches. What is asked only once, such as a plan, is not among them.
"""

_PARTS_OF_CALLS = {
    "cuda": (
        "core.dlpack", "execution.jax_calls", "execution.xla", "backends._cudadriver", "backends._cudacontext",
        "backends._cudamodules", "backends._cudastreams",
    ),
    "opencl": ("backends._opencldriver", "backends._addresses"),
}  # fmt: skip
"""Likewise, of one backend alone."""


def launch_digest(launch: Launch, device: DeviceInfo) -> str:
    """The digest of a launch on a device, 16 hexadecimal digits. Needs neither the device nor its runtime.

    Raises:
        FileNotFoundError: the kernel has no source in the language of the device's backend.
    """
    geometry = (launch.groups, launch.work_group, launch.local_bytes, launch.dynamic_local_bytes)
    return of_texts(
        code_digest(launch.kernel, device),
        repr(geometry),
        " ".join(map(_told, launch.arguments)),
    )


def launches_digests(launches: Sequence[Launch], device: DeviceInfo) -> list[dict[str, str]]:
    """Each launch with its function's name and its digest, as results hold them."""
    return [{"function": launch.kernel.function, "digest": launch_digest(launch, device)} for launch in launches]


def call_path(backend: str) -> tuple[str, ...]:
    """The names of the modules of gemmport that run in calls of a backend, without "gemmport."."""
    return (
        *CALL_PATH,
        f"backends.{backend}",
        *_PARTS_OF_CALLS.get(backend, ()),
    )


def call_path_digest(backend: str) -> str:
    """The digest of a backend's `call_path`, 16 hexadecimal digits; the backend need not be installed."""
    return of_code(_file(f"gemmport.{name}") for name in call_path(backend))


def _file(module: str) -> Path:
    """Of a module's source, which may be in C."""
    package, _, name = module.rpartition(".")
    spec = find_spec(package)
    for folder in spec.submodule_search_locations or () if spec else ():
        for file in (f"{name}.py", f"{name}.c", f"{name}/__init__.py"):
            if Path(folder, file).is_file():
                return Path(folder, file)
    found = find_spec(module)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"there is no module {module}")
    return Path(found.origin)


def code_digest(kernel: KernelSource, device: DeviceInfo) -> str:
    """The digest of what is compiled for a launch, and of what is done to it before it is loaded.

    Raises:
        FileNotFoundError: as `launch_digest`.
    """
    source = assemble(kernel, device.language)
    architecture = device.architecture if device.language == "cuda" else ""
    macros = tuple(sorted(_compilation.predefined(device).items()))
    return of_texts(
        architecture,
        " ".join(_compilation.options(device)),
        " ".join(_compilation.rework(device, source)),
        *reached(kernel.function, _expanded(source, macros)),
    )


def _told(argument: Argument) -> str:
    match argument:
        case Buffer():
            return "buffer"
        case Integer(value, bits):
            return f"{value}:{bits}"
        case Scalar(value, dtype):
            return f"{value}:{dtype}"
        case TensorMap(_, dtype, sizes, strides, tile):
            return f"map:{dtype}:{sizes}:{strides}:{tile}"


@dataclass(frozen=True)
class Definition:
    """Something at the top of a source: a function, a type, a variable, or a directive.

    Attributes:
        names: that it introduces; of a directive none.
        words: identifiers in it.
        text: its tokens, a blank between any two.
    """

    names: frozenset[str]
    words: frozenset[str]
    text: str


def reached(function: str, definitions: Sequence[Definition]) -> list[str]:
    """The texts of all that a function reaches, itself included, sorted, and of all directives in order behind them.

    Of functions of one name, all are reached where one is: which of them is called, only the compiler knows.
    """
    by_name: dict[str, list[Definition]] = {}
    for definition in definitions:
        for name in definition.names:
            by_name.setdefault(name, []).append(definition)
    found: set[Definition] = set()
    waiting = [function]
    seen = {function}
    while waiting:
        for definition in by_name.get(waiting.pop(), ()):
            if definition not in found:
                found.add(definition)
                fresh = definition.words - seen
                seen |= fresh
                waiting.extend(fresh)
    return [*sorted(definition.text for definition in found), *(d.text for d in definitions if not d.names)]


# A kernel and what sums its parts up are functions of one source.
@lru_cache(maxsize=64)
def _expanded(source: str, macros: tuple[tuple[str, str], ...]) -> tuple[Definition, ...]:
    """The definitions of a source after macro expansion."""
    # Imported where it is asked for: it needs pcpp, and a product does without.
    from gemmport.bench.preprocessing import tokens  # noqa: PLC0415

    return tuple(_definitions(tokens(source, dict(macros))))


_WORD = re.compile(r"[A-Za-z_]\w*")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_BEHIND_A_NAME = frozenset("(;=[{:<")
_NO_NAMES = {
    "__attribute__", "__launch_bounds__", "__align__", "alignas", "decltype", "asm", "operator", "template", "typename",
    "struct", "union", "class", "enum",
}  # fmt: skip


def _definitions(tokens: Iterator[Token]) -> Iterator[Definition]:
    """Tokens, parted where a definition at the top of a source ends: behind `;`, or behind the body of a function."""
    current: list[Token] = []
    depth = 0
    for token in tokens:
        if token.startswith("#") and not depth and not current:
            yield Definition(frozenset(), frozenset(), token)
            continue
        if token == ";" and not depth and not current:  # behind a body that takes none
            continue
        current.append(token)
        if token in _OPENING:
            depth += 1
        elif token in _CLOSING:
            depth -= 1
        if not depth and (token == ";" or (token == "}" and not _goes_on(current))):
            yield _definition(current)
            current = []
    if current:
        yield _definition(current)


def _goes_on(tokens: Sequence[Token]) -> bool:
    """Whether what ends in a closing brace now goes on to `;`: a type or a variable, where a function has ended."""
    outside = [token for token, depth in _with_depth(tokens) if not depth]
    return "typedef" in outside or "=" in outside or "(" not in outside


def _with_depth(tokens: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    """Tokens and how many brackets are open around them; a bracket itself is outside of what it holds."""
    depth = 0
    for token in tokens:
        if token in _CLOSING:
            depth -= 1
        yield token, depth
        if token in _OPENING:
            depth += 1


def _definition(tokens: Sequence[Token]) -> Definition:
    """What a definition introduces, and what it reads. Rather a name too many than one too few: then more is reached."""
    outside = [token for token, depth in _with_depth(tokens) if not depth]
    names = {
        token
        for token, after in zip(outside, [*outside[1:], ";"], strict=True)
        if _WORD.fullmatch(token) and after in _BEHIND_A_NAME
    }
    words = filter(_WORD.fullmatch, tokens)
    return Definition(frozenset(names - _NO_NAMES), frozenset(words), " ".join(tokens))
