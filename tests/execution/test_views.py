"""How arrays lie, found in C: the same as NumPy, and as the library, tells of them."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from absences import COMPILED_CALLS, needs
from gemmport.core.problem import ALLOCATION_ALIGNMENT
from gemmport.execution import adapters

pytestmark = needs(COMPILED_CALLS)

TYPES = [np.float32, np.float64, np.complex64, np.complex128, np.float16, np.int8, np.uint16, np.int64, np.bool_]


def found(a: Any, b: Any, out: Any = None, c: Any = None) -> tuple[bytes, tuple[int, int, int, int]] | None:
    assert adapters.in_c is not None
    told: tuple[bytes, tuple[int, int, int, int]] | None = adapters.in_c.of_buffers(a, b, c, out)
    return told


def address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])


@st.composite
def views(draw: Callable[[Any], Any]) -> np.ndarray:
    """Views of an array of three dimensions or less, some of which no kernel reads as they lie."""
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    whole = np.zeros([2 * size + 1 for size in shape], draw(st.sampled_from(TYPES)))
    steps = [draw(st.sampled_from([slice(0, size), slice(1, 2 * size, 2), slice(size, 0, -1)])) for size in shape]
    x = whole[tuple(steps)]
    return x.T if draw(st.booleans()) else x


def is_read(x: np.ndarray) -> bool:
    """Whether a kernel may read it as it lies."""
    forwards = all(step >= 0 for size, step in zip(x.shape, x.strides, strict=True) if size > 1)
    return x.size > 0 and forwards and address(x) % x.itemsize == 0


@given(views(), views(), views())
def test_arrays_are_found_where_numpy_says_that_they_are(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    told = found(a, b, out)
    if told is None:
        assert not all(map(is_read, (a, b, out)))
    else:
        assert all(map(is_read, (a, b, out)))
        assert told[1] == (address(a), address(b), 0, address(out))


@given(views(), views())
def test_arrays_have_one_key_where_they_lie_alike(a: np.ndarray, b: np.ndarray) -> None:
    other = np.zeros(8)
    first, second = found(a, other), found(b, other)
    if first is not None and second is not None:
        alike = (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
        assert (first[0] == second[0]) == alike


def test_no_array_is_told_from_an_array() -> None:
    a = np.zeros((3, 3), np.float32)
    without, given_out = found(a, a), found(a, a, np.zeros_like(a))
    assert without is not None
    assert given_out is not None
    assert without[0] != given_out[0]
    assert without[1][2:] == (0, 0)
    adding, c = found(a, a, None, np.zeros_like(a)), found(a, a, np.zeros_like(a), np.zeros_like(a))
    assert adding is not None
    assert c is not None
    assert len({without[0], given_out[0], adding[0], c[0]}) == 4


@pytest.mark.parametrize("start", range(-4, 5))
def test_an_out_that_may_lie_where_an_operand_does_is_looked_at_more_closely(start: int) -> None:
    memory = np.zeros((16, 4), np.float32)
    operand, out, apart = memory[6:9], memory[6 + start : 9 + start], np.zeros((3, 4), np.float32)
    shared = np.may_share_memory(operand, out)
    assert (found(operand, apart, out) is None) == shared
    assert (found(apart, operand, out) is None) == shared
    assert (found(apart, apart, out, operand) is None) == shared
    assert shared == (abs(start) < 3)


def test_an_out_that_cannot_be_written_is_looked_at_more_closely() -> None:
    a, out = np.zeros((3, 3)), np.zeros((3, 3))
    assert found(a, a, out) is not None
    out.flags.writeable = False
    assert found(a, a, out) is None
    assert found(out, out, a) is not None


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((3, 3), ">f4"),
        np.zeros((3, 3), "S3"),
        np.zeros(9, [("x", "f4"), ("y", "f4")]),
        np.array([None, 1]),
        np.zeros((1,) * 9),
    ],
    ids=["other byte order", "bytes", "fields", "objects", "nine dimensions"],
)
def test_what_is_no_plain_array_of_numbers_has_no_key_of_one(x: np.ndarray) -> None:
    plain, told = np.zeros(x.shape, "f4"), found(x, x)
    assert told is None or told[0] != (found(plain, plain) or (b"",))[0]
    assert told is None or x.dtype.names is None


def test_nine_dimensions_and_steps_backwards_are_looked_at_more_closely() -> None:
    a = np.zeros((4, 4), np.float32)
    for other in (np.zeros((1,) * 9, np.float32), a[::-1], a[:, ::-1]):
        assert found(a, other) is None
        assert found(other, a) is None


def test_arrays_of_other_dimensions_have_other_keys_whatever_their_sizes_are() -> None:
    """98, a size here, is how int8 is told, too."""
    one, other = np.zeros((3, 98), np.int8), np.zeros(98, np.int8)
    first, second = found(one, other), found(one[:, 0], other.reshape(1, 98))
    assert first is not None
    assert second is not None
    assert first[0] != second[0]


def test_elements_that_are_not_aligned_to_their_size_are_looked_at_more_closely() -> None:
    memory = np.zeros(65, np.uint8)
    start = -address(memory) % 8
    aligned, shifted = (memory[start + by : start + by + 32].view(np.complex64) for by in (0, 4))
    assert found(aligned, aligned) is not None
    assert found(shifted, shifted) is None


# Tensors, through the table of functions of DLPack


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


TensorOf = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))
StreamOf = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class Exchange(ctypes.Structure):
    """DLPackExchangeAPI."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2), ("previous", ctypes.c_void_p), ("allocate", ctypes.c_void_p),
        ("from_object", ctypes.c_void_p), ("to_object", ctypes.c_void_p), ("tensor_of", TensorOf), ("stream_of", StreamOf),
    )  # fmt: skip


class Array:
    """A library's array on a GPU."""

    def __init__(self, shape: Sequence[int] = (3, 4), **told: Any) -> None:
        strides = told.pop("strides", [int(np.prod(shape[i + 1 :])) for i in range(len(shape))])
        sizes = ctypes.c_int64 * len(shape)
        self.kept = sizes(*shape), sizes(*strides)
        pointers = [ctypes.cast(x, ctypes.POINTER(ctypes.c_int64)) for x in self.kept]
        usual = {"data": 0x1000, "device": 2, "device_id": 0, "ndim": len(shape), "code": 2, "bits": 32, "lanes": 1}
        self.requires_grad = told.pop("requires_grad", False)
        self.negative, self.conjugate = told.pop("negative", False), told.pop("conjugate", False)
        self.fails = told.pop("fails", False)
        self.tensor = Tensor(**(usual | told), shape=pointers[0], strides=pointers[1])

    def is_neg(self) -> bool:
        return self.negative

    def is_conj(self) -> bool:
        return self.conjugate


@pytest.fixture
def told() -> Iterator[Callable[..., Any]]:
    """What is found of arrays of a library whose stream 0x77 is current on each device."""

    @TensorOf
    def tensor_of(array: Array, out: Any) -> int:
        out[0] = array.tensor
        return -1 if array.fails else 0

    @StreamOf
    def stream_of(device: int, device_id: int, out: Any) -> int:
        out[0] = 0x77 + device_id
        return 0

    table = Exchange(tensor_of=tensor_of, stream_of=stream_of)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = b"dlpack_exchange_api"
    capsule = new(ctypes.addressof(table), name, None)
    assert adapters.in_c is not None
    in_c = adapters.in_c
    yield lambda a, b=None, c=None, out=None: in_c.of_tensors(capsule, a, b or a, c, out)
    del table, name


def test_tensors_are_found_with_their_addresses_and_the_current_stream(told: Callable[..., Any]) -> None:
    _, addresses, stream = told(Array(), Array(data=0x2000, byte_offset=8), None, Array(data=0x3000))
    assert (addresses, stream) == ((0x1000, 0x2008, 0, 0x3000), 0x77)


@pytest.mark.parametrize(
    "other",
    [{"shape": (5, 4), "strides": (4, 1)},
     {"strides": (1, 3)}, {"strides": (8, 1)}, {"shape": (3, 4, 1)}, {"code": 0}, {"bits": 16}, {"lanes": 2},
     {"data": 0x1004}, {"data": 0x1000 + ALLOCATION_ALIGNMENT // 2}, {"byte_offset": 4}],
    ids=str,
)  # fmt: skip
def test_tensors_that_lie_otherwise_have_another_key(told: Callable[..., Any], other: dict[str, Any]) -> None:
    usual = told(Array(), Array())[0]
    assert told(Array(data=0x1000 + ALLOCATION_ALIGNMENT), Array())[0] == usual
    assert told(Array(**other), Array())[0] != usual
    assert told(Array(), Array(**other))[0] != usual
    assert told(Array(), Array(), Array(**other))[0] != told(Array(), Array(), Array())[0]
    assert told(Array(), Array(), Array())[0] != told(Array(), Array(), None, Array())[0] != usual


def test_arrays_of_another_device_have_another_key_and_stream(told: Callable[..., Any]) -> None:
    first, second = (told(Array(device_id=number), Array(device_id=number)) for number in (0, 1))
    assert first[0] != second[0]
    assert (first[2], second[2]) == (0x77, 0x78)


@pytest.mark.parametrize(
    "other",
    [{"requires_grad": True}, {"negative": True}, {"conjugate": True, "code": 5, "bits": 64}, {"device": 1}, {"fails": True},
     {"shape": (1,) * 9}, {"device_id": 1}],
    ids=str,
)  # fmt: skip
def test_what_is_more_than_memory_of_one_gpu_is_looked_at_more_closely(
    told: Callable[..., Any], other: dict[str, Any]
) -> None:
    assert told(Array(), Array()) is not None
    assert told(Array(), Array(**other)) is None
    assert told(Array(), Array(), None, Array(**other)) is None


# PyOpenCL's arrays

QUEUE, OTHER_QUEUE = 0x500, 0x501

CL_MEM_ASSOCIATED_MEMOBJECT, CL_EVENT_COMMAND_QUEUE = 0x1107, 0x11D0


class Buffer:
    """What has a cl_mem. One of an odd handle is a part of another."""

    def __init__(self, int_ptr: int) -> None:
        self.int_ptr = int_ptr


class ClArray:
    """An array of PyOpenCL's, whose events are of the queues that their handles are; 0: that is gone."""

    def __init__(self, **other: Any) -> None:
        self.queue: Any = SimpleNamespace(int_ptr=QUEUE)
        self.base_data: Any = Buffer(0x100)
        self.events: list[Any] = []
        self.dtype, self.shape, self.strides, self.offset = np.dtype(np.float32), (4, 5), (20, 4), 0
        vars(self).update(other)


@pytest.fixture
def asked() -> Iterator[Callable[..., Any]]:
    """What is found of arrays, of a runtime of the tests."""

    def answer(answers: Callable[[int], int | None], wanted: int) -> Any:
        def ask(handle: int, what: int, size: int, out: Any, _: Any) -> int:
            assert (what, size) == (wanted, ctypes.sizeof(ctypes.c_void_p))
            found = answers(handle)
            out[0] = found
            return -5 if found is None else 0

        of = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p]
        return ctypes.PYFUNCTYPE(ctypes.c_int32, *of)(ask)

    functions = [
        answer(lambda handle: handle - 1 if handle % 2 else 0, CL_MEM_ASSOCIATED_MEMOBJECT),
        answer(lambda handle: handle or None, CL_EVENT_COMMAND_QUEUE),
    ]
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    assert adapters.in_c is not None
    in_c = adapters.in_c
    yield lambda a, b=None, c=None, out=None: in_c.of_cl_arrays((*addresses, Buffer), a, b or a, c, out)
    del functions


def test_arrays_of_pyopencl_are_found_with_their_memory(asked: Callable[..., Any]) -> None:
    x, y, z = ClArray(), ClArray(base_data=Buffer(0x200)), ClArray(base_data=Buffer(0x300))
    _, memory = asked(x, y, None, z)
    assert memory == (x.base_data, y.base_data, 0, z.base_data)


@pytest.mark.parametrize(
    "other",
    [{"queue": SimpleNamespace(int_ptr=OTHER_QUEUE)}, {"dtype": np.dtype(np.int32)}, {"shape": (5, 4)}, {"strides": (24, 4)},
     {"offset": 4}, {"shape": (4, 5, 1), "strides": (20, 4, 4)}],
    ids=["another queue", "another type", "transposed", "rows apart", "further on", "three dimensions"],
)  # fmt: skip
def test_arrays_of_pyopencl_that_lie_otherwise_have_another_key(
    asked: Callable[..., Any], other: dict[str, Any]
) -> None:
    usual = asked(ClArray(), ClArray())[0]
    own = [SimpleNamespace(int_ptr=QUEUE)]
    assert asked(ClArray(base_data=Buffer(0x200), events=own), ClArray(dtype=np.dtype("f4")))[0] == usual
    assert asked(ClArray(**other), ClArray())[0] != usual
    assert asked(ClArray(), ClArray(**other))[0] != usual
    assert asked(ClArray(), ClArray(), ClArray(**other))[0] != asked(ClArray(), ClArray(), ClArray())[0]
    assert asked(ClArray(), ClArray(), ClArray())[0] != asked(ClArray(), ClArray(), None, ClArray())[0] != usual


@pytest.mark.parametrize(
    "other",
    [{"queue": None}, {"base_data": Buffer(0x101)}, {"base_data": SimpleNamespace(int_ptr=0x100)}, {"base_data": None},
     {"events": [SimpleNamespace(int_ptr=QUEUE), SimpleNamespace(int_ptr=OTHER_QUEUE)]},
     {"events": [SimpleNamespace(int_ptr=0)]}, {"events": [None]}, {"events": None}, {"shape": (4, 0)}, {"shape": [4, 5]},
     {"shape": (1,) * 9}, {"strides": (20, "4")}, {"offset": None}],
    ids=["no queue", "a part", "no buffer", "no memory", "an event of another queue", "an event whose queue is gone",
         "no event", "no events", "no elements", "a list", "nine dimensions", "no numbers", "no offset"],
)  # fmt: skip
def test_what_is_more_than_a_buffer_of_one_queue_is_looked_at_more_closely(
    asked: Callable[..., Any], other: dict[str, Any]
) -> None:
    assert asked(ClArray(), ClArray()) is not None
    assert asked(ClArray(**other), ClArray()) is None
    assert asked(ClArray(), ClArray(**other)) is None
    assert asked(ClArray(), ClArray(), None, ClArray(**other)) is None


def test_nothing_is_kept_of_arrays_of_pyopencl(asked: Callable[..., Any]) -> None:
    """Whether they are found or looked at more closely: as many refer to what they are made of as before."""
    event = SimpleNamespace(int_ptr=OTHER_QUEUE)
    usual, other = ClArray(), ClArray(events=[event])
    parts = [usual.queue, usual.base_data, usual.events, usual.dtype, usual.shape, other.queue, other.base_data, event]
    before = [sys.getrefcount(part) for part in parts]
    for _ in range(100):
        asked(usual, usual, usual, usual)
        asked(usual, other)
    assert [sys.getrefcount(part) for part in parts] == before
