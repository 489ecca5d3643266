"""CUDA's graphs: when one is gone that a stream captures, and with it all that was made of it.

What a graph uses is kept until then. It holds a user object (cuUserObjectCreate), which passes to what is instantiated or
cloned from it. The driver destroys the object when the last of them is gone and has run: in a thread of its own, by a function
in C that sets a word. In Python it would wait for the interpreter, perhaps for a thread that waits for the driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from gemmport.backends import _cudadriver, _scripts

_NOT_SYNCHRONIZED = 1  # CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, which the driver demands
_MOVED = 1  # CU_GRAPH_USER_OBJECT_MOVE: the reference becomes the graph's


def until_gone(stream: int) -> Callable[[], bool]:
    """Has the graph that a stream captures tell when it is gone.

    Args:
        stream: the handle. Its context must be current.

    Returns:
        Tells whether the graph is gone, with all that was instantiated or cloned from it, and none of that runs any more. False
        for ever without `_launching`.

    Raises:
        LaunchError: the driver refuses.
    """
    if _scripts.launching is None:
        return _never
    graph = _captured_by(stream)
    word = ctypes.c_uint64()
    _hold(word)  # also when Python ends: the driver may write to it after that
    held = ctypes.c_void_p()
    _cudadriver.check(
        "cuUserObjectCreate", ctypes.byref(held), ctypes.c_void_p(ctypes.addressof(word)),
        ctypes.c_void_p(_scripts.launching.word_setter()), ctypes.c_uint(1), ctypes.c_uint(_NOT_SYNCHRONIZED),
    )  # fmt: skip
    try:
        _cudadriver.check("cuGraphRetainUserObject", graph, held, ctypes.c_uint(1), ctypes.c_uint(_MOVED))
    except BaseException:
        _cudadriver.driver().cuUserObjectRelease(held, ctypes.c_uint(1))
        raise

    owed = [word]

    def is_gone() -> bool:
        if not word.value:
            return False
        while owed:  # the driver writes no more
            _let_go(owed.pop())
        return True

    return is_gone


def _captured_by(stream: int) -> ctypes.c_void_p:
    """The graph that a stream captures."""
    status, graph = ctypes.c_int(), ctypes.c_void_p()
    _cudadriver.check(
        "cuStreamGetCaptureInfo_v2",
        ctypes.c_void_p(stream),
        ctypes.byref(status),
        None,
        ctypes.byref(graph),
        None,
        None,
    )
    return graph


def _hold(word: ctypes.c_uint64) -> None:
    """Keeps a word until `_let_go`, or for as long as the process lives."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(word))


def _let_go(word: ctypes.c_uint64) -> None:
    """Ends `_hold`."""
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(word))


def _never() -> bool:
    return False
