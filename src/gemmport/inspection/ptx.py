"""PTX, NVIDIA's portable assembly: what NVRTC and NVIDIA's OpenCL make of a source before it becomes machine code.

The names are those of the PTX ISA manual, chapter "Instruction Set".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gemmport.inspection.instructions import Access, Instruction, Kind

_BY_NAME: dict[Kind, str] = {
    Kind.MATRIX: "mma wmma wgmma tcgen05",
    Kind.FMA: "fma",
    Kind.INTEGER_FMA: "mad mad24 madc dp2a dp4a",
    # Of floating point where their type is.
    Kind.INTEGER: """
        abs add addc and bfe bfi bfind bmsk brev clz cnot copysign cos div ex2 fns isspacep lg2 lop3 max min mul mul24 neg
        not or popc prmt rcp rem rsqrt sad selp set setp shf shl shr sin slct sqrt sub subc szext tanh testp xor
    """,
    Kind.CONVERSION: "cvt",
    Kind.MOVE: "mov cvta mapa getctarank",
    Kind.EXCHANGE: "activemask elect match redux shfl vote",
    Kind.MEMORY: "applypriority atom cp discard ld ldmatrix ldu prefetch prefetchu red st stmatrix",
    Kind.BARRIER: "bar barrier fence griddepcontrol mbarrier membar nanosleep",
    Kind.BRANCH: "bra brkpt brx call exit pmevent ret trap",
}
_KINDS = {name: kind for kind, names in _BY_NAME.items() for name in names.split()}

# Instructions whose first word says too little.
_BY_START: dict[str, Kind] = {
    "cp.async.commit_group": Kind.BARRIER,
    "cp.async.wait_group": Kind.BARRIER,
    "cp.async.wait_all": Kind.BARRIER,
    "cp.async.mbarrier": Kind.BARRIER,
    "cp.async.bulk.commit_group": Kind.BARRIER,
    "cp.async.bulk.wait_group": Kind.BARRIER,
    "wgmma.fence": Kind.BARRIER,
    "wgmma.commit_group": Kind.BARRIER,
    "wgmma.wait_group": Kind.BARRIER,
    "wmma.load": Kind.MEMORY,
    "wmma.store": Kind.MEMORY,
}

_FLOATS = {"f16", "f16x2", "bf16", "bf16x2", "tf32", "f32", "f32x2", "f64"}

_SPACES = {
    "global": "global", "shared": "local", "shared::cta": "local", "shared::cluster": "local", "local": "private",
    "param": "constant", "const": "constant",
}  # fmt: skip

_VERBS = {
    "ld": "load",
    "ldu": "load",
    "ldmatrix": "load",
    "st": "store",
    "stmatrix": "store",
    "atom": "atomic",
    "red": "atomic",
}


def parse(text: str, function: str) -> list[Instruction]:
    """The instructions of an entry of a PTX file; none where it has no such entry."""
    instructions = []
    labels: list[str] = []
    for statement in _statements(text, function):
        if statement.endswith(":"):
            labels.append(statement[:-1])
        else:
            instructions.append(_instruction(statement, tuple(labels)))
            labels = []
    return instructions


def _statements(text: str, function: str) -> Iterator[str]:
    """Labels, with their colon, and instructions of an entry's body, without what only declares."""
    entry = re.search(rf"\.entry\s+{re.escape(function)}\b", text)
    if entry is None:
        return
    depth = 0
    body = re.sub(r"//[^\n]*|/\*.*?\*/", "", text[text.index("{", entry.end()) :], flags=re.DOTALL)
    for part in re.findall(r"(?:[^;{}:\n]|::|\{[^;{}]*\})+[;:]?|[{}]", body):
        statement = " ".join(part.split())
        depth += {"{": 1, "}": -1}.get(statement, 0)
        if statement == "}" and depth == 0:
            return
        if re.fullmatch(r"[\w$]+:", statement):
            yield statement
        elif statement.endswith(";") and not statement.startswith("."):
            yield statement[:-1].strip()


def _instruction(statement: str, labels: tuple[str, ...]) -> Instruction:
    guarded = re.fullmatch(r"@!?[%\w]+\s+(.*)", statement)
    name, _, operands = (guarded.group(1) if guarded else statement).partition(" ")
    words = name.split(".")
    jump = re.fullmatch(r"\s*([\w$]+)\s*", operands) if words[0] == "bra" else None
    return Instruction(
        statement,
        _kind(name, words),
        _accesses(words, operands),
        labels,
        target=jump.group(1) if jump else None,
        ends=guarded is None and words[0] in ("bra", "brx", "ret", "exit", "trap"),
    )


def _kind(name: str, words: list[str]) -> Kind:
    for start, kind in _BY_START.items():
        if name.startswith(start):
            return kind
    kind = _KINDS.get(words[0], Kind.UNKNOWN)
    if _FLOATS.intersection(words[1:]):
        return {Kind.INTEGER: Kind.FLOAT, Kind.INTEGER_FMA: Kind.FMA}.get(kind, kind)
    return kind


def _accesses(words: list[str], operands: str) -> tuple[Access, ...]:
    if words[:2] == ["cp", "async"] and "[" in operands and "mbarrier" not in words:
        sizes = re.findall(r"(?<=,)\s*(\d+)\b", operands)
        return (Access("copy", "global", 0 if "bulk" in words or not sizes else 8 * int(sizes[0])),)
    if words[0] not in _VERBS:
        return ()
    space = next((_SPACES[word] for word in words if word in _SPACES), "generic")
    return (Access(_VERBS[words[0]], space, _bits(words)),)


def _bits(words: list[str]) -> int:
    if words[0] in ("ldmatrix", "stmatrix"):  # each matrix gives a work-item two halves
        return 32 * next((int(word[1:]) for word in words if re.fullmatch(r"x[124]", word)), 1)
    width = next((int(found.group(1)) for word in words[1:] if (found := re.fullmatch(r"[busf](\d+)", word))), 0)
    return width * next((int(word[1:]) for word in words if re.fullmatch(r"v[248]", word)), 1)
