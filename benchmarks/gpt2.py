"""A model of GPT-2's size under `gemmport.torch.use()`, beside PyTorch's own products: times and errors.

python benchmarks/gpt2.py --output gpt2.json                              # 124 million random weights, on the GPU
python benchmarks/gpt2.py --device cpu --layers 2 --width 48 --heads 4 --words 97 --length 16 --repeat 3

Ways: `eager`; `compiled` by torch.compile; `graph`, a CUDA graph that is replayed; `step`, eager forward and backward. The
two sides of a way are measured in turns. `seconds` are until the device has done; `host` until the calls have returned.
`error` is the Frobenius norm of the difference to the same pass in float64, over that of the pass in float64: of logits, and
of all gradients in `step`. Gemmport's may be four times torch's, which rounds by the same rule in another order, and 16 units
of float32 at least. Beyond that the exit status is 1. `products` are those that gemmport computed.
"""

from __future__ import annotations

import copy
import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click
import torch
from torch import nn

import gemmport as gp
import gemmport.torch as gt
from gemmport.bench.environment import host_environment

SCHEMA = 1

SIDES: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {"torch": nullcontext, "gemmport": gt.use}


class Layer(nn.Module):
    """Attention, spelled out, and two linear maps."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.split, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, length, width)."""
        batch, length, width = x.shape
        each = width // self.heads
        query, key, value = self.split(self.first(x)).view(batch, length, 3, self.heads, each).permute(2, 0, 3, 1, 4)
        scores = query @ key.mT * each**-0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        seen = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
        x = x + self.joined(seen.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2 (Radford et al., 2019), without dropout, with random weights: numbers of words (batch, length) to logits (batch,
    length, words). The last map has the words' own weights.
    """

    def __init__(self, words: int, width: int, heads: int, layers: int, places: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.normal_(
                    weight, std=0.02
                )  # they are zero in the paper, where a bias that is lost would not be seen

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        return self.head(self.last(self.layers(x)))


def wait(device: str) -> None:
    """Until the device has done all."""
    if device == "cuda":
        torch.cuda.synchronize()


def passes(model: GPT, text: torch.Tensor, compiler: str) -> dict[str, Callable[[], torch.Tensor]]:
    """Way → what makes one pass and gives its numbers."""
    compiled = torch.compile(model, backend=compiler)

    def step() -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(text).flatten(0, 1), text.flatten())
        return torch.cat([x.flatten() for x in torch.autograd.grad(loss, list(model.parameters()))])

    without = torch.no_grad()
    return {"eager": without(lambda: model(text)), "compiled": without(lambda: compiled(text)), "step": step}


def graph(model: GPT, text: torch.Tensor, side: str) -> Callable[[], torch.Tensor]:
    """What replays a CUDA graph of one pass, captured with the products of a side."""
    with torch.no_grad(), SIDES[side]():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            model(text)  # plans and programs are ready before the capture
        torch.cuda.current_stream().wait_stream(stream)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            result = model(text)

    def replay() -> torch.Tensor:
        captured.replay()
        return result

    return replay


def timed(run: Callable[[], Any], side: str, device: str, seconds: float) -> tuple[float, float]:
    """Of one pass, the median of several within so many seconds: until it is done, and until it has returned."""
    whole, host = [], []
    with SIDES[side]():
        until = time.perf_counter() + seconds
        while len(whole) < 3 or (time.perf_counter() < until and len(whole) < 50):
            wait(device)
            start = time.perf_counter()
            run()
            host.append(time.perf_counter() - start)
            wait(device)
            whole.append(time.perf_counter() - start)
    return statistics.median(whole), statistics.median(host)


def quartiles(samples: list[float]) -> dict[str, Any]:
    """As `gemmport run` tells times."""
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    return {
        "median": middle, "first_quartile": low, "third_quartile": high, "minimum": min(samples), "samples": len(samples),
    }  # fmt: skip


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    """‖found − exact‖ / ‖exact‖ in the Frobenius norm, a part at a time, for float64 takes room."""
    off = whole = 0.0
    for x, y in zip(found.flatten().split(2**24), exact.flatten().split(2**24), strict=True):
        off += float((x.double() - y).square().sum())
        whole += float(y.square().sum())
    return (off / whole) ** 0.5


def results(model: GPT, text: torch.Tensor, *, compiler: str, repeat: int, seconds: float) -> Iterator[dict[str, Any]]:
    """A result for each way."""
    device = text.device.type
    wide = passes(copy.deepcopy(model).double(), text, compiler)
    exact = {name: wide[name]() for name in ("eager", "step")}
    del wide
    ways: dict[str, Callable[[str], Callable[[], torch.Tensor]]] = {
        name: lambda _, run=run: run for name, run in passes(model, text, compiler).items()
    }
    if device == "cuda":
        ways["graph"] = lambda side: graph(model, text, side)
    for name, way in ways.items():
        runs, error, products = {}, {}, 0
        for side, context in SIDES.items():
            runs[side] = way(side)
            with context() as routing:
                error[side] = distance(runs[side](), exact["step" if name == "step" else "eager"])
            products = routing.products if routing is not None else products
        times: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
        for _ in range(repeat):
            for side, run in runs.items():
                times[side].append(timed(run, side, device, seconds))
        bound = max(4 * error["torch"], 16 * torch.finfo(torch.float32).eps)
        yield {
            "way": name,
            "products": products,
            "error": error,
            "bound": bound,
            "verified": error["gemmport"] <= bound,
            "seconds": {side: quartiles([whole for whole, _ in found]) for side, found in times.items()},
            "host": {side: quartiles([host for _, host in found]) for side, found in times.items()},
            "ratio": statistics.median(x[0] / y[0] for x, y in zip(times["torch"], times["gemmport"], strict=True)),
        }


@click.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@click.option("--layers", type=click.IntRange(1), default=12, show_default=True)
@click.option("--width", type=click.IntRange(1), default=768, show_default=True)
@click.option("--heads", type=click.IntRange(1), default=12, show_default=True)
@click.option("--words", type=click.IntRange(2), default=50257, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=4, show_default=True, help="Texts at a time.")
@click.option("--length", type=click.IntRange(2), default=256, show_default=True, help="Words of a text.")
@click.option("--compiler", default="inductor", show_default=True, help="torch.compile's backend.")
@click.option("--repeat", type=click.IntRange(1), default=9, show_default=True, help="Turns of the two sides.")
@click.option("--seconds", type=click.FloatRange(0), default=0.3, show_default=True, help="Of a side's turn, at most.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file.")
def main(
    device: str,
    layers: int,
    width: int,
    heads: int,
    words: int,
    batch: int,
    length: int,
    compiler: str,
    repeat: int,
    seconds: float,
    output: Path | None,
) -> None:
    """Time a model with gemmport's products beside torch's."""
    torch.manual_seed(0)
    model = GPT(words, width, heads, layers, length).to(device)
    text = torch.randint(0, words, (batch, length), generator=torch.Generator().manual_seed(1)).to(device)
    found = []
    for result in results(model, text, compiler=compiler, repeat=repeat, seconds=seconds):
        found.append(result)
        ours, theirs = (result["seconds"][side]["median"] * 1e3 for side in ("gemmport", "torch"))
        hosts = tuple(result["host"][side]["median"] * 1e3 for side in ("gemmport", "torch"))
        errors, verdict = result["error"], "PASS" if result["verified"] else "FAIL"
        click.echo(
            f"{result['way']:<9} gemmport {ours:8.3f} ms, torch {theirs:8.3f} ms, ratio {result['ratio']:.3f}; "
            f"host {hosts[0]:.3f} and {hosts[1]:.3f}; {result['products']} products; "
            f"error {errors['gemmport']:.2e} and {errors['torch']:.2e}: {verdict}"
        )
    where = gp.get_backend("cuda") if device == "cuda" else gp.get_backend()
    document = {
        "schema": SCHEMA,
        "command": f"python benchmarks/gpt2.py {shlex.join(given())}".strip(),
        "environment": {**host_environment(), "devices": {where.device.label: where.environment()}},
        "versions": {"torch": torch.__version__},
        "model": {
            "layers": layers, "width": width, "heads": heads, "words": words, "batch": batch, "length": length,
            "weights": sum(x.numel() for x in model.parameters()), "dtype": "float32", "compiler": compiler,
        },
        "results": found,
    }  # fmt: skip
    if output is not None:
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if not all(result["verified"] for result in found):
        sys.exit(1)


def given() -> list[str]:
    """The arguments of this command, but for where it writes."""
    words = sys.argv[1:]
    if "--output" in words:
        place = words.index("--output")
        del words[place : place + 2]
    return [word for word in words if not word.startswith("--output=")]


if __name__ == "__main__":
    main()
