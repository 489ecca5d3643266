"""CuPy's arrays on their way between processes, with a stand-in for CuPy: no GPU is needed."""

from __future__ import annotations

import subprocess
import sys

from absences import DASK, DISTRIBUTED, needs

pytestmark = [needs(DASK, DISTRIBUTED)]

THERE_AND_BACK = """
import sys, types
import numpy as np

sys.modules["numba"] = None  # as where it is not installed

class ndarray:
    __module__ = "cupy"

    def __init__(self, inner):
        self.inner = inner

cupy = types.ModuleType("cupy")
cupy.__version__ = "14"
cupy.ndarray, cupy.asarray = ndarray, ndarray
cupy.asnumpy = lambda x, order: np.array(x.inner, order=order)
sys.modules["cupy"] = cupy

from distributed.protocol import deserialize, serialize
{imports}
for inner in (
    np.arange(12, dtype="float16").reshape(3, 4), np.ones((2, 5), "complex64").T, np.arange(24.0).reshape(2, 3, 4)[:, ::2],
    np.float32(3).reshape(()), np.empty((0, 4), "float32"),
):
    found = deserialize(*serialize(ndarray(inner), serializers=("dask", "pickle"), on_error="raise"))
    assert type(found) is ndarray
    assert (found.inner.dtype, found.inner.shape) == (inner.dtype, inner.shape)
    assert np.array_equal(found.inner, inner)
"""


def travels(imports: str) -> subprocess.CompletedProcess[str]:
    code = THERE_AND_BACK.format(imports=imports)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_cupys_arrays_travel_without_numba() -> None:
    done = travels("import gemmport.dask")
    assert done.returncode == 0, done.stderr


def test_without_numba_dask_alone_sends_none() -> None:
    """Where this fails, Dask can do without Numba, and gemmport.dask.travel has no more purpose."""
    done = travels("")
    assert done.returncode
    assert "Could not serialize object of type ndarray" in done.stderr
