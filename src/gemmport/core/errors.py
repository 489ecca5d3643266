"""Every exception that gemmport raises, each also an instance of the built-in class a Python user would expect.

A message says what was wrong, the value, the rule it broke, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping


class GemmportError(Exception):
    """The base of all exceptions of this package."""


class ShapeError(GemmportError, ValueError):
    """Sizes, strides or offsets that do not describe a matrix product."""


class DtypeError(GemmportError, TypeError):
    """A data type that gemmport, or this device, does not compute in."""


class UnknownNameError(GemmportError, LookupError):
    """No kernel, parameter, backend or baseline of that name."""


class ParameterError(GemmportError, ValueError):
    """A kernel parameter that breaks a rule of the kernel or a limit of the device."""


class ConfigError(GemmportError, ValueError):
    """A configuration file that cannot be read, or breaks its schema or a rule of a kernel."""


class UntrustedError(GemmportError, PermissionError):
    """A folder or file that somebody else may change, or that is not what it should be: it is not used."""


class UnsupportedError(GemmportError, ValueError):
    """No kernel can compute this problem on this device."""


class ArrayError(GemmportError, ValueError):
    """Arrays that do not belong together, or cannot be used where they are."""


class CopyError(GemmportError, TypeError):
    """Something on a device that is not copied or pickled."""


class BackendUnavailableError(GemmportError, RuntimeError):
    """A known backend that is not installed, or does not start, on this machine."""


class ForkError(GemmportError, RuntimeError):
    """A runtime that was in use in the process that this one was forked off, and does not go on here."""


class DeviceNotFoundError(GemmportError, LookupError):
    """No device answers to the description."""


class AmbiguousDeviceError(GemmportError, LookupError):
    """Several devices answer to the description."""


class DeviceMemoryError(GemmportError, MemoryError):
    """The device cannot hold what was asked of it."""


class LaunchError(GemmportError, RuntimeError):
    """The runtime refused to run, or failed while running, a compiled kernel."""


class DeviceLostError(LaunchError):
    """Nothing runs on the device any more in this process, as after a kernel that wrote where nothing is."""


class DevicesFailedError(GemmportError, RuntimeError):
    """Every device that a product was dealt to has failed.

    Attributes:
        reasons: by the device's label, what it failed with.
    """

    def __init__(self, message: str, *, reasons: Mapping[str, Exception] | None = None) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})


class ArrayLostError(GemmportError, RuntimeError):
    """A device has failed on which an operand or the result of a dealt product lies.

    What the other devices wrote to the result is right; the message says what of it was not computed.
    """


class WorkGroupError(LaunchError):
    """A kernel, as it was compiled, runs only with fewer work-items per group than its plan has.

    Attributes:
        most: with so many at most.
    """

    def __init__(self, message: str, *, most: int = 0) -> None:
        super().__init__(message)
        self.most = most


class TensorMapError(LaunchError):
    """The runtime has no map of an operand for the copy engine, without which a kernel does not run."""


class CompileError(GemmportError, RuntimeError):
    """A kernel did not compile.

    Attributes:
        log: what the compiler said.
        source: the specialized source it was given, with its definitions and the parts that it includes.
    """

    def __init__(self, message: str, *, log: str = "", source: str = "") -> None:
        super().__init__(message)
        self.log = log
        self.source = source


class InstructionsError(CompileError):
    """A driver's compiler does not give a kernel the instructions of one architecture that it consists of."""


class BaselineUnavailableError(GemmportError, RuntimeError):
    """A known baseline library that is not installed, or does not start; the message says how to get it."""


class LibraryUnavailableError(GemmportError, ImportError):
    """A library that a module of gemmport is for, and that is not installed; the message says how to get it."""


class ToolUnavailableError(GemmportError, RuntimeError):
    """A known tool outside gemmport that is not installed, or may not do its work here; the message says what to do."""


class ProfileError(GemmportError, RuntimeError):
    """A profiler ran, but did not report what was asked of it."""


class RecordError(GemmportError, ValueError):
    """A file of results, of the test matrix or of a sweep, that cannot be read, gone on with, or merged."""


class ComparisonError(GemmportError, ValueError):
    """Results that cannot be compared: of unlike devices, or with nothing in common."""


class CheckpointError(GemmportError, ValueError):
    """A checkpoint that belongs to another product, or that a product cannot be kept in."""


class CalibrationError(GemmportError, RuntimeError):
    """A micro-benchmark that computes wrongly, or takes a time in which no device does what it claims to do."""
