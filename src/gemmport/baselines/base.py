"""The interface of a baseline: another library that computes the same product on the same memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy.typing as npt

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.checking.verification import cut_on
from gemmport.contracts.kernel import Cut
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import BaselineUnavailableError
from gemmport.core.problem import GemmProblem, Operand

HostArray = npt.NDArray[Any]


@dataclass(frozen=True)
class BoundBaseline:
    """A product of a baseline, ready to be computed any number of times.

    Attributes:
        name: of the baseline.
        enqueue: computes D once, or raises LaunchError. With clock "device" it only enqueues on the backend's queue; with
            "host" it is done when it returns.
        clock: by which clock it is timed.
        result: the host array that holds D with clock "host"; None where D is in the operands' memory.
        close: frees what the library holds for it.
        tuning: parameters that the library was given for this device, by its kernels; empty where it has its own.
    """

    name: str
    enqueue: Callable[[], None]
    clock: Literal["device", "host"]
    result: HostArray | None = None
    close: Callable[[], None] = lambda: None
    tuning: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class Baseline(ABC):
    """A library, loaded.

    It updates in place: D = alpha · op(A) · op(B) + beta · D. Where beta is not 0, the caller copies C into D before a
    result is checked.
    """

    name: ClassVar[str]
    backends: ClassVar[frozenset[str]]
    """The backends whose memory it computes on; empty: it computes on the host."""
    how_to_get: ClassVar[str]

    def __init__(self) -> None:
        """Loads the library.

        Raises:
            BaselineUnavailableError: it is not installed or does not start.
        """

    @property
    @abstractmethod
    def version(self) -> str:
        """The library's version, for results; "unknown" where it does not tell."""

    def unsupported(self, problem: GemmProblem) -> str | None:
        """Why it cannot compute a problem; None where it can."""
        return None

    def rounds_by_itself(self, problem: GemmProblem) -> bool:
        """Whether it rounds A and B to the problem's precision in a way that it does not tell: it is timed then, not judged."""
        return False

    def cut(self, problem: GemmProblem, device: DeviceInfo) -> Cut | None:
        """What a matrix unit may keep of the sums: the result is judged by a bound of that."""
        return cut_on(problem, device)

    @abstractmethod
    def bind(
        self,
        problem: GemmProblem,
        backend: Backend,
        operands: Mapping[Operand, Memory],
        host: Mapping[Operand, HostArray],
    ) -> BoundBaseline:
        """Prepares a product.

        Args:
            operands: device memory of "a", "b" and "d", laid out as the problem says.
            host: "a", "b" and, where beta is not 0, "c" as NumPy arrays of shape (batch, rows, columns), as they are
                stored (before op).
        """

    def unsupported_scales(self, problem: GemmProblem) -> str | None:
        """Why it does not multiply the rows of op(A) and the columns of op(B) by scales; None where `bind_scaled` does."""
        return "its rows and columns have scales"

    def bind_scaled(
        self, problem: GemmProblem, backend: Backend, operands: Mapping[Operand, Memory], rows: Memory, columns: Memory
    ) -> BoundBaseline:
        """Prepares D = alpha · (diag(rows) · op(A)) · (op(B) · diag(columns)) + beta · D.

        Args:
            operands: as `bind`.
            rows, columns: device memory of m and of n numbers of float32.

        Raises:
            BaselineUnavailableError: it cannot.
        """
        reason = self.unsupported_scales(problem)
        raise BaselineUnavailableError(f"{self.name} cannot compute this problem: {reason}")
