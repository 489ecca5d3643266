"""Programs of NVIDIA's OpenCL that use instructions of one compute capability alone, sm_90a's.

NVIDIA's compiler for OpenCL targets sm_90 and refuses these instructions in a source. But the binary of a program is PTX, as
text. So the source has them as comments of inline assembly (LATER of kernels/opencl/prelude/hopper.cl): the compiler allocates
their registers, and writes these into the comments. Here the comments become instructions, and the target the one that knows
them. Until then a program computes nothing in their place: one that is not completed must not run.
"""

from __future__ import annotations

import re

from gemmport.core.errors import InstructionsError

_MARK = b"sm_90a:"
_LATER = re.compile(rb"^([ \t]*)// sm_90a: (?=\S)", flags=re.MULTILINE)
_TARGET = re.compile(rb"^(\.target[ \t]+sm_90)(?=[ \t,\r\n])", flags=re.MULTILINE)


def completed(ptx: bytes, source: str) -> bytes:
    """The PTX of a program with the instructions that its source leaves for later, for the target that has them.

    Args:
        ptx: as the compiler made it. source: of which it made it.

    Raises:
        InstructionsError: it is not PTX for sm_90, the compiler left the instructions out, or one of them stays a comment.
    """
    retargeted, targets = _TARGET.subn(rb"\1a", ptx)
    if targets != 1:
        raise _incomplete("the program's binary must be PTX for sm_90", ptx, source)
    made, instructions = _LATER.subn(rb"\1", retargeted)
    if not instructions:
        raise _incomplete(
            "the compiler keeps no comment of inline assembly, where sm_90a's instructions are to stand", ptx, source
        )
    if _MARK in made:
        raise _incomplete("an instruction of sm_90a is left that is still a comment", made, source)
    return made


def _incomplete(reason: str, ptx: bytes, source: str) -> InstructionsError:
    found = next((line for line in ptx.splitlines() if _MARK in line), ptx[:200])
    return InstructionsError(
        f"this driver's OpenCL does not reach the instructions of sm_90a: {reason}; choose another kernel",
        log=found.decode("utf-8", "replace"),
        source=source,
    )
