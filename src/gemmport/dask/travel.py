"""How CuPy's arrays leave their worker: to another one, to the client, and to the host's memory when they are spilled.

Dask's scheduler sends them by its module `distributed.protocol.cupy`, which imports Numba. Neither CuPy nor Dask-CUDA installs
Numba, and without it a chunk that is to leave its worker fails ("Could not serialize object of type ndarray"). There they
travel by CuPy alone, as NumPy's arrays.

Importing this module says so in a process: `gemmport.dask` does it on the client, and on a worker that has a task of ours or
`WorkerDevice`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from distributed.protocol.numpy import deserialize_numpy_ndarray, serialize_numpy_ndarray
from distributed.protocol.serialize import dask_deserialize, dask_serialize


def _sent(x: Any) -> Any:
    """The header and the bytes of a copy on the host, in the order of the array's memory."""
    return serialize_numpy_ndarray(import_module("cupy").asnumpy(x, order="A"))


def _received(header: Any, frames: Any) -> Any:
    return import_module("cupy").asarray(deserialize_numpy_ndarray(header, frames))


def _register() -> None:
    """Called by Dask's scheduler when it first meets an array of CuPy."""
    try:
        import_module("distributed.protocol.cupy")
    except ImportError:
        kind = import_module("cupy").ndarray
        dask_serialize.register(kind, _sent)
        dask_deserialize.register(kind, _received)


for registry in (dask_serialize, dask_deserialize):
    registry.register_lazy("cupy", _register)
