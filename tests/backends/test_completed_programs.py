"""Programs of OpenCL whose PTX is completed with instructions of sm_90a, and kernels that put addresses in tensor maps."""

from __future__ import annotations

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport.backends import _completion
from test_backend_contract import download, upload

opencl = pytest.importorskip("gemmport.backends.opencl")

PTX = b"""//
.version 8.4
.target sm_90, texmode_independent
.address_size 64
.entry f()
{
	// begin inline asm
	// sm_90a: wgmma.wait_group.sync.aligned 1;
	// end inline asm
	ret;
}
\0"""


def test_comments_become_instructions_of_the_target_that_has_them() -> None:
    made = _completion.completed(PTX, "")
    was, becomes = PTX.splitlines(), made.splitlines()
    assert {(a, b) for a, b in zip(was, becomes, strict=True) if a != b} == {
        (b".target sm_90, texmode_independent", b".target sm_90a, texmode_independent"),
        (b"\t// sm_90a: wgmma.wait_group.sync.aligned 1;", b"\twgmma.wait_group.sync.aligned 1;"),
    }


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        (b".target sm_90,", b".target sm_80,", "must be PTX for sm_90"),
        (PTX, b"\x7fELF", "must be PTX for sm_90"),
        (b"// sm_90a: wgmma.wait_group.sync.aligned 1;", b"", "keeps no comment"),
        (b"\tret;", b"\tret; // sm_90a: wgmma.fence.sync.aligned;", "still a comment"),
        (b"\tret;", b"\t// sm_90a:", "still a comment"),
    ],
    ids=["architecture", "machine-code", "none", "behind", "empty"],
)
def test_a_program_that_cannot_be_completed_is_refused(was: bytes, becomes: bytes, told: str) -> None:
    with pytest.raises(
        gp.CompileError, match=f"does not reach the instructions of sm_90a: .*{told}.*; choose another kernel"
    ):
        _completion.completed(PTX.replace(was, becomes), "")


SOURCE = """
typedef struct { ulong word[16]; } map_t;
__kernel void told(const map_t map, __global ulong *out)
{
    out[0] = map.word[0] == (ulong)out ? 2 : map.word[0] == 0;
    for (int i = 1; i < 16; ++i)
        out[i] += map.word[i];
}
"""


@pytest.fixture
def device(best_backend: gp.Backend) -> gp.Backend:
    """A device of OpenCL."""
    if best_backend.name != "opencl":
        pytest.skip(beyond(best_backend.device, "it is OpenCL whose hosts know no addresses"))
    return best_backend


@pytest.mark.best_of_each_backend
def test_a_program_that_cannot_be_completed_does_not_run(device: gp.Backend) -> None:
    """On a device of sm_90, for it leaves no instruction for later; on others whatever it leaves."""
    told = "keeps no comment" if device.device.architecture == "sm_90" else "must be PTX for sm_90"
    with pytest.raises(gp.CompileError, match=told):
        device.program(f"#define ARCHITECTURE_SPECIFIC 1\n{SOURCE}")


NOWHERE, KNOWN = 1, 2
"""How `told` judges the address in a map: it is not that of its memory, or it is."""


@pytest.mark.best_of_each_backend
def test_a_map_has_the_address_of_memory_that_was_given_before(device: gp.Backend) -> None:
    """Each of two in turns: none where it is given for the first time, and its own from then on. The other words of the map go
    as they are.
    """
    words = np.arange(100, 116, dtype=np.uint64)
    words[0] = 0
    memory = [upload(device, np.zeros(16, np.uint64)) for _ in range(2)]
    call = device.prepare(device.program(SOURCE), "told", (1, 1, 1), (1, 1, 1), [np.void(words.tobytes()), memory[0]])
    launch = device.launcher([(call, [(0, 0), (1, 0)])])
    device.launch(call)
    for times, told in enumerate((NOWHERE, KNOWN, KNOWN), 1):
        for each in memory:
            launch((device.argument(each),), None, False)
            launched = times + (each is memory[0])
            assert download(device, each, np.uint64, 16).tolist() == [told, *(launched * words[1:]).tolist()]


@pytest.mark.best_of_each_backend
def test_a_map_of_memory_that_stays_has_its_address_at_once(device: gp.Backend) -> None:
    """As that of scratch memory, which is set once."""
    memory = upload(device, np.zeros(16, np.uint64))
    call = device.prepare(device.program(SOURCE), "told", (1, 1, 1), (1, 1, 1), [np.void(bytes(128)), memory])
    device.set_memory(call, [(0, 0), (1, 0)], [device.argument(memory)])
    device.launch(call)
    assert download(device, memory, np.uint64, 16)[0] == KNOWN
