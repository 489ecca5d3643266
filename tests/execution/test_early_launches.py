"""Launches that begin while the one before still runs (EARLY of `wgmma`, `mma`, `gemv`): a stream keeps its order all the same.

A chain is a matrix of small integers that one step after the other makes of the one before, in place of another one: by
products that begin early, and between them by all else that a stream holds. What is read too early, or written, is that of
another step.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import GPU, TORCH, beyond, skip_without
from gemmport.contracts.kernel import Parameters
from gemmport.contracts.nvidia import multiplies_matrices_by_warp_groups
from gemmport.execution import repeated
from mutations import HASTY, planted

TILES: Mapping[str, tuple[int, Parameters | None]] = {
    "few groups": (512, None),
    "one wave": (1024, None),
    "several tiles": (2304, None),
    "by request": (640, {"TSM": 64, "TSN": 128, "STAGES": 6, "RASTER": 2}),
}
"""Rows, columns and terms, with a tiling, or the chosen one: launches of which several run at one time, or whose groups compute
several tiles.
"""

CHOSEN = [name for name, (_, params) in TILES.items() if params is None]

BY_WARPS: Parameters = {"TSM": 32, "TSN": 32, "TSK": 128, "WM": 32, "WN": 16, "STAGES": 3, "EARLY": 1}
"""Of `mma`."""

SHARED: Parameters = {"TSM": 128, "TSN": 128, "STAGES": 4, "SHARE": 1, "EARLY": 0}
"""Of sums in parts, which a second launch adds up."""

REPETITIONS = 5

LENGTH = 40
"""Steps of a chain."""

DELAY = 200_000_000
"""Clocks that a stream waits first, so that all steps are enqueued before the first begins: a tenth of a second."""

LONGEST = 10 * DELAY
"""Clocks that it waits at most, where a host is slow."""


@dataclass(frozen=True)
class Step:
    """One matrix made of another. No step mixes rows.

    Attributes:
        enqueue: on the current stream, from a tensor to another.
        mirror: of whole numbers, by PyTorch's indices, while nothing else runs.
    """

    enqueue: Callable[[Any, Any], None]
    mirror: Callable[[Any], Any]


class Steps:
    """Makes steps of a size, at random."""

    def __init__(self, torch: Any, size: int, params: Parameters | None, seed: int, captured: bool) -> None:
        self.torch, self.size, self.chance = torch, size, np.random.default_rng(seed)
        self.early: dict[str, Any] = {"kernel": "wgmma", "params": {**params, "EARLY": 1}} if params else {}
        own = [
            self.product, self.product, self.product, self.product, self.unaligned, self.rewritten, self.few_rows, self.vector,
            self.library, self.float32, self.copied,
        ]  # fmt: skip
        if not captured:  # only calls that are kept can be
            own += [
                self.shared,
                self.added,
                self.rounded,
                self.scaled,
                self.by_warps,
                self.shared_by_warps,
                self.vector_in_parts,
            ]
        self.made = [own[self.chance.integers(len(own))]() for _ in range(LENGTH - len(own))]
        self.made += [each() for each in own]
        self.chance.shuffle(self.made)  # type: ignore[arg-type]  # a list is a sequence

    def start(self) -> Any:
        return self._whole(self.chance.integers(0, 8, (self.size, self.size)))

    def _whole(self, numbers: Any) -> Any:
        return self.torch.from_numpy(numbers).cuda()

    def _permuted(self, odd: int = 0) -> tuple[Any, Callable[[Any], Any]]:
        """A matrix by which a product has each column of the other at another place, with a sign."""
        order = self._whole(self.chance.permutation(self.size))
        signs = self._whole(self.chance.choice([-1, 1], self.size))
        whole = self.torch.zeros(self.size, self.size + odd, dtype=self.torch.float16, device="cuda")
        whole[order, self.torch.arange(self.size, device="cuda") + odd] = signs.half()
        return whole[:, odd:], lambda x: x[:, order] * signs

    def product(self) -> Step:
        y, mirror = self._permuted()
        return Step(lambda x, out: gp.matmul(x, y, out=out, **self.early), mirror)

    def unaligned(self) -> Step:
        """Laid out anew by a pass before."""
        y, mirror = self._permuted(odd=1)
        return Step(lambda x, out: gp.matmul(x, y, out=out, **self.early), mirror)

    def rewritten(self) -> Step:
        """The operand is written right before, and overwritten right behind."""
        kept, mirror = self._permuted()
        y = self.torch.empty_like(kept)

        def enqueue(x: Any, out: Any) -> None:
            y.copy_(kept)
            gp.matmul(x, y, out=out, **self.early)
            y.fill_(3)

        return Step(enqueue, mirror)

    def few_rows(self) -> Step:
        """Of the first rows and of the others, by two products."""
        y, mirror = self._permuted()

        def enqueue(x: Any, out: Any) -> None:
            gp.matmul(x[:64], y, out=out[:64])
            gp.matmul(x[64:], y, out=out[64:])

        return Step(enqueue, mirror)

    def shared(self) -> Step:
        """By two launches, and scratch memory, none of which begins early."""
        y, mirror = self._permuted()
        return Step(lambda x, out: gp.matmul(x, y, out=out, kernel="wgmma", params=SHARED), mirror)

    def by_warps(self, share: int = 0) -> Step:
        """By `mma`, whose groups, many to a multiprocessor, leave room for those of the next launch."""
        y, mirror = self._permuted()
        params = {**BY_WARPS, "SHARE": share}
        return Step(lambda x, out: gp.matmul(x, y, out=out, kernel="mma", params=params), mirror)

    def shared_by_warps(self) -> Step:
        """Likewise by two launches, and scratch memory, which all begin early."""
        return self.by_warps(share=2)

    def added(self) -> Step:
        y, mirror = self._permuted()

        def enqueue(x: Any, out: Any) -> None:
            gp.gemm(x, y, c=x, beta=-1.0, out=out, **self.early)
            out.remainder_(8)

        return Step(enqueue, lambda x: (mirror(x) - x) % 8)

    def scaled(self) -> Step:
        """Of no terms: nothing waits for a copy of tiles, and C is the matrix that the launch before makes."""
        early = self.early or {"kernel": "wgmma", "params": {"EARLY": 1, "SHARE": 0}}

        def enqueue(x: Any, out: Any) -> None:
            gp.gemm(x, x, c=x, alpha=0.0, beta=-1.0, out=out, **early)

        return Step(enqueue, lambda x: -x)

    def rounded(self) -> Step:
        """Of float32, which passes round, in memory that is free behind."""
        y, mirror = self._permuted()
        wide = y.float()
        return Step(lambda x, out: out.copy_(gp.matmul(x.float(), wide, precision="tf32", **self.early)), mirror)

    def vector_in_parts(self) -> Step:
        """As `vector`, by two launches of `gemv`, and scratch memory."""
        return self.vector(kernel="gemv", params={"SPLIT": 3, "EARLY": 1})

    def vector(self, **chosen: Any) -> Step:
        """A column, by a product with a vector, becomes another one."""
        column, to = map(int, self.chance.choice(self.size, 2, replace=False))
        unit = self.torch.zeros(self.size, dtype=self.torch.float16, device="cuda")
        unit[column] = 1

        def enqueue(x: Any, out: Any) -> None:
            product = gp.matmul(x, unit, **chosen)
            out.copy_(x)
            out[:, to] = product

        def mirror(x: Any) -> Any:
            moved = x.clone()
            moved[:, to] = x[:, column]
            return moved

        return Step(enqueue, mirror)

    def library(self) -> Step:
        y, mirror = self._permuted()
        return Step(lambda x, out: self.torch.matmul(x, y, out=out), mirror)

    def float32(self) -> Step:
        y, mirror = self._permuted()
        wide = y.float()
        return Step(lambda x, out: out.copy_(gp.matmul(x.float(), wide)), mirror)

    def copied(self) -> Step:
        return Step(lambda x, out: out.copy_(x).neg_(), lambda x: -x)


class Chain:
    """Steps, with the matrix that they begin with and the two between which they go. They end where they begin."""

    def __init__(self, torch: Any, tiles: str, seed: int, *, captured: bool = False) -> None:
        size, params = TILES[tiles]
        own = Steps(torch, size, params, seed, captured)
        self.torch, self.steps, self.begin = torch, own.made, own.start()
        self.places = [torch.zeros(size, size, dtype=torch.float16, device="cuda") for _ in range(2)]
        self.wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        self.first = self.begin.half()
        torch.cuda.synchronize()

    def enqueue(self, number: int) -> None:
        self.steps[number].enqueue(self.places[number % 2], self.places[1 - number % 2])

    def after(self, turns: int) -> Any:
        """What stands there after so many turns."""
        x = self.begin
        for _ in range(turns):
            for step in self.steps:
                x = step.mirror(x)
        assert x.abs().max() <= 2048  # so far halves have all integers
        expected = x.half()
        self.torch.cuda.synchronize()
        return expected

    def restart(self, number: int) -> None:
        """Another matrix each time: that which it begins with, its rows moved."""
        self.places[0].copy_(self.first.roll(number, 0))

    def judge(self, expected: Any, number: int) -> None:
        self.wrong += (self.places[0] != expected.roll(number, 0)).sum()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch, uncollected: None) -> Any:
    """PyTorch, where there is a GPU on which launches begin early; and no call is kept."""
    skip_without(GPU, TORCH)
    backend, module = gp.get_backend("cuda"), importlib.import_module("torch")
    if not multiplies_matrices_by_warp_groups(backend.device):
        pytest.skip(beyond(backend.device, "it has no wgmma"))
    if not module.cuda.is_available():
        pytest.skip(beyond("this PyTorch", "it reaches no GPU"))
    monkeypatch.setattr(backend, "prepared", {})
    monkeypatch.setattr(repeated, "_known_of_libraries", {})
    return module


def wrong_in_a_stream(torch: Any, tiles: str) -> int:
    """Elements that are wrong of chains that a stream computes one after the other, of which one at least was enqueued before
    it began.
    """
    chain, full, delay = Chain(torch, tiles, seed=1), 0, DELAY
    expected = chain.after(1)
    with torch.cuda.stream(torch.cuda.Stream()):
        for number in range(1 + REPETITIONS):  # in the first, plans are made, and programs compiled
            torch.cuda._sleep(delay)
            began = torch.cuda.Event()
            began.record()
            start = time.perf_counter()
            chain.restart(number)
            for step in range(LENGTH):
                chain.enqueue(step)
            chain.judge(expected, number)
            full += not began.query()
            # Twice what the host took this time: for tiles by request each call makes its plan.
            delay = min(max(DELAY, round(20 * DELAY * (time.perf_counter() - start))), LONGEST)
            torch.cuda.synchronize()
    assert full, "the host took longer than the stream waited"
    return int(chain.wrong)


def hop(torch: Any, chains: list[Chain], streams: list[Any]) -> None:
    """Each chain's steps go from one of two streams to the other, behind an event; meanwhile the other chain's do."""
    main, done = torch.cuda.current_stream(), [torch.cuda.Event() for _ in chains]
    for event in done:
        event.record()
    for step in range(LENGTH):
        for own, chain in enumerate(chains):
            with torch.cuda.stream(streams[(step + own) % 2]):
                done[own].wait()
                chain.enqueue(step)
                done[own] = torch.cuda.Event()
                done[own].record()
    for event in done:
        main.wait_event(event)


TURNS = 3
"""That a graph is replayed one after the other, with nothing between."""


@pytest.mark.parametrize("tiles", TILES)
def test_a_stream_keeps_its_order(torch: Any, tiles: str) -> None:
    assert wrong_in_a_stream(torch, tiles) == 0


@pytest.mark.away_from_jax
@pytest.mark.parametrize("tiles", CHOSEN)
def test_a_graph_keeps_its_order(torch: Any, tiles: str) -> None:
    """Whose launches follow each other at once."""
    chain = Chain(torch, tiles, 3, captured=True)
    expected, graph, stream = chain.after(TURNS), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for step in 3 * [*range(LENGTH)]:  # plans are made, programs compiled, and calls kept
            chain.enqueue(step)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for step in range(LENGTH):
            chain.enqueue(step)
    with torch.cuda.stream(stream):
        for number in range(10 * REPETITIONS):
            chain.restart(number)
            for _ in range(TURNS):
                graph.replay()
            chain.judge(expected, number)
    torch.cuda.synchronize()
    assert int(chain.wrong) == 0


@pytest.mark.away_from_jax
@pytest.mark.parametrize("tiles", CHOSEN)
@pytest.mark.parametrize("captured", [False, True])
def test_events_keep_the_order_of_two_streams(torch: Any, tiles: str, *, captured: bool) -> None:
    chains = [Chain(torch, tiles, seed, captured=captured) for seed in (4, 5)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    expected, graph, main = [chain.after(1) for chain in chains], torch.cuda.CUDAGraph(), torch.cuda.Stream()
    for _ in range(3):
        hop(torch, chains, streams)
    torch.cuda.synchronize()
    if captured:
        with torch.cuda.graph(graph, stream=main):
            hop(torch, chains, streams)
    with torch.cuda.stream(main):
        for number in range(REPETITIONS):
            torch.cuda._sleep(DELAY)
            for chain in chains:
                chain.restart(number)
            if captured:
                graph.replay()
            else:
                hop(torch, chains, streams)
            for chain, each in zip(chains, expected, strict=True):
                chain.judge(each, number)
        torch.cuda.synchronize()
    assert [int(chain.wrong) for chain in chains] == [0, 0]


def test_what_is_chosen_begins_early(torch: Any) -> None:
    for tiles in CHOSEN:
        size, _ = TILES[tiles]
        plan = gp.plan(gp.GemmProblem.create(size, size, size, dtype="float16"), gp.get_backend("cuda").device)
        assert plan.variant == "wgmma"
        assert plan.values["EARLY"] == 1


BRIEF = ("passes", "stores")
"""Waits whose lack an H100 did not show in two runs, because too little time is left between two launches: the simulator of
tests/host shows it.
"""


@pytest.mark.planted_fault
@pytest.mark.parametrize("name", [name for name in HASTY if name not in BRIEF])
def test_a_launch_that_does_not_wait_shows(torch: Any, name: str) -> None:
    with planted(HASTY[name], HASTY[name].kernels[0]):
        assert wrong_in_a_stream(torch, "few groups") > 0
