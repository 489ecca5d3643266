"""What OpenCL's compilers say of a program that they make: nothing on standard error, and in the log at level DEBUG."""

from __future__ import annotations

import logging
import threading
import warnings
from pathlib import Path

import pytest

import gemmport as gp
from absences import beyond

LOUD = """#warning "as loud as can be"
__kernel void loud{number}(__global int *p) {{ int unused; p[0] = {number}; }}
"""


def loud(number: int) -> str:
    """A source, another for each number."""
    return LOUD.format(number=number)


@pytest.mark.every_runtime
def test_warnings_of_the_compiler_are_no_warnings_of_python_and_go_nowhere(
    backend: gp.Backend, capfd: pytest.CaptureFixture[str]
) -> None:
    if backend.name != "opencl":
        pytest.skip(beyond(backend.device, "it is not reached by OpenCL"))
    capfd.readouterr()
    raised: list[BaseException] = []

    def work(number: int) -> None:
        try:
            backend.program(loud(number))
        except BaseException as error:  # noqa: BLE001 - whatever it is
            raised.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert raised == []
    assert capfd.readouterr() == ("", "")


def test_they_are_in_the_log_of_who_wants_all(
    best_backend: gp.Backend, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it compiles: an earlier run's program may be in the cache."""
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    if best_backend.name != "opencl":
        pytest.skip(beyond(best_backend.device, "it is not reached by OpenCL"))
    if best_backend.device.platform == "nvidia":
        pytest.skip(beyond(best_backend.device, "its compiler leaves #warning out of the log"))
    with caplog.at_level(logging.DEBUG, logger="gemmport"):
        best_backend.program(loud(100))
    assert any("as loud as can be" in message for message in caplog.messages)


def test_a_refusal_has_what_the_compiler_said(best_backend: gp.Backend) -> None:
    if best_backend.name != "opencl":
        pytest.skip(beyond(best_backend.device, "it is not reached by OpenCL"))
    with pytest.raises(gp.CompileError, match="no_such_type"):
        best_backend.program("__kernel void f(no_such_type x) {}\n")
