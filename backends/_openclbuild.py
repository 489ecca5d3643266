"""Programs of OpenCL, built without a word on standard error: what a compiler says of a program that it makes goes to the log.

PyOpenCL's own `Program.build` warns of every log that is not empty, and keeping Python's warnings back for a while is not safe
among threads. Some compilers write to standard error by themselves, as clang does how many warnings there were: they are asked
for none (-w), but where the log is to have them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pyopencl as cl
from pyopencl import _cl

from gemmport.core.errors import CompileError

log = logging.getLogger(__name__)


def from_source(context: Any, device: Any, source: str, options: Sequence[str]) -> cl.Program:
    """Compiles a source.

    Raises:
        CompileError: the compiler refuses it.
    """
    quiet = [] if log.isEnabledFor(logging.DEBUG) else ["-w"]
    return _built(_cl._Program(context, source), device, source, [*options, *quiet])


def from_binary(context: Any, device: Any, binary: bytes, source: str, options: Sequence[str]) -> cl.Program:
    """Takes up a program that was compiled of a source before.

    Raises:
        CompileError: the runtime refuses it.
    """
    try:
        program = _cl._Program(context, [device], [binary])
    except cl.Error as error:
        raise CompileError("the OpenCL runtime refuses the program", log=str(error), source=source) from error
    return _built(program, device, source, options)


def _built(program: Any, device: Any, source: str, options: Sequence[str]) -> cl.Program:
    try:
        program._build(" ".join(options).encode(), [device])
    except cl.Error as error:
        told = "\n\n".join(filter(None, [str(error), _log_of(program, device)]))
        raise CompileError("the OpenCL compiler refuses the source", log=told, source=source) from error
    if log.isEnabledFor(logging.DEBUG) and (told := _log_of(program, device)):
        log.debug("the compiler of %s says: %s", device.name, told)
    return cl.Program(program)


def _log_of(program: Any, device: Any) -> str:
    """What the compiler said; empty where the runtime does not tell."""
    try:
        return str(program.get_build_info(device, cl.program_build_info.LOG)).strip("\0\n ")
    except cl.Error:
        return ""
