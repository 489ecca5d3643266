"""The machine code of AMD's GPUs as LLVM's assembler writes it.

The names are those of AMD's instruction set guides (GCN, CDNA, RDNA). They follow rules, so they are told by patterns. What
RDNA 3 issues as a pair (`v_dual_… :: v_dual_…`) is one instruction here, and so is arithmetic on packed numbers.
"""

from __future__ import annotations

import re

from gemmport.inspection.instructions import Access, Instruction, Kind

# The first pattern that fits the whole name decides.
_PATTERNS: tuple[tuple[Kind, str], ...] = (
    (Kind.MATRIX, r"v_s?w?mfmac?_\w+ | v_s?wmma\w*_\w+"),
    (Kind.BRANCH, r"s_c?branch\w* | s_endpgm\w* | s_setpc\w+ | s_swappc\w+ | s_call\w+ | s_trap | s_rfe\w+"),
    (
        Kind.BARRIER,
        r"""s_barrier\w* | s_sendmsg\w* | s_wait\w* | s_delay_alu | s_nop | s_sleep\w* | s_clause | s_(set_)?inst_prefetch\w*
        | s_setprio | s_sethalt | s_code_end | (buffer|global)_(gl\d_)?(inv|wb|wbinv)\w* | s_dcache\w* | s_icache\w*
        | s_ttracedata\w* | s_round_mode | s_denorm_mode""",
    ),
    (Kind.EXCHANGE, r"ds_(b?permute|swizzle)\w* | v_permlane\w+ | v_(read|write)lane\w* | \w+_(dpp8?|row_newbcast)"),
    (Kind.MEMORY, r"(global|flat|buffer|scratch|ds|s_buffer)_\w+ | s_(load|store|atomic|scratch)_\w+"),
    (Kind.INTEGER_FMA, r"v_mad_(co_)?[iu]\w+ | v_mad_[iu]64\w* | v_pk_mad_\w+ | v_dot[48]c?_\w+ | v_dot2_[iu]\w+"),
    (Kind.FMA, r"v_(pk_)?(fma|fmac|fmaak|fmamk|mac|mad|madak|madmk)_(mix\w*|legacy_\w+|f\w+) | v_dot2c?_\w+"),
    (Kind.CONVERSION, r"v_cvt_\w+ | v_(ceil|floor|trunc|rndne|fract)_f\w+ | s_cvt_\w+ | s_sext\w+ | v_pack_b32\w+"),
    (
        Kind.MOVE,
        r"""v_mov_\w+ | v_movre\w+ | v_pk_mov\w+ | v_accvgpr_\w+ | v_readfirstlane\w+ | v_swap\w* | s_c?mov\w* | s_getreg\w+
        | s_setreg\w+ | s_getpc\w+ | s_version | s_movrel\w+""",
    ),
    (Kind.FLOAT, r"(v|s)_\w+_f(16|32|64)(_\w+)? | v_(pk_)?\w+_bf16\w*"),
    (Kind.INTEGER, r"(v|s)_\w+_([iub](1|8|16|24|32|64|128)|co_\w+)(_\w+)?"),
)
_COMPILED = tuple((kind, re.compile(pattern, re.VERBOSE)) for kind, pattern in _PATTERNS)

_SPACES = {
    "global": "global",
    "flat": "generic",
    "buffer": "private",
    "scratch": "private",
    "ds": "local",
    "s": "constant",
}
"""By the first word of a name. OpenCL's kernels use buffers for what is private alone."""

_WORDS = {"": 1, "x2": 2, "x3": 3, "x4": 4, "x8": 8, "x16": 16}


def parse(text: str) -> list[Instruction]:
    """The instructions of a function, without comments and directives."""
    instructions = []
    labels: list[str] = []
    for line in text.splitlines():
        code = re.sub(r"\s+", " ", line.partition(";")[0]).strip()
        if found := re.fullmatch(r"([.$\w]+):", code):
            labels.append(found[1])
        elif code and not code.startswith("."):
            instructions.append(_instruction(code, tuple(labels)))
            labels = []
    return instructions


def _instruction(code: str, labels: tuple[str, ...]) -> Instruction:
    name, _, operands = code.partition(" ")
    target = operands if re.match(r"s_c?branch", name) else None
    return Instruction(
        code,
        _kind(code),
        _accesses(name),
        labels,
        target=target,
        ends=name in ("s_branch", "s_endpgm") or name.startswith("s_setpc"),
    )


def _kind(code: str) -> Kind:
    """Of a pair, that of the half which multiplies and adds."""
    names = [half.strip().partition(" ")[0].replace("v_dual_", "v_") for half in code.split("::")]
    kinds = [next((kind for kind, pattern in _COMPILED if pattern.fullmatch(name)), Kind.UNKNOWN) for name in names]
    return Kind.FMA if Kind.FMA in kinds else kinds[0]


def _accesses(name: str) -> tuple[Access, ...]:
    words = name.split("_")
    space = _SPACES.get(words[0])
    verbs = {
        "read": "load",
        "write": "store",
        "read2": "load",
        "write2": "store",
        "read2st64": "load",
        "write2st64": "store",
    }
    verb = next((verbs.get(word, word) for word in words[1:] if word in {*verbs, "load", "store", "atomic"}), None)
    if words[0] == "ds" and verb is None and re.match(r"ds_(add|sub|min|max|and|or|xor|cmpst|wrxchg|inc|dec)", name):
        verb = "atomic"
    if space is None or verb is None:
        return ()
    return (Access(verb, space, _bits(words)),)


def _bits(words: list[str]) -> int:
    """By the last word that tells a size; twice that where two addresses are read at once."""
    twice = 2 if any(word in ("read2", "write2", "read2st64", "write2st64", "2addr") for word in words) else 1
    for word in reversed(words):
        if found := re.fullmatch(r"dword(x\d+)?", word):
            return 32 * _WORDS[found[1] or ""]
        if word in ("ubyte", "sbyte", "byte"):
            return 8
        if word in ("ushort", "sshort", "short"):
            return 16
        if found := re.fullmatch(r"[bui](8|16|32|64|96|128|256|512)", word):
            return twice * int(found[1])
        if found := re.fullmatch(r"f(16|32|64)", word):
            return twice * int(found[1])
    return 0
