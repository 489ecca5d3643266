"""The machine code of x86-64 CPUs in Intel's syntax, as objdump and llvm-objdump write it.

The names are those of Intel's Software Developer's Manual, volume 2. They follow rules, so most are told by patterns.
"""

from __future__ import annotations

import re
from collections.abc import Set

from gemmport.inspection.instructions import Access, Instruction, Kind

# The first pattern that fits the whole name decides. A v in front means the same on wider registers.
_PATTERNS: tuple[tuple[Kind, str], ...] = (
    (Kind.MATRIX, r"tdp\w+"),
    (Kind.FMA, r"vfn?m(add|sub)(sub|add)?(132|213|231)?[ps][sdh] | vf?c?maddc[ps]h | vdpbf16ps"),
    (Kind.INTEGER_FMA, r"vpdp\w+ | v?pmaddwd | v?pmaddubsw | vpmadd52[lh]uq"),
    (
        Kind.CONVERSION,
        r"v?cvt\w+ | c[wdq][dqo]e? | cbw | movsxd? | movzx | v?pmov[sz]x\w+ | vpmov(u?s)?[qdw][dwb] | v?pack[su]s\w+",
    ),
    (Kind.BRANCH, r"j\w+ | call | ret | loop\w* | hlt | ud2 | int3 | syscall"),
    (Kind.BARRIER, r"[mls]fence | pause | u?mwait | u?monitor"),
    (
        Kind.MEMORY,
        r"""v?p?gather\w+ | v?p?scatter\w+ | prefetch\w+ | v?maskmov\w+ | clflush\w* | (movs|stos)[bwq] | tileload\w+
        | tilestored""",
    ),
    (Kind.INTEGER, r"cmov\w+ | set\w+ | lea | cmpxchg\w* | xadd"),
    (
        Kind.MOVE,
        r"""v?mov\w* | v?lddqu | push\w* | pop[fq]? | xchg | leave | v?p?broadcast\w+ | vperm\w* | v?p?shuf\w+ | v?p?unpck\w+
        | v?p?inse?rt?\w+ | v?p?extr\w+ | v?p?align\w+ | v?p?blend\w+ | vzero\w+ | kmov\w | kunpck\w+ | v?p?(compress|expand)\w+
        | vpmov[mbwdq]2[mbwdq] | tilezero | bswap""",
    ),
    (
        Kind.FLOAT,
        r"""v?(add|sub|addsub|mul|div|min|max|sqrt|hadd|hsub|dp|round|rndscale|u?comi|getexp|getmant|scalef|range|reduce|fixupimm
        |fpclass|(rsqrt|rcp|exp2)(14|28)?|cmp\w*)[ps][sdh] | f[a-z]+\d?""",
    ),
    (
        Kind.INTEGER,
        r"""v?(and|andn|or|xor)p[sd] | add | sub | adc | sbb | i?mul | i?div | and | andn | or | xor | cmp | mulx | ad[co]x
        | inc | dec | neg | not | sh[lr]d?x? | sa[lr]x? | ro[lr]x? | rc[lr] | test | bt[crs]? | bextr | bzhi | bls\w+ | bs[fr]
        | popcnt | [lt]zcnt | pdep | pext | v?ph?(add|sub|mul|and|andn|or|xor|sll|srl|sra|ro[lr]|cmp|min|max|test|tern|abs|sign
        |sad|avg|popcnt|lzcnt|conflict|multishift|shld|shrd)\w* | v?p?movmsk\w+ | vdbpsadbw
        | k(and|andn|x?n?or|not|ortest|test|shift[lr]|add)\w* | cl[cd] | st[cd] | cpuid | rdtscp? | lahf | sahf | cmc""",
    ),
)
_COMPILED = tuple((kind, re.compile(pattern, re.VERBOSE)) for kind, pattern in _PATTERNS)

_NOTHING = re.compile(r"nop\w*|endbr(32|64)|data16.*|cs|fnop")

_PREFIX = re.compile(r"(?:(?:bnd|notrack|lock|rep[nz]{0,2}e?|data16|cs|ds|es|fs|gs|ss) )+")

_SIZES = {"byte": 8, "word": 16, "dword": 32, "qword": 64, "tbyte": 80, "xmmword": 128, "ymmword": 256, "zmmword": 512}

_MEMORY = re.compile(
    r"\b(byte|word|dword|qword|tbyte|[xyz]mmword) (?:ptr|bcst) (?:[c-gs]s:)?(\[[^]]*\]|0x[0-9a-f]+)", re.IGNORECASE
)

_LINE = re.compile(r"\s*([0-9a-f]+):\s+(\S.*)")

# What only reads a memory operand in the first place; whatever else has one there writes it.
_READS_FIRST = re.compile(r"cmp|test|bt|push\w*|call|jmp|i?mul|i?div|prefetch\w+|v?u?comis\w+")

# What writes its first operand without reading it before.
_WRITES_ONLY = re.compile(
    r"v?mov\w*|v?p?extr\w+|set\w+|pop\w*|v?cvt\w+|vpmov\w+|kmov\w|v?p?scatter\w+|v?p?compress\w+|v?maskmov\w+|stos\w?"
)


def parse(text: str) -> list[Instruction]:
    """The instructions of a function; what does nothing is left out, but its address remains a place to jump to."""
    lines = [found.groups() for line in text.splitlines() if (found := _LINE.match(line))]
    frame = {"rsp"} | {found.group(1) for _, line in lines if (found := re.fullmatch(r"mov\s+(rbp|rbx),\s*rsp", line))}
    instructions = []
    labels: list[str] = []
    for address, line in lines:
        labels.append(address)
        whole = re.sub(r"\s+", " ", line.partition("#")[0]).strip()
        prefix = _PREFIX.match(whole)
        name, _, operands = whole[prefix.end() if prefix else 0 :].partition(" ")
        if not name or _NOTHING.fullmatch(name):
            continue
        instructions.append(_instruction(whole, name, operands, tuple(labels), frame, "lock " in whole))
        labels = []
    return instructions


def _instruction(
    text: str, name: str, operands: str, labels: tuple[str, ...], frame: Set[str], locked: bool
) -> Instruction:
    accesses = _accesses(name, operands, frame, locked)
    kind = next((kind for kind, pattern in _COMPILED if pattern.fullmatch(name)), Kind.UNKNOWN)
    registers = [operand.strip() for operand in operands.split(",")]
    if kind is Kind.MOVE and accesses:
        kind = Kind.MEMORY
    elif re.fullmatch(r"v?p?xor\w*", name) and len(set(registers[-2:])) == 1 and len(registers) > 1:
        kind = Kind.MOVE  # how a register is set to nought
    target = re.match(r"(?:0x)?([0-9a-f]+)\b", operands) if name.startswith("j") else None
    return Instruction(
        text,
        kind,
        accesses,
        labels,
        target=target.group(1) if target else None,
        ends=name in ("jmp", "ret", "hlt", "ud2"),
    )


def _accesses(name: str, operands: str, frame: Set[str], locked: bool) -> tuple[Access, ...]:
    if name in ("push", "pop") and "[" not in operands:
        return (Access("store" if name == "push" else "load", "private", 64),)
    found = _MEMORY.search(operands)
    if found is None or name == "lea" or name.startswith("prefetch"):
        return ()
    bits = _SIZES[found.group(1).lower()]
    place = found.group(2).lower()
    base = re.match(r"\[(\w+)", place)
    space = "memory"
    if base and base.group(1) == "rip":
        space = "constant"
    elif base and base.group(1) in frame:
        space = "private"
    if locked:
        return (Access("atomic", space, bits),)
    first = not operands[: found.start()].strip()
    if not first or _READS_FIRST.fullmatch(name):
        return (Access("load", space, bits),)
    store = Access("store", space, bits)
    return (store,) if _WRITES_ONLY.fullmatch(name) else (Access("load", space, bits), store)
