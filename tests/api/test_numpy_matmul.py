"""NumPy's own tests of `numpy.matmul`, as the installed NumPy brings them, run on `gemmport.matmul` on the best device.

Their modules are imported once more with `numpy.matmul` exchanged, and it stays exchanged while they run; nothing in them is
changed. A test is taken if it names matmul, so that those that a later NumPy adds are run too.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest

import gemmport as gp
from absences import beyond

CORE = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"
MODULES = [
    f"{CORE}.tests.test_multiarray", f"{CORE}.tests.test_ufunc", "numpy.lib.tests.test_function_base",
    "numpy.linalg.tests.test_linalg", "numpy.linalg.tests.test_regression",
]  # fmt: skip

NAMES_MATMUL = re.compile(r"\b(np|self)\.matmul\b|(?<![.\w])matmul\(")

NOT_APPLICABLE = {
    "TestMatmulOperator": "of the operator @ between NumPy's own arrays, which is NumPy's",
    "TestBinop.test_ufunc_binop_interaction": "of the operators of NumPy's own arrays, which are NumPy's",
    "TestUfunc.test_at_not_none_signature": "of ufunc.at, which NumPy's matmul has in order to refuse it",
    "TestUFuncInspectSignature.test_params_common_gufunc": "of the list of parameters that all ufuncs have",
    "test_matmul": "of numpy.linalg.matmul, which keeps NumPy's own product",
}


pytestmark = pytest.mark.best_of_each_backend
"""NumPy's rules are the host's part; test_matmul.py asks every device."""

OF_MATMUL_ALONE = ("TestMatmul", "test_matmul_axes")
"""Run in make test, but for what is below; others multiply for the sake of something else."""

OF_MANY_TYPES = (
    "test_dot_equivalent", "test_dot_equivalent_matrix_matrix_blastypes", "test_scalar_output", "test_matrix_vector_values",
    "test_vector_matrix_values",
)  # fmt: skip
"""Of these, what goes through many types and strides once more."""


class Ported:
    """Stands where `numpy.matmul` stands. Like a ufunc, it does not become a method of the class whose attribute it is."""

    types = np.matmul.types

    def __init__(self) -> None:
        self.device: gp.DeviceInfo | None = None
        self.calls = 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        return gp.matmul(*arguments, device=self.device, **options)


PORTED = Ported()


def with_matmul_exchanged(name: str) -> ModuleType:
    """A second copy of one of NumPy's modules of tests."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"{name} is not installed")
    spec = importlib.util.spec_from_file_location(f"{name}_on_gemmport", found.origin)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    experimental = {"NUMPY_EXPERIMENTAL_DTYPE_API": "1"}  # without it NumPy 1's tests of ufuncs cannot be imported
    with mock.patch.object(np, "matmul", PORTED), mock.patch.dict(os.environ, experimental):
        spec.loader.exec_module(module)
    return module


def all_tests(body: Any) -> dict[str, FunctionType]:
    """The test functions of a module or class, inherited ones included."""
    found = inspect.getmembers(body, inspect.isfunction)
    return {name: function for name, function in found if name.startswith("test")}


def chosen(module: ModuleType) -> dict[str, Any]:
    """The tests of a module that name matmul; classes are reduced to theirs."""
    names: dict[str, Any] = {
        name: test for name, test in all_tests(module).items()
        if NAMES_MATMUL.search(inspect.getsource(test)) and name not in NOT_APPLICABLE
    }  # fmt: skip
    for title, body in inspect.getmembers(module, inspect.isclass):
        if not title.startswith("Test") or body.__module__ != module.__name__ or title in NOT_APPLICABLE:
            continue
        tests = all_tests(body)
        wanted = {
            name for name, test in tests.items()
            if NAMES_MATMUL.search(inspect.getsource(test)) and f"{title}.{name}" not in NOT_APPLICABLE
        }  # fmt: skip
        if wanted:
            names[title] = type(title, (body,), dict.fromkeys(tests.keys() - wanted))  # None hides an inherited test
    return names


try:
    COPIES = {name: with_matmul_exchanged(name) for name in MODULES}
except ImportError as error:
    pytest.skip(f"NumPy {np.__version__} is installed without its tests: {error}", allow_module_level=True)

for _copy in COPIES.values():
    _tests = chosen(_copy)
    assert not _tests.keys() & globals().keys(), (
        "two of NumPy's modules have tests of one name: one would hide the other"
    )
    for _name, _test in _tests.items():
        globals()[_name] = _test if _name in OF_MATMUL_ALONE else pytest.mark.of_numpy(_test)
for _name in OF_MANY_TYPES:
    pytest.mark.of_numpy(getattr(globals()["TestMatmul"], _name))


@pytest.fixture(autouse=True)
def on_the_device(
    backend: gp.Backend, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Everything that NumPy's tests multiply by `numpy.matmul` is multiplied on the device, and something must be."""
    if "float64" not in backend.device.computes:
        pytest.skip(beyond(backend.device, "it does not compute in float64, of which NumPy's tests are full"))
    monkeypatch.setattr(PORTED, "device", backend.device)
    monkeypatch.setattr(PORTED, "calls", 0)
    monkeypatch.setattr(np, "matmul", PORTED)
    yield
    of_another_function = any(callable(value) for value in request.node.callspec.params.values() if value is not PORTED)
    assert PORTED.calls or of_another_function, (
        "nothing was multiplied by numpy.matmul: list the test in NOT_APPLICABLE"
    )


@pytest.mark.of_numpy
@pytest.mark.parametrize("name", ["test_ufunc_types", "test_ufunc_noncontiguous"])
def test_of_every_ufunc(name: str) -> None:
    getattr(COPIES[f"{CORE}.tests.test_ufunc"], name)(PORTED)
