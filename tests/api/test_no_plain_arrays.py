"""Operands that are no arrays of plain numbers: each ends in an error of gemmport's own, wherever it goes in."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import TORCH, skip_without

PLAIN = np.ones((2, 2), np.float32)


class _Sparse(SimpleNamespace):
    """What gemmport sees of a sparse matrix of SciPy's."""

    def __init__(self) -> None:
        super().__init__(shape=(2, 2), dtype=PLAIN.dtype)

    def __getitem__(self, key: Any) -> Any:
        return self

    def todense(self) -> Any:
        return PLAIN


class _Table:
    """A table of columns of several types, of which NumPy makes a copy."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return PLAIN.copy()


class _OfAnotherWorld:
    """An array on a device that DLPack has no number for."""

    shape, dtype = PLAIN.shape, PLAIN.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        raise ValueError("Unknown device type meta for Dlpack")

    def __dlpack__(self, **given: Any) -> Any:
        raise BufferError("there is no memory")


def _of_torch(make: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    def made() -> Any:
        skip_without(TORCH)
        import torch  # noqa: PLC0415 - it may be missing

        return make(torch, torch.ones(2, 2))

    return made


def _of_many_dimensions() -> Any:
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        pytest.skip("NumPy before 2 has arrays of 32 dimensions at most")
    return np.ones((1,) * 38 + (2, 2), np.float32)


WHAT: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a ragged list": lambda: [[1.0, 2.0], [3.0]],
    "text": lambda: "numbers",
    "bytes": lambda: b"numbers",
    "objects": lambda: np.array([[1, None], [2, 3]], object),
    "strings": lambda: np.array([["a", "b"], ["c", "d"]]),
    "records": lambda: np.zeros((2, 2), [("x", "f4")]),
    "dates": lambda: np.zeros((2, 2), "M8[s]"),
    "a sparse matrix": _Sparse,
    "more dimensions than NumPy broadcasts": _of_many_dimensions,
    "an array of another world": _OfAnotherWorld,
    "a sparse tensor": _of_torch(lambda torch, x: x.to_sparse()),
    "a compressed tensor": _of_torch(lambda torch, x: x.to_sparse_csr()),
    "a nested tensor": _of_torch(lambda torch, x: torch.nested.nested_tensor([x, x])),
    "a jagged tensor": _of_torch(lambda torch, x: torch.nested.nested_tensor([x, x], layout=torch.jagged)),
    "a quantized tensor": _of_torch(lambda torch, x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)),
    "a tensor without memory": _of_torch(lambda torch, x: x.to("meta")),
    "a tensor with gradients": _of_torch(lambda torch, x: x.requires_grad_()),
}

Where = Callable[[gp.Backend, gp.DeviceArray, Any], object]
WHERE: dict[str, Where] = {
    "matmul": lambda backend, on_device, x: gp.matmul(x, PLAIN, device=backend.device),
    "matmul on a device": lambda backend, on_device, x: gp.matmul(on_device, x),
    "gemm": lambda backend, on_device, x: gp.gemm(PLAIN, x, device=backend.device),
    "gemm on a device": lambda backend, on_device, x: gp.gemm(x, on_device),
    "C": lambda backend, on_device, x: gp.gemm(PLAIN, PLAIN, beta=1.0, c=x, device=backend.device),
    "asarray": lambda backend, on_device, x: backend.asarray(x),
    "set": lambda backend, on_device, x: on_device.set(x),
    "dot": lambda backend, on_device, x: np.dot(on_device, x),
    "einsum": lambda backend, on_device, x: np.einsum("ij,jk->ik", on_device, x),
}

PAIRS = [
    (what, where)
    for what in WHAT
    for where in WHERE
    if (what, where) != ("objects", "matmul")  # which NumPy multiplies on the host
    and (not what.startswith("more dimensions") or where not in ("asarray", "dot"))  # which take them
]


@pytest.mark.sample(what=["None", "a ragged list", "a sparse matrix"], where=["matmul", "dot"])
@pytest.mark.parametrize(("what", "where"), PAIRS)
def test_what_is_no_array_of_plain_numbers_is_refused(best_backend: gp.Backend, what: str, where: str) -> None:
    given, on_device = WHAT[what](), best_backend.asarray(PLAIN)
    with pytest.raises(gp.GemmportError) as refusal:
        WHERE[where](best_backend, on_device, given)
    assert str(refusal.value)


@pytest.mark.parametrize("where", ["matmul", "gemm", "asarray", "set", "dot"])
def test_memory_of_pythons_own_is_read(best_backend: gp.Backend, where: str) -> None:
    WHERE[where](best_backend, best_backend.asarray(PLAIN), memoryview(PLAIN))


def test_a_result_is_not_written_to_a_copy(best_backend: gp.Backend) -> None:
    with pytest.raises(gp.ArrayError, match="out must be an array that NumPy writes in place; got a _Table"):
        gp.gemm(PLAIN, PLAIN, out=_Table(), device=best_backend.device)
    written = np.zeros((2, 2), np.float32)
    gp.gemm(PLAIN, PLAIN, out=memoryview(written), device=best_backend.device)
    assert (written == 2).all()
