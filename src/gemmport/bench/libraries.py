"""Libraries whose arrays gemmport multiplies: how each makes arrays for a device, multiplies them itself, and waits.

Each library is imported when its arrays are first asked for, and by its name alone: none of them has to be installed.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gemmport.backends.base import Backend
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, is_named_by_ml_dtypes
from gemmport.core.errors import LibraryUnavailableError, UnknownNameError
from gemmport.core.precision import FULL

HostArray = npt.NDArray[Any]

_TF32 = "tf32"


class Library(ABC):
    """One library's arrays for one device.

    Attributes:
        name: on the command line.
        package: that has to be installed; empty where it is gemmport itself.
        product_name: the library's own product; empty where it has none.
        writes: whether the library lets products be written to its arrays.
        precisions: to which its own product can round float32 and complex64 before it multiplies.
        options: of `gemmport.matmul`, beside the arrays: the device, where the arrays do not tell it.
        beside: whose product stands beside gemmport's: the library itself, another one, or None for nobody.
    """

    name: ClassVar[str]
    package: ClassVar[str] = ""
    product_name: ClassVar[str] = ""
    writes: ClassVar[bool] = True
    precisions: frozenset[str] = frozenset({FULL})

    def __init__(self, backend: Backend) -> None:
        """The library for a backend's device.

        Raises:
            LibraryUnavailableError: it is not installed, or its arrays do not reach the device.
        """
        self.backend = backend
        if not self._may_reach(backend.device):  # asked before the library is imported, which takes seconds
            raise self._unreachable()
        self.module: Any = _imported(self.package) if self.package else None
        self.options: dict[str, Any] = {}

    def _may_reach(self, device: DeviceInfo) -> bool:
        """Whether the library has arrays on devices of such a backend and type."""
        return True

    @property
    def version(self) -> str:
        """Of the library; empty where it is gemmport itself."""
        return str(getattr(self.module, "__version__", ""))

    @property
    def beside(self) -> Library | None:
        """See the attributes."""
        return self if self.product_name else None

    @abstractmethod
    def array(self, host: HostArray) -> Any:
        """The library's array of a host array's values, contiguous, where the device reaches it."""

    @abstractmethod
    def to_host(self, array: Any) -> HostArray:
        """An array's values as one of NumPy, after all work on it."""

    def transposed(self, array: Any) -> Any:
        """An array with its last two dimensions exchanged: a view, where the library has views."""
        return array.swapaxes(-1, -2)

    def product(self, a: Any, b: Any, out: Any = None) -> Any:
        """The library's own product, written to `out` where that is given."""
        raise NotImplementedError(f"{self.name} has no product of its own")

    def update(self, a: Any, b: Any, c: Any, out: Any = None, *, alpha: complex, beta: complex) -> Any:
        """The library's own alpha · A · B + beta · C; C may be None where beta is 0."""
        raise NotImplementedError(f"{self.name} has no product with alpha and beta")

    def wait(self, result: Any) -> None:
        """Waits for what was enqueued on the library's arrays, a product last of all."""

    @contextmanager
    def precise(self, precision: str = FULL) -> Iterator[None]:
        """While this is open, the library multiplies float32 in that precision, and has float64; then all is as before."""
        yield

    def _unreachable(self) -> LibraryUnavailableError:
        return LibraryUnavailableError(f"arrays of {self.name} must reach {self.backend.device.label}; they do not")


class _NumPy(Library):
    """NumPy's arrays; on an NVIDIA GPU PyTorch's product on that GPU stands beside them, copies there and back included."""

    name, package, product_name = "numpy", "numpy", "numpy.matmul"

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.options = {"device": backend.device}

    @property
    def beside(self) -> Library | None:
        return _where_it_starts(_TorchOfHostArrays, self.backend) or self

    def array(self, host: HostArray) -> Any:
        return host.copy()

    def to_host(self, array: Any) -> HostArray:
        return np.asarray(array)

    def product(self, a: Any, b: Any, out: Any = None) -> Any:
        return np.matmul(a, b, out=out)


class _Own(Library):
    """gemmport's own device arrays; PyTorch's product stands beside them on the same GPU."""

    name = "device"

    @property
    def beside(self) -> Library | None:
        return _where_it_starts(_TorchBeside, self.backend)

    def array(self, host: HostArray) -> Any:
        return self.backend.asarray(host)

    def to_host(self, array: Any) -> HostArray:
        values: HostArray = array.get()
        return values

    def transposed(self, array: Any) -> Any:
        return array.mT

    def wait(self, result: Any) -> None:
        self.backend.synchronize()


class _Torch(Library):
    name, package, product_name = "torch", "torch", "torch.matmul"

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        place = self._place(backend.device)
        if place is None:
            raise self._unreachable()
        self._device = place
        if place == "cpu":
            self.options = {"device": backend.device}
        else:
            self.precisions = frozenset({FULL, _TF32})

    def _may_reach(self, device: DeviceInfo) -> bool:
        return device.type == "cpu" or device.backend == "cuda"

    def _place(self, device: DeviceInfo) -> str | None:
        """PyTorch's name of the device; None where it does not see the GPU."""
        if device.type == "cpu":
            return "cpu"
        cuda, number = self.module.cuda, device.index[1]
        if not cuda.is_available() or number >= cuda.device_count() or cuda.get_device_name(number) != device.name:
            return None
        return f"cuda:{number}"

    def array(self, host: HostArray) -> Any:
        torch = self.module
        if is_named_by_ml_dtypes(name := host.dtype.name):
            bits = host.view(f"i{host.itemsize}")
            return torch.from_numpy(bits).view(getattr(torch, name)).to(self._device)
        return torch.from_numpy(host).to(self._device)

    def to_host(self, array: Any) -> HostArray:
        host = array.cpu()
        if host.dtype == self.module.bfloat16:
            bits: HostArray = host.view(self.module.int16).numpy()
            return bits.view(DTYPES["bfloat16"].numpy)
        values: HostArray = host.numpy()
        return values

    def product(self, a: Any, b: Any, out: Any = None) -> Any:
        return self.module.matmul(a, b, out=out)

    def update(self, a: Any, b: Any, c: Any, out: Any = None, *, alpha: complex, beta: complex) -> Any:
        add = self.module.addmm if a.ndim == 2 else self.module.baddbmm
        # With beta = 0 what is added counts by its shape alone.
        added = a.new_zeros(()).expand(*a.shape[:-1], b.shape[-1]) if c is None else c
        return add(added, a, b, alpha=alpha, beta=beta, out=out)

    def wait(self, result: Any) -> None:
        if self._device != "cpu":
            self.module.cuda.synchronize(self._device)

    @contextmanager
    def precise(self, precision: str = FULL) -> Iterator[None]:
        settings = self.module.backends.cuda.matmul
        before = settings.allow_tf32
        settings.allow_tf32 = precision == _TF32
        try:
            yield
        finally:
            settings.allow_tf32 = before


class _TorchBeside(_Torch):
    """PyTorch on an NVIDIA GPU, whichever backend reaches it."""

    def _may_reach(self, device: DeviceInfo) -> bool:
        return device.type == "gpu" and device.vendor == "nvidia"


class _TorchOfHostArrays(_TorchBeside):
    """NumPy's arrays, which PyTorch multiplies on an NVIDIA GPU: it copies them there, and the product back."""

    product_name = "torch.matmul with copies"

    def array(self, host: HostArray) -> Any:
        return host.copy()

    def to_host(self, array: Any) -> HostArray:
        return np.asarray(array)

    def product(self, a: Any, b: Any, out: Any = None) -> Any:
        return self._back(super().product(super().array(a), super().array(b)), out)

    def update(self, a: Any, b: Any, c: Any, out: Any = None, *, alpha: complex, beta: complex) -> Any:
        there = [None if x is None else super(_TorchOfHostArrays, self).array(x) for x in (a, b, c)]
        return self._back(super().update(*there, alpha=alpha, beta=beta), out)

    def _back(self, result: Any, out: Any) -> Any:
        if out is None:
            return super().to_host(result)
        bits = result.dtype == self.module.bfloat16
        target = self.module.from_numpy(out.view(np.int16) if bits else out)
        target.copy_(result.view(target.dtype))
        return out


def _where_it_starts(library: type[Library], backend: Backend) -> Library | None:
    """A library for a backend's device; None where it is not there, or does not reach that."""
    try:
        return _started(library, backend)
    except LibraryUnavailableError:
        return None


class _CuPy(Library):
    name, package, product_name = "cupy", "cupy", "cupy.matmul"

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._device = self.module.cuda.Device(backend.device.index[1])
        self._device.use()

    def _may_reach(self, device: DeviceInfo) -> bool:
        return device.backend == "cuda"

    def array(self, host: HostArray) -> Any:
        return self.module.asarray(host)

    def to_host(self, array: Any) -> HostArray:
        values: HostArray = self.module.asnumpy(array)
        return values

    def product(self, a: Any, b: Any, out: Any = None) -> Any:
        return self.module.matmul(a, b, out=out)

    def wait(self, result: Any) -> None:
        self._device.synchronize()


class _PyOpenCL(Library):
    """PyOpenCL's arrays on a queue of their own; PyTorch's product stands beside them on the same GPU."""

    name, package = "pyopencl", "pyopencl"

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._arrays: Any = importlib.import_module("pyopencl.array")
        # As users make it: ours take times, which costs some microseconds between kernels.
        own: Any = backend
        self._queue = self.module.CommandQueue(own.context, own.queue.device)

    def _may_reach(self, device: DeviceInfo) -> bool:
        return device.backend == "opencl"

    @property
    def version(self) -> str:
        return str(getattr(self.module, "VERSION_TEXT", ""))

    @property
    def beside(self) -> Library | None:
        return _where_it_starts(_TorchBeside, self.backend)

    def array(self, host: HostArray) -> Any:
        return self._arrays.to_device(self._queue, host)

    def to_host(self, array: Any) -> HostArray:
        values: HostArray = array.get()
        return values

    def transposed(self, array: Any) -> Any:
        return array.transpose((*range(array.ndim - 2), array.ndim - 1, array.ndim - 2))

    def wait(self, result: Any) -> None:
        self._queue.finish()


class _JAX(Library):
    """JAX's arrays: they are never written, and a transposed one is a copy."""

    name, package, product_name, writes = "jax", "jax", "jax.numpy.matmul", False

    def __init__(self, backend: Backend) -> None:
        # JAX would take three quarters of a GPU's memory at its first use.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        super().__init__(backend)
        device = backend.device
        self._on_host = device.type == "cpu"
        try:
            found = self.module.devices("cpu" if self._on_host else "cuda")
            self._device = found[0 if self._on_host else device.index[1]]
        except IndexError as error:
            raise self._unreachable() from error
        if self._on_host:
            self.options = {"device": device}

    def _may_reach(self, device: DeviceInfo) -> bool:
        return device.type == "cpu" or device.backend == "cuda"

    def array(self, host: HostArray) -> Any:
        return self.module.device_put(host, self._device)

    def to_host(self, array: Any) -> HostArray:
        return np.asarray(array)

    def product(self, a: Any, b: Any, out: Any = None) -> Any:
        return self.module.numpy.matmul(a, b)

    def wait(self, result: Any) -> None:
        result.block_until_ready()

    @contextmanager
    def precise(self, precision: str = FULL) -> Iterator[None]:
        wanted = {"jax_default_matmul_precision": "highest", "jax_enable_x64": True}
        before = {name: getattr(self.module.config, name) for name in wanted}
        try:
            for name, value in wanted.items():
                self.module.config.update(name, value)
            yield
        finally:
            for name, value in before.items():
                self.module.config.update(name, value)


def _imported(package: str) -> Any:
    """A library's package.

    Raises:
        LibraryUnavailableError: it is not installed, or does not start.
    """
    try:
        return importlib.import_module(package)
    except (ImportError, OSError) as error:
        raise LibraryUnavailableError(
            f"{package} must be installed to measure calls of its arrays; got {error}; pip install {package}"
        ) from error


_LIBRARIES: dict[str, type[Library]] = {
    library.name: library for library in (_NumPy, _Own, _Torch, _CuPy, _PyOpenCL, _JAX)
}


def names() -> tuple[str, ...]:
    """The libraries, in the order in which they are measured; "device" is gemmport itself."""
    return tuple(_LIBRARIES)


def load(name: str, backend: Backend) -> Library:
    """A library by its name, for a backend's device.

    Raises:
        UnknownNameError: there is no such library.
        LibraryUnavailableError: it is not installed, or its arrays do not reach the device.
    """
    if name not in _LIBRARIES:
        raise UnknownNameError(f"arrays must be of {', '.join(_LIBRARIES)}; got {name!r}; name some of these")
    return _started(_LIBRARIES[name], backend)


def _started(library: type[Library], backend: Backend) -> Library:
    """A library for a backend's device.

    Raises:
        LibraryUnavailableError: it is not installed, its arrays do not reach the device, or it refuses to start there.
    """
    try:
        return library(backend)
    except RuntimeError as error:  # of the library's own runtime
        raise LibraryUnavailableError(
            f"{library.name} must start on {backend.device.label}; got {error}; see whether it works by itself"
        ) from error
