"""Whether a result is right, found out on the device that holds it: for products too large for the host.

Everything is made of one pass, `times_vector`: Freivalds' check of D · x, op(B) · x, op(A) · v and C · x; the norms that its
tolerance needs; and whole rows of D, since row i of op(A) is op(A)ᵀ · e_i and that row times op(B) is op(B)ᵀ · a_i. Only
vectors come back to the host, which judges them as `gemmport.checking.verification` judges its own. `fill_random_on` makes the
operands.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.checking.reference import rounded
from gemmport.checking.verification import (
    SAMPLED_ROWS,
    Check,
    HostArray,
    check_exact,
    element_bound,
    freivalds_tolerance,
    judged,
    judged_integers,
    random_signs,
    rounds,
)
from gemmport.contracts.kernel import Cut
from gemmport.core.dtypes import DType
from gemmport.core.errors import ArrayError, DtypeError
from gemmport.core.precision import FORMATS, FULL
from gemmport.core.problem import GemmProblem, Layout, Op, Operand, transposed, transposes
from gemmport.execution.executor import enqueue_launches
from gemmport.kernels import fill_random, times_vector
from gemmport.kernels.fill_random import Whole
from gemmport.kernels.times_vector import Sums


def check_freivalds_on(
    backend: Backend,
    problem: GemmProblem,
    memory: Mapping[Operand, Memory],
    seed: int,
    *,
    exact: bool = False,
    cut: Cut | None = None,
) -> Check:
    """`verification.check_freivalds` of a product where it lies, with the same signs and the same tolerance.

    Args:
        memory: of "a", "b", "d", and of "c" as it was before the product where beta is not 0.
        exact: nothing is tolerated; for operands whose sums need no rounding.
        cut: as in `verification.check_random`.

    Raises:
        ValueError: the product is of bool, which has no subtraction.
        ArrayError: an operand is missing, or D was written over C.
        DeviceMemoryError, CompileError, LaunchError: as the backend.
    """
    if problem.output.kind == "bool":
        raise ValueError("Freivalds' check needs a ring, and truth values are none")
    with _Product(backend, problem, memory) as on_device:
        signs = random_signs(problem.n, seed).astype(on_device.sums.host)
        found = on_device.times("d", signs)
        expected = np.zeros_like(found)
        if problem.effective_k:
            expected += on_device.scaled(problem.alpha, on_device.times("a", on_device.times("b", signs)))
        if problem.beta != 0:
            expected += on_device.scaled(problem.beta, on_device.times("c", signs))
        if not rounds(problem):
            return judged_integers(problem, found, expected)
        tolerance = np.zeros(found.shape)
        if not exact:
            rows, columns = on_device.norms_of_factors()
            own = on_device.sums.unit_roundoff
            tolerance = freivalds_tolerance(problem, rows, columns, on_device.norms("d", "N"), own, cut)
    return judged("freivalds", np.abs(found - expected), tolerance, found, expected)


def check_rows_on(
    backend: Backend,
    problem: GemmProblem,
    memory: Mapping[Operand, Memory],
    seed: int,
    *,
    exact: bool = False,
    cut: Cut | None = None,
) -> Check:
    """Compares the first, the last and a sample of rows of D with sums in float64 (double-float where the device has none).

    Integers, and with `exact` all types, are compared bit for bit, others by the statistical bound.

    A product in float64 is not summed more precisely here: the bound then allows for the errors of both.

    Raises:
        As `check_freivalds_on`, but for bool, which is computed in integers.
    """
    if problem.empty:
        return Check("statistical", True, 0.0, 0.0)
    sample = np.random.default_rng(seed).integers(0, problem.m, SAMPLED_ROWS)
    chosen = np.unique(np.concatenate([[0, problem.m - 1], sample]))
    with _Product(backend, problem, memory) as on_device:
        expected = np.zeros((problem.batch, len(chosen), problem.n), on_device.sums.host)
        for at, row in enumerate(chosen) if problem.effective_k else ():
            unit = np.zeros(problem.m, on_device.sums.host)
            unit[row] = 1
            row_of_a = on_device.times("a", unit, transpose=True)
            expected[:, at] = on_device.scaled(problem.alpha, on_device.times("b", row_of_a, transpose=True))
        found = on_device.rows("d", chosen)
        c = on_device.rows("c", chosen) if problem.beta != 0 else None
        if c is not None:
            expected += on_device.scaled(problem.beta, c.astype(expected.dtype))
        if not rounds(problem):
            whole = (expected != 0) if problem.output.kind == "bool" else expected.astype(problem.output.numpy)
            return check_exact(whole, found)
        if exact:
            return check_exact(expected, found)
        rows, columns = on_device.norms_of_factors()
        bound = element_bound(problem, rows[:, chosen], columns, expected, c, on_device.sums.unit_roundoff, cut)
    error = np.abs(found.astype(expected.dtype, copy=False) - expected)
    return judged("statistical", error, bound, found, expected)


class _Product:
    """The operands of a product on a device, and what is computed of them there."""

    def __init__(self, backend: Backend, problem: GemmProblem, memory: Mapping[Operand, Memory]) -> None:
        needed: tuple[Operand, ...] = ("a", "b", "d") if problem.beta == 0 else ("a", "b", "c", "d")
        for operand in needed:
            if operand not in memory:
                raise ArrayError(f"operand {operand} of {problem} is missing: the check reads it")
        if problem.beta != 0 and memory["c"].handle == memory["d"].handle:
            raise ArrayError("D was written over C, which the check reads: give it a copy of C from before the product")
        self.backend, self.problem = backend, problem
        self._rounded = self._as_multiplied(memory)
        self.memory = {**memory, **self._rounded}
        self.sums = Sums.on(backend.device, problem.output.kind)
        longest = max(problem.m, problem.n, problem.k, 1) * problem.batch
        self._vector = backend.allocate(longest * self.sums.itemsize)
        self._result = backend.allocate(longest * self.sums.itemsize)

    def __enter__(self) -> _Product:
        return self

    def __exit__(self, *_: object) -> None:
        for memory in (self._vector, self._result, *self._rounded.values()):
            memory.release()

    def _as_multiplied(self, memory: Mapping[Operand, Memory]) -> dict[Operand, Memory]:
        """Memory of A and B as they are multiplied, where the problem has them rounded: by the host, and not by the pass that
        the product itself was made with.
        """
        problem = self.problem
        if problem.precision == FULL or not problem.effective_k:
            return {}
        made: dict[Operand, Memory] = {}
        factors: tuple[Operand, ...] = ("a", "b")
        for operand in factors:
            flat = np.empty(problem.span(operand), problem.element_type(operand).numpy)
            self.backend.download(memory[operand], flat)
            made[operand] = self.backend.allocate(flat.nbytes)
            self.backend.upload(made[operand], rounded(flat, FORMATS[problem.precision]))
        return made

    def times(self, operand: Operand, vector: HostArray, *, transpose: bool = False) -> HostArray:
        """op(X) · x, or op(X)ᵀ · x, for each matrix of the batch; x is a vector, or one for each matrix.

        Returns:
            (batch, rows): float64, complex128, or uint64 for integers modulo 2⁶⁴.
        """
        self.backend.upload(self._vector, self.sums.to_device(vector))
        return self._run(operand, self._op(operand, transpose), shared=vector.ndim == 1)

    def norms(self, operand: Operand, op: Op) -> HostArray:
        """Euclidean norms of the rows of op(X), (batch, rows), in float64."""
        norms: HostArray = np.sqrt(self._run(operand, op, squares=True).real)
        return norms

    def norms_of_factors(self) -> tuple[HostArray, HostArray]:
        """Norms of the rows of op(A) and of the columns of op(B); zeros where they are not read."""
        problem = self.problem
        if not problem.effective_k:
            return np.zeros((problem.batch, problem.m)), np.zeros((problem.batch, problem.n))
        return self.norms("a", problem.trans_a), self.norms("b", transposed(problem.trans_b))

    def rows(self, operand: Operand, rows: HostArray) -> HostArray:
        """Some rows of C or D, (batch, rows, n)."""
        problem, layout, dtype = self.problem, self.problem.layout(operand), self.problem.element_type(operand).numpy
        out = np.empty((problem.batch, len(rows), problem.n), dtype)
        for batch in range(problem.batch):
            for at, row in enumerate(rows):
                first = layout.offset + batch * layout.batch_stride + int(row) * layout.ld
                self.backend.download(self.memory[operand], out[batch, at], offset=first * dtype.itemsize)
        return out

    def scaled(self, scalar: complex, numbers: HostArray) -> HostArray:
        """Alpha or beta times numbers of the device's sums; integers modulo 2⁶⁴."""
        factor = int(scalar.real) % 2**64 if self.sums.host == np.uint64 else scalar
        scaled: HostArray = np.multiply(numbers, factor, dtype=self.sums.host)
        return scaled

    def _op(self, operand: Operand, transpose: bool) -> Op:
        op: Op = {"a": self.problem.trans_a, "b": self.problem.trans_b}.get(operand, "N")
        return transposed(op) if transpose else op

    def _run(self, operand: Operand, op: Op, *, shared: bool = True, squares: bool = False) -> HostArray:
        problem = self.problem
        rows, columns = problem.stored_shape(operand)
        if transposes(op):
            rows, columns = columns, rows
        if 0 in (rows, problem.batch):
            return np.zeros((problem.batch, rows), self.sums.host)
        launch = times_vector.PASS.launch(
            self.sums, problem.element_type(operand), op, rows, columns, problem.batch, problem.layout(operand),
            shared=shared, squares=squares,
        )  # fmt: skip
        buffers = {"matrix": self.memory[operand], "vector": self._vector, "result": self._result}
        enqueue_launches([launch], self.backend, buffers, writes=("result",))
        raw = np.empty(problem.batch * rows * self.sums.itemsize, np.uint8)
        self.backend.download(self._result, raw)
        return self.sums.from_device(raw).reshape(problem.batch, rows)


def fill_random_on(
    backend: Backend, memory: Memory, dtype: DType, layout: Layout, rows: int, columns: int, batch: int = 1,
    *, seed: int, whole: Whole | None = None,
) -> None:  # fmt: skip
    """Fills matrices on the device with N(0, 1), complex ones in each part, or with `whole` numbers; gaps stay what they are.

    What is written depends on the seed and on the element's row, column and matrix alone: `fill_random.predicted` tells it.

    Raises:
        ValueError: normal numbers of integers or bool.
        DtypeError: the device does not compute in the numbers' precision.
        ArrayError: the memory is too small.
        CompileError, LaunchError: as the backend.
    """
    needed = layout.span(rows, columns, batch) * dtype.itemsize
    if memory.nbytes < needed:
        raise ArrayError(
            f"{batch} × {rows} × {columns} of {dtype} take {needed:,} bytes; the memory has {memory.nbytes:,}"
        )
    if dtype.part_bits == 64 and dtype.arithmetic and dtype.arithmetic not in backend.device.computes:
        raise DtypeError(f"{backend.device.label} does not compute in {dtype.arithmetic}: make the numbers on the host")
    if 0 in (rows, columns, batch):
        return
    launch = fill_random.PASS.launch(dtype, rows, columns, batch, layout, seed, whole)
    enqueue_launches([launch], backend, {"matrix": memory}, writes=("matrix",))
