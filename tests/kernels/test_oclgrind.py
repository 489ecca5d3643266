"""Oclgrind, a simulator of OpenCL devices, finds no data race, no uninitialized read and no access out of bounds."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from absences import OCLGRIND, needs
from extensions import EXTENSIONS
from gemmport import kernels
from gemmport.matrix import simulator
from gemmport.runtime.child_processes import Conversation
from mutations import MUTATIONS, OF_PASSES, WRITES_FAR_AWAY, Mutation
from test_kernels import BASE

pytestmark = [needs(OCLGRIND), pytest.mark.simulated]

HERE = Path(__file__).parents[1]

Simulate = Callable[..., tuple[str, str]]
"""Takes a kernel, its parameters, pairs of ops and the name of a fault. Returns what went wrong, and all that was said."""

LIMIT = 300.0
"""Seconds that one kernel may take."""

# Everything Oclgrind complains of; where it meets what it cannot simulate, it says so and goes on with wrong data.
COMPLAINT = re.compile(
    r"race|uninitialized|invalid|unsupported|out of bounds|exceeds|divergence|error|fatal|unrecogni[sz]ed|oclgrind",
    re.IGNORECASE,
)

UNEVEN: dict[str, int | str] = {"TSM": 12, "TSN": 20, "TSK": 7, "WPTM": 4, "WPTN": 4, "ARRANGE": "strided", "PAD": 0}
"""84 elements of A and 140 of B, brought by 15 work-items: neither comes out even."""

UNEVEN_B: dict[str, int | str] = {"TS": 6, "WPT": 3, "TSDK": 5, "PAD": 0}
"""30 elements of either operand, brought by 12 work-items."""
BY_LOCAL_MEMORY: dict[str, int | str] = {**BASE["shuffle"], "USE_SHUFFLE": 0}
"""Oclgrind has no sub-groups: of `shuffle`, the form is simulated that passes A on through local memory. What lanes read of
each other's registers is checked on devices alone, by results."""
TWO_STAGES: dict[str, int | str] = {
    "TSM": 12, "TSN": 20, "TSK": 4, "WPTM": 4, "WPTN": 4, "WIDTH": 2, "STAGES": 2, "REG_PREFETCH": 1, "PAD": 2
}  # fmt: skip
"""24 runs of A and 40 of B, brought by 15 work-items; three tiles along k, of which the third lies where the first did."""

ONE_STAGE: dict[str, int | str] = {**TWO_STAGES, "STAGES": 1, "REG_PREFETCH": 0}
UNEVEN_RUNS: dict[str, int | str] = {
    "TSM": 12, "TSN": 20, "TSK": 4, "WPTM": 4, "WPTN": 4, "WIDTH": 2, "PAD": 0
}  # fmt: skip
"""24 runs of A and 40 of B, brought by 15 work-items: neither comes out even."""

PACKED: dict[str, int | str] = {"MR": 6, "NR": 1, "VECTOR": 16, "MC": 6, "NC": 16, "KC": 8}

GEMV: dict[str, int | str] = {"ITEMS": 16, "SIDE": 4, "RUN": 8, "RUNS": 2, "UNROLL": 2, "VECTORS": 3, "SPLIT": 2}

SIMT = BASE["simt"]
"""Two slices of a warp each; a tile of one matrix is shared."""

BATCHED: dict[str, int | str] = {"TSM": 12, "TSN": 20, "TSK": 6, "WPTM": 4, "WPTN": 4, "PRODUCTS": 2}
"""Two steps along k, the second not whole, of 15 work-items of each product; groups that are full, and one that is not."""

CASES = [
    ("naive", {"TS": 4}),
    ("tiled", {"TS": 4, "PAD": 0}),
    ("tiled", {"TS": 8, "PAD": 1}),
    *(
        ("register_tiled", {"TSM": 8, "TSN": 16, "TSK": 3, "WPTM": 4, "WPTN": 4, "ARRANGE": arrange, "PAD": pad})
        for arrange, pad in (("strided", 0), ("contiguous", 1), ("quads", 1))
    ),
    ("register_tiled", UNEVEN),
    ("transposed_b", {"TS": 4, "WPT": 2, "TSDK": 8, "PAD": 1}),
    ("transposed_b", UNEVEN_B),
    ("padded", {"TSM": 8, "TSN": 12, "TSK": 6, "WPTM": 2, "WPTN": 4, "PADDINGX": 8, "PADDINGY": 4}),
    *(("shuffle", {**BY_LOCAL_MEMORY, "PAD": pad}) for pad in (0, 1)),
    ("prefetch", TWO_STAGES),
    ("prefetch", ONE_STAGE),
    ("prefetch", {**TWO_STAGES, "WIDTH": 4, "PAD": 0}),
    ("direct", {"THREADSX": 3, "THREADSY": 2, "RX": 4, "RY": 2, "RK": 4, "WIDTH": 2}),
    ("direct", {"THREADSX": 2, "THREADSY": 3, "RX": 3, "RY": 1, "RK": 2, "WIDTH": 1}),
    ("gemv", GEMV),
    ("gemv", {"ITEMS": 1, "SIDE": 1, "RUN": 32, "RUNS": 2, "UNROLL": 1, "VECTORS": 2, "SPLIT": 1}),
    ("simt", SIMT),
    ("batched", BATCHED),
    ("packed", PACKED),
    ("packed", {"MR": 2, "NR": 2, "VECTOR": 32, "MC": 8, "NC": 32, "KC": 4096}),
    ("wpt", {"TS": 4, "WPT": 2, "PAD": 0}),
    ("wpt", {"TS": 9, "WPT": 3, "PAD": 1}),
    ("vectorized", {"TS": 4, "WIDTH": 1}),
    ("vectorized", {"TS": 8, "WIDTH": 4}),
    ("register_tiled_vectorized", {"TSM": 8, "TSN": 16, "TSK": 4, "WPTM": 4, "WPTN": 4, "WIDTH": 4, "PAD": 4}),
    ("register_tiled_vectorized", UNEVEN_RUNS),
    *((variant.name, {}) for variant in EXTENSIONS),
    *((own.name, {}) for own in kernels.passes()),
]


class Simulator:
    """A process under Oclgrind that runs one kernel after the other; where one ended it, the next gets another."""

    def __init__(self, folder: Path) -> None:
        self._log, self._said = folder / "log", folder / "said"
        self._environment = {**os.environ, "GEMMPORT_CACHE_DIR": str(folder / "cache"), "GEMMPORT_DEVICE": "oclgrind"}
        self._process: Conversation | None = None

    def __call__(self, kernel: str, params: dict[str, int | str], ops: str, fault: str = "") -> tuple[str, str]:
        if self._process is None:
            script = [sys.executable, str(HERE / "under_oclgrind.py"), str(self._said)]
            self._process = Conversation([*simulator.command(self._log), *script], self._environment)
        texts = self._log, self._said
        before = [len(_text(file)) for file in texts]
        self._process.tell({"kernel": kernel, "params": params, "ops": ops, "fault": fault})
        try:
            answer = self._process.hear(LIMIT)
        except TimeoutError:
            self.close()
            raise
        wrong = self._process.last_words() if answer is None else answer["wrong"]
        if answer is None:
            self.close()
        return wrong, "".join(_text(file)[since:] for file, since in zip(texts, before, strict=True))

    def close(self) -> None:
        if self._process is not None:
            self._process.__exit__()
            self._process = None


def _text(file: Path) -> str:
    return file.read_text("utf-8", errors="replace") if file.exists() else ""


@pytest.fixture(scope="module")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulate]:
    """Oclgrind, which takes longer to start than to simulate most kernels."""
    started = Simulator(tmp_path_factory.mktemp("oclgrind"))
    yield started
    started.close()


@pytest.mark.parametrize(
    ("kernel", "params"), CASES, ids=lambda v: "-".join(map(str, v.values())) if isinstance(v, dict) else v
)
def test_nothing_is_found_and_results_are_exact(simulate: Simulate, kernel: str, params: dict[str, int | str]) -> None:
    wrong, said = simulate(kernel, params, _ops(kernel, params))
    assert not wrong, wrong
    assert not COMPLAINT.search(said), said


def _ops(kernel: str, params: dict[str, int | str]) -> str:
    """Both pairs of ops for the first parameters of a kernel; the others have one of them."""
    own = [each for name, each in CASES if name == kernel]
    if kernel in ("aligned", "simt"):  # the one is for nothing else, of the other 15 s are enough
        return "NT"
    return "NN,TT" if params is own[0] else ("NN", "TT")[own.index(params) % 2]


def test_every_kernel_of_the_family_is_simulated() -> None:
    """`mma`, `wgmma` and `sub_group_mma` are instructions of GPUs that Oclgrind does not know: others simulate them."""
    family = {own.name for own in (*kernels.variants(), *kernels.passes(), *EXTENSIONS)}
    assert family - {"mma", "wgmma", "sub_group_mma"} == {kernel for kernel, _ in CASES}


PARAMETERS: dict[str, dict[str, int | str]] = {
    "naive": {"TS": 4},
    "tiled": {"TS": 4, "PAD": 0},
    "register_tiled": UNEVEN,
    "transposed_b": UNEVEN_B,
    "padded": {"TSM": 8, "TSN": 8, "TSK": 4, "WPTM": 2, "WPTN": 4, "PADDINGX": 8, "PADDINGY": 4},
    "shuffle": BY_LOCAL_MEMORY,
    "prefetch": TWO_STAGES,
    "packed": PACKED,
    "wpt": {"TS": 4, "WPT": 2, "PAD": 0},
    "vectorized": {"TS": 8, "WIDTH": 4},
    "register_tiled_vectorized": UNEVEN_RUNS,
    "gemv": GEMV,
    "simt": SIMT,
    "batched": BATCHED,
}

# Of faults that those do not show.
OTHER_PARAMETERS = {"does not wait with one stage": ONE_STAGE}

# What is said of a fault; of those of the table that leave results as they are, what is said of reads beyond an operand.
COMPLAINTS = {
    "waits for no complete tile": "race",
    "overwrites tiles in use": "race",
    "multiplies before B is complete": "race",
    "overwrites B in use": "race",
    "passes on part of A only": "uninitialized",
    "brings part of a tile only": "uninitialized",
    "brings more than the tile of A": "exceeds static array size",
    "computes tiles that have not arrived": "race",
    "overwrites the tiles that are computed": "race",
    "does not wait with one stage": "race",
    "brings more runs than there are": "invalid write",
    "brings every other run of B only": "uninitialized",
    "brings more runs than those of A": "exceeds static array size",
    "moves runs of A that are not aligned": "not aligned",
    "moves runs of D that are not aligned": "not aligned",
    "writes far away": "invalid write",
    "packs lines beyond the last": "invalid read",
    "adds up parts before they are there": "race",
    "adds up sums before they are complete": "race",
    "does not wait for other lanes": "race",
    "adds up elements beyond the last": "invalid read",
    "leaves the sum of any item": "race",
    "waits for no complete tile, prepared": "race",
    "overwrites tiles in use, prepared": "race",
    "brings more than the tiles": "exceeds static array size",
    "reads a tile before it is there": "race",
    "reads a tile before it is complete": "uninitialized",
    "reads runs behind the last element": "uninitialized",
    "adds up before sums are there": "race",
    "overwrites the sums of the vector before": "race",
    "does not wait for the next tile": "race",
    "overwrites the part before": "race",
    "multiplies tiles before they are there": "race",
    "overwrites tiles with results": "race",
}


@pytest.mark.parametrize(
    ("kernel", "fault"),
    [
        pytest.param(kernel, mutation, id=f"{kernel}-{mutation.name.replace(' ', '-')}")
        for mutation in (*MUTATIONS, WRITES_FAR_AWAY)
        if mutation.noticed_by in ("oclgrind", "groups") or mutation.name in OTHER_PARAMETERS
        for kernel in mutation.kernels
    ],
)
def test_planted_faults_are_found(simulate: Simulate, kernel: str, fault: Mutation) -> None:
    params = OTHER_PARAMETERS.get(fault.name, PARAMETERS[kernel])
    _, said = simulate(kernel, params, fault.ops, fault.name)
    assert COMPLAINTS.get(fault.name, "invalid read") in said.lower()
    assert COMPLAINT.search(said)


@pytest.mark.parametrize("fault", OF_PASSES, ids=lambda fault: fault.name.replace(" ", "-"))
def test_faults_planted_in_passes_are_found(simulate: Simulate, fault: Mutation) -> None:
    _, said = simulate(fault.kernels[0], {}, "NN", fault.name)
    assert COMPLAINTS.get(fault.name, "invalid write") in said.lower()
