"""SASS, the machine code of NVIDIA's GPUs, as nvdisasm writes it.

The names are those of the CUDA Binary Utilities manual, "Instruction Set Reference". An instruction for the uniform registers
of a warp has its twin's name after a U, where it has one.
"""

from __future__ import annotations

import re

from gemmport.inspection.instructions import Access, Instruction, Kind

_BY_NAME: dict[Kind, str] = {
    Kind.MATRIX: """
        BGMMA BMMA DMMA HGMMA HMMA IGMMA IMMA OMMA QGMMA QMMA UTCHMMA UTCIMMA UTCMXQMMA UTCOMMA UTCQMMA
    """,
    Kind.FMA: "DFMA FFMA FFMA2 FFMA32I HFMA2 HFMA2_32I",
    Kind.FLOAT: """
        DADD DMNMX DMUL DSET DSETP FADD FADD2 FADD32I FCHK FMNMX FMNMX3 FMUL FMUL2 FMUL32I FSEL FSET FSETP FSWZADD HADD2
        HADD2_32I HMNMX2 HMUL2 HMUL2_32I HSET2 HSETP2 MUFU
    """,
    Kind.INTEGER_FMA: "IDP IDP4A IMAD IMAD32I",
    Kind.INTEGER: """
        BMSK BREV FLO IABS IADD IADD3 IADD32I IMNMX IMUL IMUL32I ISCADD ISETP LEA LOP LOP3 LOP32I PLOP3 POPC PRMT PSETP QSPC
        SEL SGXT SHF SHL SHR VABSDIFF VABSDIFF4 VHMNMX VIADD VIADDMNMX VIMNMX VIMNMX3
    """,
    Kind.CONVERSION: "F2F F2FP F2I F2IP FRND I2F I2FP I2I I2IP",
    Kind.MOVE: "B2R BMOV CS2R CS2UR LEPC MOV MOV32I P2R R2B R2P R2UR S2R S2UR UP2UR UR2UP",
    Kind.EXCHANGE: "CREDUX ELECT MATCH MOVM REDUX SHFL VOTE VOTEU",
    Kind.MEMORY: """
        ATOM ATOMG ATOMS CCTL CCTLL CCTLT LD LDC LDCU LDG LDGSTS LDL LDS LDSM RED REDG REDS ST STG STL STS STSM SULD SUST
        UBLKCP UBLKPF UBLKRED UTMALDG UTMAPF UTMAREDG UTMASTG
    """,
    Kind.BARRIER: """
        ACQBULK ACQSHMINIT ARRIVES BAR CGAERRBAR DEPBAR ERRBAR FENCE LDGDEPBAR MEMBAR NANOSLEEP SYNCS UCGABAR_ARV
        UCGABAR_WAIT UTMACCTL UTMACMDFLUSH WARPGROUP WARPGROUPSET WARPSYNC
    """,
    Kind.BRANCH: """
        BPT BRA BREAK BRX BRXU BSSY BSYNC CALL ENDCOLLECTIVE EXIT JMP JMX JMXU KILL PREEXIT RET RPCMOV YIELD
    """,
}
_KINDS = {name: kind for kind, names in _BY_NAME.items() for name in names.split()}

# Verb and space of what touches memory. What copies tensors says its size elsewhere.
_ACCESSES = {
    "LDG": ("load", "global"), "STG": ("store", "global"), "LDS": ("load", "local"), "STS": ("store", "local"),
    "LDSM": ("load", "local"), "STSM": ("store", "local"), "LDL": ("load", "private"), "STL": ("store", "private"),
    "LDC": ("load", "constant"), "LDCU": ("load", "constant"), "LD": ("load", "generic"), "ST": ("store", "generic"),
    "ATOM": ("atomic", "generic"), "ATOMG": ("atomic", "global"), "ATOMS": ("atomic", "local"), "RED": ("atomic", "global"),
    "REDG": ("atomic", "global"), "REDS": ("atomic", "local"), "LDGSTS": ("copy", "global"), "UBLKCP": ("copy", "global"),
    "UTMALDG": ("copy", "global"),
}  # fmt: skip

_LINE = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:(@!?U?PT?\d*)\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;")


def parse(text: str) -> list[Instruction]:
    """The instructions of a function's section, without the padding that does nothing."""
    instructions = []
    labels: list[str] = []
    for line in text.splitlines():
        if found := re.fullmatch(r"([.$\w]+):", line.strip()):
            labels.append(found.group(1))
        elif (found := _LINE.match(line)) and found[2] != "NOP":
            instructions.append(_instruction(found[1] or "", found[2], found[3], tuple(labels)))
            labels = []
    return instructions


def _instruction(guard: str, name: str, operands: str, labels: tuple[str, ...]) -> Instruction:
    words = name.split(".")
    jumps = words[0] in ("BRA", "JMP")
    target = re.search(r"`\(([.$\w]+)\)", operands) if jumps else None
    # A branch may have its condition in front, or before the label.
    conditional = bool(guard) or (jumps and not operands.startswith("`"))
    return Instruction(
        " ".join(filter(None, (guard, name, operands))),
        _kind(words, operands),
        _accesses(words),
        labels,
        target=target.group(1) if target else None,
        ends=not conditional and words[0] in ("BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "RET", "EXIT", "KILL"),
    )


def _kind(words: list[str], operands: str) -> Kind:
    kind = _kind_of(words[0])
    if kind is Kind.UNKNOWN:
        return kind
    if kind in (Kind.FMA, Kind.INTEGER_FMA) and re.match(r"U?R\w+, -?U?RZ, -?U?RZ\b", operands):
        return Kind.MOVE  # nought times nought: how the multiplier moves a register or a constant
    if "MOV" in words[1:]:
        return Kind.MOVE
    if kind is Kind.INTEGER_FMA and {"IADD", "SHL", "X"}.intersection(words[1:]):
        return Kind.INTEGER  # additions and shifts on the multiplier
    if words[:2] == ["HADD2", "F32"]:
        return Kind.CONVERSION  # a half to a float
    return kind


def _kind_of(name: str) -> Kind:
    return _KINDS.get(name) or _KINDS.get(name.removeprefix("U"), Kind.UNKNOWN)


def _accesses(words: list[str]) -> tuple[Access, ...]:
    found = _ACCESSES.get(words[0]) or _ACCESSES.get(words[0].removeprefix("U"))
    return (Access(*found, _bits(words)),) if found else ()


def _bits(words: list[str]) -> int:
    if words[0] in ("UBLKCP", "UTMALDG"):
        return 0
    if words[0] in ("LDSM", "STSM"):  # each matrix gives a work-item two halves
        return 32 * next((int(word) for word in words[2:] if word in ("2", "4")), 1)
    for word in reversed(words[1:]):
        if word in ("256", "128", "64", "32"):
            return int(word)
        if re.fullmatch(r"[USF](8|16|32|64)", word):
            return int(word[1:])
    return 32
