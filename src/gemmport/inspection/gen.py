"""The machine code of Intel's GPUs as Intel's assembler, iga64, writes it.

The names are those of Intel's Programmer's Reference Manuals, volume "Instruction". An instruction is of a hardware thread, for
as many lanes as its parentheses say. Memory is reached by messages (`send`), which a comment of the assembler tells.
"""

from __future__ import annotations

import re

from gemmport.inspection.instructions import Access, Instruction, Kind

_BY_NAME: dict[Kind, str] = {
    Kind.MATRIX: "dpas dpasw",
    Kind.FMA: "mad madm mac line",
    Kind.INTEGER_FMA: "dp4a mach macl",
    Kind.FLOAT: "math frc lrp pln dp2 dp3 dp4 dph",
    Kind.INTEGER: """
        add add3 addc asr avg bfe bfi1 bfi2 bfn bfrev cbit cmp cmpn csel fbh fbl lzd max min mul not and or xor ror rol sad2
        sada2 sel shl shr smov subb
    """,
    Kind.CONVERSION: "rndd rnde rndu rndz",
    Kind.MOVE: "mov movi nop srnd",
    Kind.BARRIER: "sync wait",
    Kind.BRANCH: "brc brd break call calla cont else endif goto halt if illegal jmpi join ret while",
}
_KINDS = {name: kind for kind, names in _BY_NAME.items() for name in names.split()}

_FLOATS = ("f", "df", "hf", "bf")

_LINE = re.compile(r"\s*(\([^)]*\))?\s*([a-z]\w*)([.\w]*)\s+(.*)")

_ALWAYS = "(W)"
"""In front of what runs for all lanes, whether they are switched off or not: no condition."""

# Words of the comment behind a message; what it reads is one of them.
_BLOCKED = re.compile(r"(load|store)\.(slm|ugm|ugml|tgm)\.d(\d+)(?:u32)?(?:x(\d+))?(t)?")
_UNTYPED = re.compile(r"untyped surface (read|write) with (x?y?z?w?)")
_SCATTERED = re.compile(r"(byte|dword|qword) (?:scattered|gathering|surface) (read|write)")
_OWORDS = re.compile(r"oword (?:aligned |unaligned )?block (read|write) x(\d+)")

_LOCAL = "fe"
"""The last byte of a message's descriptor, its surface, where that is local memory."""

_VERBS = {"read": "load", "write": "store", "load": "load", "store": "store"}


def parse(text: str) -> list[Instruction]:
    """The instructions of a function."""
    instructions = []
    labels: list[str] = []
    for line in text.splitlines():
        code, _, comment = line.partition("//")
        if found := re.fullmatch(r"(\w+):", code.strip()):
            labels.append(found[1])
        elif (found := _LINE.match(code)) and found[2] not in ("illegal", "nop"):  # which fill up the end
            instructions.append(_instruction(found, code, comment, tuple(labels)))
            labels = []
    return instructions


def _instruction(found: re.Match[str], code: str, comment: str, labels: tuple[str, ...]) -> Instruction:
    guard, name, operands = found[1] or "", found[2], found[4]
    text = re.sub(r"\s+", " ", code).strip()
    jumps = name in ("jmpi", "goto", "while", "if", "else", "break", "brd", "brc", "cont", "halt", "join", "endif")
    target = re.search(r"\b(L\d+)\b", operands) if jumps else None
    ends = "EOT" in operands or name in ("ret", "illegal") or (name == "jmpi" and guard in ("", _ALWAYS))
    accesses = _accesses(comment, operands) if name.startswith("send") else ()
    return Instruction(
        text, _kind(name, operands, comment), accesses, labels, target=target[1] if target else None, ends=ends
    )


def _kind(name: str, operands: str, comment: str) -> Kind:
    if name.startswith("send"):
        quiet = re.search(r"fence|barrier|end of thread|signal", comment)
        return Kind.BARRIER if quiet else Kind.MEMORY
    types = re.findall(r"[>\w\])]:(bf|hf|df|f|uq|q|ud|d|uw|w|ub|b)\b", operands)
    real = bool(types) and types[0] in _FLOATS
    kind = _KINDS.get(name, Kind.UNKNOWN)
    if kind is Kind.FMA and not real:
        return Kind.INTEGER_FMA
    if kind is Kind.INTEGER and any(own in _FLOATS for own in types):
        return Kind.FLOAT
    if kind is Kind.FLOAT and not real:
        return Kind.INTEGER
    if kind is Kind.MOVE and len(set(types[:2])) > 1 and any(own in _FLOATS for own in types[:2]):
        return Kind.CONVERSION
    return kind


def _accesses(comment: str, operands: str) -> tuple[Access, ...]:
    """Of a work-item; a block is of the whole thread, whose arguments come in blocks."""
    descriptor = re.findall(r"0x[0-9A-Fa-f]+", operands)
    space = "local" if descriptor and descriptor[-1].lower().endswith(_LOCAL) else "global"
    if found := _BLOCKED.search(comment):
        if found[5]:
            return (Access(_VERBS[found[1]], "constant", int(found[3]) * int(found[4] or 1)),)
        space = "local" if found[2] == "slm" else "global"
        return (Access(_VERBS[found[1]], space, int(found[3]) * int(found[4] or 1)),)
    if found := _UNTYPED.search(comment):
        return (Access(_VERBS[found[1]], space, 32 * len(found[2])),)
    if found := _SCATTERED.search(comment):
        return (Access(_VERBS[found[2]], space, {"byte": 8, "dword": 32, "qword": 64}[found[1]]),)
    if found := _OWORDS.search(comment):
        return (Access(_VERBS[found[1]], "constant", 128 * int(found[2])),)
    return ()
