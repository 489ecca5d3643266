"""`aligned`: loads of 16 bytes where every row of A and B starts at a multiple of them, and scalar loads elsewhere."""

from __future__ import annotations

from pathlib import Path

from gemmport.contracts.kernel import KernelVariant, Parameter, Parameters, Tile
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem

BYTES = 16


class Aligned(KernelVariant):
    """Dot products of rows of A with rows of B: op(A) = A, op(B) = Bᵀ."""

    name = "aligned"
    dtypes = frozenset({"float32", "float64"})
    summary = "16-byte loads where the alignment allows them"
    folder = str(Path(__file__).parent)
    parameters = (Parameter("TS", 8, "work-items of a group per dimension", maximum=16),)

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TS"]), int(parameters["TS"]), 1)

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return int(parameters["TS"]), int(parameters["TS"]), 1

    def unsupported(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if problem.trans_a != "N" or problem.trans_b == "N":
            return f"{self.name} reads both operands along k: it needs op(A) = N and op(B) = T, not {problem.ops}"
        return super().unsupported(problem, device)

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        width = BYTES // problem.dtype.itemsize
        aligned = all(problem.alignment(operand) % BYTES == 0 for operand in ("a", "b"))
        wide = aligned and problem.effective_k % width == 0
        return {**super().defines(parameters, problem), "WIDTH": width if wide else 1}
