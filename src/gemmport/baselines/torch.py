"""PyTorch: its matmul on the host, and on CUDA's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines._packages import conjugates, imported, on_device
from gemmport.baselines.base import Baseline, BoundBaseline, HostArray
from gemmport.core.errors import BaselineUnavailableError
from gemmport.core.problem import GemmProblem, Operand, transposes

_TYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


class Torch(Baseline):
    """torch.matmul, and torch.addmm or torch.baddbmm where there is alpha or beta.

    Under CUDA on the operands' own memory and the backend's stream; beside CPUs on the host's operands. The check of its result
    shows where TF32 was allowed.
    """

    name = "torch"
    backends = frozenset()
    how_to_get = "pip install torch"

    def __init__(self) -> None:
        self._torch = imported("torch", "PyTorch", self.how_to_get)

    @property
    def version(self) -> str:
        """PyTorch's."""
        return str(self._torch.__version__)

    def unsupported(self, problem: GemmProblem) -> str | None:
        """Why it cannot compute a problem; None where it can."""
        if problem.types not in _TYPES:
            return f"PyTorch computes {', '.join(_TYPES)}, not {problem.types}"
        return None

    def bind(
        self,
        problem: GemmProblem,
        backend: Backend,
        operands: Mapping[Operand, Memory],
        host: Mapping[Operand, HostArray],
    ) -> BoundBaseline:
        """Prepares a product.

        Raises:
            BaselineUnavailableError: the device is a GPU that PyTorch does not reach.
        """
        if backend.name == "cuda":
            return self._on_cuda(problem, backend, operands)
        if backend.device.type != "cpu":
            raise BaselineUnavailableError(
                f"torch computes on CUDA's memory and on the host, not on {backend.device.label}; take --backend all, "
                "and it is timed under CUDA"
            )
        result = np.empty((problem.batch, problem.m, problem.n), problem.output.numpy)
        tensors = {operand: self._tensor(host[operand]) for operand in host}
        a, b = tensors["a"], tensors["b"]
        a, b = (x.mT if transposes(op) else x for x, op in ((a, problem.trans_a), (b, problem.trans_b)))
        c = tensors["c"] if problem.beta != 0 else None
        if problem.batch == 1:
            a, b, c = a[0], b[0], None if c is None else c[0]
        out = self._tensor(result)
        product = self._product(problem, a, b, c, out if problem.batch > 1 else out[0])
        return BoundBaseline(self.name, product, "host", result)

    def _on_cuda(
        self, problem: GemmProblem, backend: Backend, operands: Mapping[Operand, Memory]
    ) -> BoundBaseline:  # fmt: skip
        torch = self._torch
        if not torch.cuda.is_available():
            raise BaselineUnavailableError("torch has no CUDA here; install a build of PyTorch that has")
        arrays = on_device(problem, backend, operands)
        a, b, d = (torch.from_dlpack(arrays[operand]) for operand in ("a", "b", "d"))
        # It updates in place: a product reads D, where it reads any.
        product = self._product(problem, a, b, d if problem.beta != 0 else None, d)
        stream = torch.cuda.ExternalStream(backend.queue_handle, device=d.device)

        def enqueue() -> None:
            with torch.cuda.stream(stream):
                product()

        return BoundBaseline(self.name, enqueue, "device")

    def _product(self, problem: GemmProblem, a: Any, b: Any, c: Any, out: Any) -> Callable[[], None]:
        """alpha · a · b + beta · c, written to `out`, which may be c."""
        torch = self._torch
        a, b = (
            x.conj() if conjugates(problem) and op in "CR" else x for x, op in zip((a, b), problem.ops, strict=True)
        )
        if problem.alpha == 1 and c is None:
            return partial(torch.matmul, a, b, out=out)
        add = torch.addmm if a.ndim == 2 else torch.baddbmm
        # With beta = 0 what is added counts by its shape alone.
        added = out.new_zeros(()).expand(out.shape) if c is None else c
        return partial(add, added, a, b, alpha=problem.alpha, beta=problem.beta, out=out)

    def _tensor(self, array: HostArray) -> Any:
        """A tensor over the same memory."""
        if array.dtype.name == "bfloat16":  # a type that NumPy does not have itself
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)
