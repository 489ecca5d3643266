"""Arrays of other libraries: which library one is of, on which stream it works, and how a result becomes an array of its kind.

A library is recognized by the module of an array's type and taken from `sys.modules`: none is imported here. Their names for
things, as far as they are used here, stand in this module alone, but for JAX's computations (`gemmport.execution.jax_calls`);
how memory is read in place is each backend's matter.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gemmport import backends
from gemmport.backends.array import DeviceArray, dense_strides, is_array
from gemmport.backends.base import Backend
from gemmport.backends.objects import Event
from gemmport.core import dlpack
from gemmport.core.dtypes import is_named_by_ml_dtypes
from gemmport.core.errors import ArrayError, DtypeError
from gemmport.core.problem import ALLOCATION_ALIGNMENT
from gemmport.execution import jax_calls
from gemmport.execution.jax_calls import Computation, Work
from gemmport.execution.selection import backend_of
from gemmport.execution.xla import GPUArray

HostArray = npt.NDArray[Any]

F = TypeVar("F", bound=Callable[..., Any])

in_c: ModuleType | None
"""What finds in C how arrays lie; None where gemmport was installed without a compiler."""
try:
    from gemmport.execution import _views as in_c
except ImportError:
    in_c = None

_ALIGNED = ALLOCATION_ALIGNMENT - 1


Views: TypeAlias = tuple[Hashable, tuple[Any, ...], Any]
"""Of `Library.views`."""

Lent: TypeAlias = tuple[HostArray, HostArray, HostArray | None, HostArray | None]
"""Of `Library.views_on_host`."""


class Library(ABC):
    """One library's arrays."""

    name: ClassVar[str]
    """Of its Python package."""

    backend: ClassVar[str] = "cuda"
    """The backend that reaches its device arrays."""

    writable: ClassVar[bool] = True
    """Whether its arrays may be written."""

    move: ClassVar[str] = "the library's own means"
    """How an array is copied to another device."""

    marks: ClassVar[bool] = False
    """Whether its arrays keep the events of what writes them."""

    graphs_keep_memory: ClassVar[bool] = False
    """Whether memory that it allocates while a graph is captured belongs to the graph, also when the array is gone."""

    @property
    def module(self) -> Any:
        """The imported package."""
        return sys.modules[self.name]

    @abstractmethod
    def on_host(self, array: Any) -> bool:
        """Whether an array is in the host's memory.

        Raises:
            ArrayError: it is on a device that no backend reaches.
        """

    def queue(self, array: Any) -> Any:
        """The stream or queue on which the library works on an array now; None where it does not tell."""
        return None

    def view(self, array: Any) -> tuple[Hashable, Any] | None:
        """How an array lies on a device, which is all that a plan depends on of it, and its memory as kernels take it.

        In a few reads of attributes, for it is asked for each product. Arrays that lie alike are read by one plan.

        Returns:
            None where it must be looked at more closely: it is on no device, or not read as it lies.
        """
        return None

    def views(self, a: Any, b: Any, c: Any, out: Any) -> Views | None:
        """How the operands of a product lie, where, and on which queue the library works on them now.

        Args:
            a, b, c, out: arrays that are the library's own; c and out may be None.

        Returns:
            A key of how they lie, the memory of each (0 where there is none), and the queue as a backend takes it soonest; None
            where one has no `view`.
        """
        lying, memory = [], []
        for x in (a, b, c, out):
            found = (None, 0) if x is None else self.view(x)
            if found is None:
                return None
            lying.append(found[0])
            memory.append(found[1])
        return tuple(lying), tuple(memory), self.stream(a)

    def memory(self, array: Any) -> Any:
        """The memory of a new array of `empty`, as `view` tells it."""
        return cast("tuple[Hashable, Any]", self.view(array))[1]

    def stream(self, array: Any) -> Any:
        """`queue`, of an array that has a `view`, as a backend takes it soonest."""
        raise ArrayError(f"{self.name} does not tell its streams")

    def apart(self, memory: Any, span: tuple[int, int], other: Any, low: int, high: int) -> bool:
        """Whether two arrays have no elements in common.

        Args:
            memory, other: of their views. span: the first byte that one touches of it, and the one after the last; of the
                other `low` and `high`.
        """
        return bool(memory + span[1] <= other + low or other + high <= memory + span[0])

    def exposed(self, array: Any) -> Any:
        """The array in the form that a backend reads in place.

        Raises:
            ArrayError: it has none.
        """
        return array

    def empty(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C") -> Any | None:
        """An uninitialized array beside another, in memory that the library allocates in the order of `queue`.

        Args:
            order: "C" for row-major, "F" for column-major.

        Returns:
            None where the library does not let others write its arrays: the result is then made from ours, by `result`.
        """
        return None

    def written(self, array: Any, backend: Backend, queue: Any, event: Event | None = None) -> None:
        """Tells an array, in the library's own way, that it is written by what was enqueued on a backend's queue so far.

        Args:
            event: of the last that was enqueued on the array's own queue, where that is `queue`; None where it is not known.
        """

    def used(self, arrays: Sequence[Any]) -> None:
        """Tells arrays, in the library's own way, that `queue`, which waits for what another one does with them, uses them.

        Memory that came from a third queue would else be handed out again there, before the other one is done with it.
        """

    def views_on_host(self, a: Any, b: Any, c: Any, out: Any) -> Lent | None:
        """The operands of a product as arrays of NumPy over the same memory, in a few reads of attributes.

        Args:
            a, b, c, out: arrays that are the library's own; c and out may be None.

        Returns:
            None where one must be looked at more closely: it is not in the host's memory, or not read as it lies.
        """
        return None

    def result(self, array: DeviceArray) -> Any:
        """A result as an array of this library, over the same memory."""
        return array

    def computes(self, array: Any) -> bool:
        """Whether the library itself is to compute products of arrays like one of its own, with work of ours within."""
        return False

    def computation(
        self, work: Work, operands: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Computation | None:
        """What does so for operands like these; None where the library cannot.

        Args:
            operands: arrays that are the library's own. shape, dtype: of the result.

        Raises:
            What the library raises where it cannot now.
        """
        return None

    def to_host(self, array: Any) -> HostArray:
        """An array in the host's memory as one of NumPy, over the same memory where the library allows it."""
        return np.asarray(array)

    def from_host(self, array: HostArray) -> Any:
        """NumPy's array as one of this library in the host's memory."""
        return array


class _Torch(Library):
    """PyTorch, through DLPack, which has all its types; autograd stays outside."""

    name, move = "torch", "tensor.to(device)"
    graphs_keep_memory = True

    def __init__(self) -> None:
        self._kinds: dict[np.dtype[Any], Any] = {}

    @cached_property
    def _exchange(self) -> Any:
        """Functions in C that tell how tensors lie; None where PyTorch (before 2.11) or gemmport has none."""
        return getattr(self.module.Tensor, "__dlpack_c_exchange_api__", None) if in_c else None

    def views(self, a: Any, b: Any, c: Any, out: Any) -> Views | None:
        if in_c is None or self._exchange is None:
            return super().views(a, b, c, out)
        return cast("Views | None", in_c.of_tensors(self._exchange, a, b, c, out))

    def on_host(self, array: Any) -> bool:
        if array.device.type not in ("cpu", "cuda"):
            raise ArrayError(f"this torch tensor is on {array.device}, which no backend reaches: move it with .cpu()")
        return bool(array.device.type == "cpu")

    def queue(self, array: Any) -> Any:
        return self.module.cuda.current_stream(array.device)

    def view(self, array: Any) -> tuple[Hashable, int] | None:
        try:
            device = array.get_device()  # -1: the CPU
            if device < 0 or array.requires_grad or array.is_conj() or array.is_neg() or not array.is_cuda:
                return None
            address = array.data_ptr()
            # What stands here for the alignment tells more than that, in half the time of `alignment_of`.
            return (device, array.dtype, array.shape, array.stride(), address & _ALIGNED), address
        except RuntimeError:  # it has no elements that lie somewhere: it is sparse, or mapped over by torch.vmap
            return None

    def memory(self, array: Any) -> int:
        return int(array.data_ptr())

    def stream(self, array: Any) -> int:
        # torch.cuda.current_stream makes an object, which takes as long as a launch.
        return int(self.module._C._cuda_getCurrentRawStream(array.get_device()))

    def used(self, arrays: Sequence[Any]) -> None:
        # Never the other queue itself: when a tensor is freed, PyTorch records an event on each stream that it was told of,
        # and where such a stream is gone by then, the process ends (PyTorch's issue 66936). Its own streams stay.
        stream = self.queue(arrays[0])
        for array in arrays:
            array.record_stream(stream)

    def views_on_host(self, a: Any, b: Any, c: Any, out: Any) -> Lent | None:
        if not a.is_cpu:
            return None
        try:
            # What numpy() raises for is not in the host's memory, is more than its memory, or is of a type that NumPy lacks.
            return a.numpy(), b.numpy(), None if c is None else c.numpy(), None if out is None else out.numpy()
        except (RuntimeError, TypeError):
            return None

    def exposed(self, array: Any) -> Any:
        if array.requires_grad:
            raise ArrayError(
                "this torch tensor requires grad, and gemmport records no gradients: pass tensor.detach(), or use "
                "gemmport.torch, which records them"
            )
        if array.is_nested:
            raise ArrayError(
                "this torch tensor is nested, and its matrices differ in shape: multiply those of unbind(), or use "
                "to_padded_tensor(0.0)"
            )
        if array.is_quantized:
            raise ArrayError("this torch tensor is quantized: only plain numbers are read; use dequantize()")
        if array.layout != self.module.strided:
            raise ArrayError(
                f"this torch tensor has the layout {array.layout}: only strided ones are read; use to_dense()"
            )
        if array.is_conj() or array.is_neg():
            return array.resolve_conj().resolve_neg()
        return array.detach()

    def empty(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C") -> Any | None:
        kind = self._kinds.get(dtype)  # NumPy takes half a microsecond to name a type
        if kind is None:
            kind = self._kinds[dtype] = getattr(self.module, dtype.name, None)
        if kind is None:
            raise DtypeError(f"torch {self.module.__version__} has no dtype {dtype.name}, which the result has")
        if like.dtype is kind and order == "C":
            return like.new_empty(shape)  # in half the time
        if order == "F":
            return self.module.empty(shape[::-1], dtype=kind, device=like.device).permute(*reversed(range(len(shape))))
        return self.module.empty(shape, dtype=kind, device=like.device)

    def to_host(self, array: Any) -> HostArray:
        exposed = self.exposed(array)
        try:
            host: HostArray = exposed.numpy()  # tens of microseconds less than through DLPack
        except TypeError:  # a type that NumPy does not have itself
            return dlpack.as_numpy(exposed)
        return host

    def from_host(self, array: HostArray) -> Any:
        if not is_named_by_ml_dtypes(array.dtype.name):
            return self.module.from_numpy(array)
        bits = array.view(f"i{array.dtype.itemsize}")
        return self.module.from_numpy(bits).view(getattr(self.module, array.dtype.name))


class _CuPy(Library):
    """CuPy, through the array interface."""

    name = "cupy"

    def on_host(self, array: Any) -> bool:
        return False

    def queue(self, array: Any) -> Any:
        with array.device:
            return self.module.cuda.get_current_stream()

    def view(self, array: Any) -> tuple[Hashable, int] | None:
        strides, data = array.strides, array.data
        if strides and min(strides) < 0:
            return None
        address = data.ptr
        return (data.device_id, array.dtype, array.shape, strides, address & _ALIGNED), address

    def stream(self, array: Any) -> int:
        return int(self.queue(array).ptr)

    def empty(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C") -> Any | None:
        with like.device:
            return self.module.empty(shape, dtype, order=order)


class _JAX(Library):
    """JAX, whose arrays never change, and whose memory is in order on a stream that only its compiler's calls are told.

    The first of a kind is computed on that stream from outside, and handed to JAX when it is enqueued; the next by JAX.
    """

    name, move = "jax", "jax.device_put(array, device)"
    writable = False

    def on_host(self, array: Any) -> bool:
        if isinstance(array, self.module.core.Tracer):
            raise ArrayError(
                "this JAX array is traced, by jax.jit, grad or vmap, and has no numbers yet: use gemmport.jax.matmul, or "
                "multiply outside of the traced function"
            )
        self._check_held(array)
        platforms = {device.platform for device in array.devices()}
        if len(array.devices()) > 1 or not platforms <= {"cpu", "gpu", "cuda"}:
            raise ArrayError(
                f"this JAX array is on {array.devices()}: only arrays on the CPU or one NVIDIA GPU are read"
            )
        return platforms == {"cpu"}

    def queue(self, array: Any) -> int | None:
        (device,) = array.devices()
        return jax_calls.stream_of(self.module, device)

    def _check_held(self, array: Any) -> None:
        """Raises ArrayError where an array has no memory any more. To ask JAX for its platform would end the process."""
        if array.is_deleted():
            raise ArrayError(
                "a JAX array must have its numbers; got one that was deleted, or donated to a computation: make it anew, or "
                "copy it before"
            )

    def computes(self, array: Any) -> bool:
        self._check_held(array)
        return bool(array.platform() != "cpu")

    def view(self, array: Any) -> tuple[Hashable, Any] | None:
        if not self.computes(array):
            return None
        return (array.sharding, array.dtype, array.shape), array  # JAX finds its memory itself, wherever it begins

    def stream(self, array: Any) -> None:
        return None

    def exposed(self, array: Any) -> Any:
        return _ReadyOn(array, self.queue(array))

    def computation(
        self, work: Work, operands: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Computation | None:
        return jax_calls.computation(self.module, work, operands, shape, dtype)

    def views_on_host(self, a: Any, b: Any, c: Any, out: Any) -> Lent | None:
        if out is not None:
            return None
        for array in (a, b, c):
            if array is not None and (self.computes(array) or len(array.devices()) > 1):
                return None
        return np.asarray(a), np.asarray(b), None if c is None else np.asarray(c), None

    def result(self, array: DeviceArray) -> Any:
        return self.module.dlpack.from_dlpack(array)

    def from_host(self, array: HostArray) -> Any:
        return self.module.numpy.asarray(array)


@dataclass(frozen=True)
class _ReadyOn:
    """An array of JAX's as it is read: the stream on which it is used waits until it is there, for other streams of JAX's make
    arrays, too, such as copies from the host.

    Attributes:
        stream: None where whoever reads it says which.
    """

    array: Any
    stream: int | None

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream: int) -> object:
        return self.array.__dlpack__(stream=stream if self.stream is None else self.stream)


class _XLA(Library):
    """What XLA, JAX's compiler, hands to functions that it calls: it says on which stream."""

    name = "XLA"

    def on_host(self, array: GPUArray) -> bool:
        return False

    def queue(self, array: GPUArray) -> int:
        return array.stream

    stream = queue

    @cached_property
    def _device_at(self) -> Callable[[int], int]:
        """What tells the device by an address."""
        backends.load(self.backend)  # where PyCUDA is missing, it raises an error that says how to install it
        from gemmport.backends import _cudadriver  # noqa: PLC0415 - imports PyCUDA

        return _cudadriver.pointer_device

    def view(self, array: GPUArray) -> tuple[Hashable, int]:
        address = array.pointer
        return (array.dtype, array.shape, array.strides, address & _ALIGNED), address

    def views(self, a: GPUArray, b: GPUArray, c: GPUArray | None, out: GPUArray) -> Views | None:
        lying, *others = cast("Views", super().views(a, b, c, out))
        return (self._device_at(a.pointer), lying), *others  # XLA has all arrays of a call on one device


class _PyOpenCL(Library):
    """PyOpenCL's arrays, in whichever context they are."""

    name, move = "pyopencl", "pyopencl.array.to_device(queue, array.get())"
    backend = "opencl"
    marks = True

    @cached_property
    def _whole(self) -> Any:
        """What a buffer is asked for that of which it is a part."""
        return self.module.mem_info.ASSOCIATED_MEMOBJECT

    @cached_property
    def _asked(self) -> Any:
        """What its arrays are asked by in C; None where gemmport has nothing in C, or finds no functions of OpenCL."""
        from gemmport.backends import _opencldriver  # noqa: PLC0415 - imports PyOpenCL, whose array is here

        return None if in_c is None else _opencldriver.asked_of_arrays()

    def on_host(self, array: Any) -> bool:
        return False

    def queue(self, array: Any) -> Any:
        queue = array.queue
        if queue is None or queue.properties & self.module.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            return (
                None  # a product has its launches in order: it is enqueued elsewhere, and the two wait for each other
            )
        return queue

    def views(self, a: Any, b: Any, c: Any, out: Any) -> Views | None:
        if in_c is None or self._asked is None:
            return super().views(a, b, c, out)
        found = in_c.of_cl_arrays(self._asked, a, b, c, out)
        return None if found is None else (*found, a.queue)

    def view(self, array: Any) -> tuple[Hashable, Any] | None:
        queue, buffer, events = array.queue, array.base_data, array.events
        if queue is None or not array.size:
            return None
        try:
            # A part of another buffer may overlap what is another object. Events of other queues must be awaited.
            if buffer.get_info(self._whole) is not None:
                return None
            for event in events:
                if event.command_queue != queue:
                    return None
        except AttributeError:  # no buffer, but shared virtual memory
            return None
        except self.module.Error:  # the event's queue is gone
            return None
        return (queue.int_ptr, array.dtype, array.shape, array.strides, array.offset), buffer

    def stream(self, array: Any) -> Any:
        return array.queue

    def apart(self, memory: Any, span: tuple[int, int], other: Any, low: int, high: int) -> bool:
        return bool(memory != other) or span[1] <= low or high <= span[0]

    def empty(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C") -> Any | None:
        array = self.module.array.Array
        queue, context, allocator = like.queue, like.context, like.allocator
        if order == "C":
            # PyOpenCL checks shapes, which takes a dozen microseconds. Its own calls skip that by these arguments.
            made = {"strides": tuple(x * dtype.itemsize for x in dense_strides(shape)), "allocator": allocator}
            with suppress(TypeError):  # it no longer does
                return array(
                    None, shape, dtype, **made, _fast=True, _size=math.prod(shape), _context=context, _queue=queue
                )
        return array(context if queue is None else queue, shape, dtype, order=order, allocator=allocator)

    def written(self, array: Any, backend: Backend, queue: Any, event: Event | None = None) -> None:
        if array.queue is None:
            array.add_event(backend.mark(queue=queue).native)
            return
        # Its queue waits already, but whoever reads its events on another does not. The newest stands for those before, which
        # its queue has waited for: to add it to them would have PyOpenCL wait now and then.
        array.events[:] = [(event or backend.mark(queue=array.queue)).native]


class _Other(Library):
    """Any other library that speaks DLPack or the array interface; a result is our array, which speaks both."""

    name = "gemmport"

    def on_host(self, array: Any) -> bool:
        if hasattr(array, "__dlpack_device__"):
            return dlpack.device_of(array)[0] not in (dlpack.CUDA, dlpack.CUDA_MANAGED)
        return not hasattr(array, "__cuda_array_interface__")


def views_on_host(
    a: HostArray, b: HostArray, c: HostArray | None, out: HostArray | None
) -> tuple[Hashable, tuple[int, ...] | None]:
    """How NumPy's arrays lie, and their addresses; None for these where one must be looked at more closely.

    What is written is then apart from the operands, and elements are aligned to their size.
    """
    found = None if in_c is None else in_c.of_buffers(a, b, c, out)
    if found is not None:
        return found  # type: ignore[no-any-return]
    return tuple(x is None or (x.dtype, x.shape, x.strides) for x in (a, b, c, out)), None


def address_on_host(array: HostArray) -> int:
    """Of the first element of NumPy's array."""
    return int(array.ctypes.data) if in_c is None else in_c.address(array)


def is_traced() -> bool:
    """Whether torch.compile looks at the caller's code, instead of running it."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return compiler is not None and compiler.is_compiling()


def untraced(function: F) -> F:
    """A function that torch.compile calls as it is: it would take apart what is between it and the launch, and compile the
    parts.
    """
    return cast("F", sys.modules["torch"].compiler.disable(function))


_LIBRARIES = {library.name: library for library in (_Torch(), _CuPy(), _JAX(), _PyOpenCL())}
_ROOTS = {"jaxlib": "jax"}
_OTHER, _OF_XLA = _Other(), _XLA()


def library_of(value: object) -> Library | None:
    """The library whose array a value is; None for what NumPy makes an array of itself, and for our own device arrays."""
    if isinstance(value, np.ndarray | np.generic | DeviceArray):
        return None
    if isinstance(value, GPUArray):
        return _OF_XLA
    root = type(value).__module__.partition(".")[0]
    known = _LIBRARIES.get(_ROOTS.get(root, root))
    if known is not None:
        return known if is_array(value, "shape", "dtype") else None
    if hasattr(value, "__cuda_array_interface__") or (
        hasattr(value, "__dlpack_device__") and not hasattr(value, "__array__")
    ):
        return _OTHER
    return None


_OF_TYPES: dict[type, Library | None] = {GPUArray: _OF_XLA}


def library_of_type(kind: type) -> Library | None:
    """The library whose own arrays are of a type, and not of a subclass of it; None of our own, of NumPy's and of others."""
    try:
        return _OF_TYPES[kind]
    except KeyError:
        known = {
            ("torch", "Tensor"),
            ("torch.nn.parameter", "Parameter"),
            ("cupy", "ndarray"),
            ("jaxlib._jax", "ArrayImpl"),
            ("jaxlib.xla_extension", "ArrayImpl"),
            ("pyopencl.array", "Array"),
        }
        found = (kind.__module__, kind.__qualname__) in known
        root = kind.__module__.partition(".")[0]
        _OF_TYPES[kind] = _LIBRARIES[_ROOTS.get(root, root)] if found else None
        return _OF_TYPES[kind]


def check_on(backend: Backend, name: str, library: Library | None, array: Any) -> None:
    """Raises ArrayError where an argument is on another device than a backend's, or in another context there.

    Args:
        name: of the argument.
        library: that the array is of; None for ours.
    """
    if library is None:
        device, is_here = array.backend.device, array.backend is backend
    else:
        place = backends.load(library.backend).locate(array)
        if place is None:
            return
        device = place.device
        is_here = device.index == backend.device.index and device.backend == backend.device.backend
        is_here = is_here and place.context in (None, backend.context)
    if is_here:
        return
    there, here = (
        (each.label if device.label != backend.device.label else f"{each.label} [{each.selector}]")
        for each in (device, backend.device)
    )
    how = "x.backend.asarray(y.get())" if library is None else library.move
    if device.index == backend.device.index and device.backend == backend.device.backend:
        raise ArrayError(
            f"{name} must be in the context of the other arrays on {backend.device.label}; got one in another context: make it "
            f"in that one, or copy it there with {how}"
        )
    raise ArrayError(f"{name} must be on {here}, as the other arrays are; got one on {there}: copy it there with {how}")


def home_of(library: Library, array: Any) -> Backend:
    """The backend on whose device, and in whose context, a library's array is.

    Raises:
        ArrayError, BackendUnavailableError: see `gemmport.execution.selection.backend_of`.
    """
    return backend_of(library.backend, array)


def adopted(library: Library, array: Any, backend: Backend) -> DeviceArray:
    """The array over a library's device array, not copied.

    Raises:
        ArrayError: it is not on the backend's device and in its context.
    """
    found = None
    if backend.name == library.backend:
        found = backend.adopt(library.exposed(array), library.queue(array))
    if found is None:
        raise ArrayError(f"this {type(array).__name__} is not on {backend.device.label}, where another operand is")
    return found
