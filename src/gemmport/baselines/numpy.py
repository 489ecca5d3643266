"""NumPy, whose matmul calls the BLAS it was built with: the baseline of CPUs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines.base import Baseline, BoundBaseline, HostArray
from gemmport.checking.reference import applied, as_multiplied
from gemmport.core.problem import GemmProblem, Operand


class NumPy(Baseline):
    """np.matmul on the host's operands."""

    name = "numpy"
    backends = frozenset()
    how_to_get = "pip install numpy"

    @property
    def version(self) -> str:
        """NumPy's; that of the BLAS behind it is told by numpy.show_config()."""
        return np.__version__

    def bind(
        self,
        problem: GemmProblem,
        backend: Backend,
        operands: Mapping[Operand, Memory],
        host: Mapping[Operand, HostArray],
    ) -> BoundBaseline:
        """Prepares a product on the host.

        Its result is an array of its own, (batch, m, n). It reads C from host["c"], where beta is not 0, and so needs no
        copy of C in D first. Operands that are to be rounded are so beforehand: NumPy multiplies them as float32.
        """
        problem, host = as_multiplied(problem, host)
        # With alpha = 0 no term is left, so that no NaN of A or B reaches D.
        a = applied(host["a"], problem.trans_a)[..., : problem.effective_k]
        b = applied(host["b"], problem.trans_b)[..., : problem.effective_k, :]
        # Where types are mixed, NumPy is told what to sum in; and for bfloat16, which ml_dtypes sums in bfloat16.
        own = problem.dtype == problem.output and problem.dtype.name != "bfloat16"
        sums = problem.output if own else problem.accumulator
        result = np.empty((problem.batch, problem.m, problem.n), problem.output.numpy)
        scaled_c = np.empty_like(result) if problem.beta != 0 else None

        def enqueue() -> None:
            np.matmul(a, b, out=result, dtype=sums.numpy, casting="same_kind")
            if problem.alpha != 1:
                np.multiply(result, problem.alpha, out=result)
            if scaled_c is not None:
                np.multiply(host["c"], problem.beta, out=scaled_c)
                np.add(result, scaled_c, out=result)

        return BoundBaseline(self.name, enqueue, "host", result)
