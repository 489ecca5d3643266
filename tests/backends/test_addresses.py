"""Where memory lies on a device of OpenCL: asked of a kernel, once, and only of memory that was given before."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

import gemmport as gp
from absences import beyond
from gemmport.core.errors import CompileError

cl = pytest.importorskip("pyopencl")

_addresses = pytest.importorskip("gemmport.backends._addresses")


@pytest.fixture
def device(backend: gp.Backend) -> Any:
    if backend.name != "opencl":
        pytest.skip(beyond(backend.device, "it is OpenCL that does not tell its host addresses"))
    return backend


@pytest.fixture
def addresses(device: Any) -> Any:
    program = device.program(_addresses.SOURCE).native
    return _addresses.Addresses(device.context, device._device, program)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The memory that a kernel was asked for."""
    found: list[Any] = []
    ask = _addresses._Asker.address

    def address(self: Any, memory: Any) -> int:
        found.append(memory)
        return ask(self, memory)

    monkeypatch.setattr(_addresses._Asker, "address", address)
    return found


def test_memory_is_asked_for_when_it_is_given_for_the_second_time(
    device: Any, addresses: Any, asked: list[Any]
) -> None:
    one, two = (cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 4096) for _ in range(2))
    assert [addresses.guess(one), addresses.guess(two), asked] == [0, 0, []]
    found = [addresses.guess(one), addresses.guess(two)]
    assert asked == [one, two]
    assert found == [addresses.guess(one), addresses.guess(two)]
    assert abs(found[0] - found[1]) >= 4096
    assert asked == [one, two]


def test_an_address_that_is_wanted_at_once_is_asked_for(device: Any, addresses: Any, asked: list[Any]) -> None:
    memory = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 4096)
    assert addresses.address(memory) == addresses.guess(memory) != 0
    assert asked == [memory]
    assert addresses.address(4096) == addresses.guess(4096) == 4096  # of what host and device share


def test_all_are_forgotten_now_and_then(
    device: Any, addresses: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handles of released memory are used again."""
    memory = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 4096)
    address = addresses.address(memory)
    monkeypatch.setattr(addresses, "_left", 2)
    assert [addresses.guess(memory) for _ in range(5)] == [address, address, 0, address, address]
    assert asked == [memory, memory]


def test_who_comes_while_another_asks_gets_none(device: Any, addresses: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler of signals, say: it would wait for what it interrupts."""
    memory, other = (cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 4096) for _ in range(2))
    ask, nested = _addresses._Asker.address, []

    def interrupted(self: Any, memory: Any) -> int:
        nested.append(addresses.address(other))
        return ask(self, memory)

    monkeypatch.setattr(_addresses._Asker, "address", interrupted)
    found = addresses.address(memory)
    assert nested == [0]
    monkeypatch.undo()
    assert 0 not in (found, addresses.address(other))


def test_a_device_that_cannot_be_asked_has_no_addresses(
    device: Any, addresses: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory, made = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 4096), []

    def no_queue(*arguments: Any) -> Any:
        made.append(arguments)
        raise cl.RuntimeError("clCreateCommandQueue failed: OUT_OF_RESOURCES")

    with monkeypatch.context() as patch, caplog.at_level(logging.DEBUG, _addresses.__name__):
        patch.setattr(_addresses, "cl", SimpleNamespace(**{**vars(cl), "CommandQueue": no_queue}))
        assert [addresses.address(memory), addresses.address(memory)] == [0, 0]
    assert len(made) == 1
    assert "OUT_OF_RESOURCES" in caplog.text
    assert _addresses.Addresses(device.context, device._device, None).address(memory) == 0


def test_a_compiler_that_refuses_the_kernel_costs_the_addresses_alone(
    device: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(source: str) -> Any:
        raise CompileError("no kernel today")

    monkeypatch.setattr(device, "program", refuse)
    with caplog.at_level(logging.WARNING):
        found = type(device)._guesses.func(device)
    assert found.address(cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 64)) == 0
    assert "no kernel today" in caplog.text
