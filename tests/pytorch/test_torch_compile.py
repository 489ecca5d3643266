"""torch.compile over gemmport.torch's products: whole graphs, with gradients, of any sizes."""

from __future__ import annotations

from typing import Any

import pytest

import gemmport as gp
from absences import CXX, TORCH, needs, skip_without

if TORCH.is_here():
    import torch

    import gemmport.torch as gt
    import tensors
    from tensors import equal, random, small

pytestmark = needs(TORCH)


def network(module: Any) -> Any:
    """Every function once."""

    def run(x: Any, weight: Any, bias: Any) -> Any:
        y = (
            module.linear(x, weight, bias).relu()
            if module is gt
            else torch.nn.functional.linear(x, weight, bias).relu()
        )
        z = module.bmm(y, y.mT) + module.baddbmm(bias.new_ones(()), y, y.mT, alpha=0.5)
        return module.matmul(z, y) + module.addmm(bias, y[0], module.mm(y[1].mT, y[1]))

    return run


def operands() -> list[Any]:
    shapes = [(2, 6, 5), (4, 5), (4,)]
    return [random(*shape, dtype="float64", seed=i).requires_grad_() for i, shape in enumerate(shapes)]


def check_compiled(backend: str, dynamic: bool | None = None) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(network(gt), backend=backend, fullgraph=True, dynamic=dynamic)
    given = operands()
    found, wanted = compiled(*given), network(torch)(*given)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), given), torch.autograd.grad(wanted.sum(), given))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_whole_graphs_by_aot_eager(dynamic: bool) -> None:
    check_compiled("aot_eager", dynamic)


@pytest.mark.processes
def test_whole_graphs_by_inductor() -> None:
    skip_without(CXX)
    check_compiled("inductor")


def test_one_graph_for_any_size() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(gt.matmul, backend="aot_eager", fullgraph=True, dynamic=True)
    equal(compiled(small(4, 5), small(5, 3)), small(4, 5) @ small(5, 3))
    with torch.compiler.set_stance("fail_on_recompile"):
        for m, k, n in ((7, 6, 8), (64, 3, 2)):
            equal(compiled(small(m, k), small(k, n)), small(m, k) @ small(k, n))


def test_graphs_hold_the_operator_itself() -> None:
    torch._dynamo.reset()
    targets: list[Any] = []

    def look(graph: Any, _: Any) -> Any:
        targets.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
        return graph

    torch.compile(gt.mm, backend=look, fullgraph=True)(small(4, 5), small(5, 3))
    assert targets == [torch.ops.gemmport.gemm.default]


def test_under_autocast() -> None:
    torch._dynamo.reset()

    def run(a: Any, b: Any) -> Any:
        with torch.autocast(tensors.place, torch.bfloat16):
            return gt.mm(a, b)

    equal(
        torch.compile(run, backend="aot_eager", fullgraph=True)(small(4, 5), small(5, 3)), run(small(4, 5), small(5, 3))
    )


def test_use_entered_in_a_compiled_function() -> None:
    """Which is not compiled then, and right."""
    torch._dynamo.reset()
    routings: list[Any] = []

    @torch.compile(backend="aot_eager")
    def run(a: Any) -> Any:
        with gt.use() as routing:
            routings.append(routing)
            return a @ a

    equal(run(small(4, 4)), small(4, 4) @ small(4, 4))
    assert routings[0].products == 1


def test_exported_programs_hold_the_operator() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any, w: Any) -> Any:
            return gt.linear(x, w).relu()

    given = (small(2, 4, 5), small(3, 5, seed=1))
    program = torch.export.export(Model(), given)
    assert torch.ops.gemmport.gemm.default in [node.target for node in program.graph.nodes]
    equal(program.module()(*given), Model()(*given))


@pytest.mark.parametrize("name", ["matmul", "gemm"])
def test_gemmports_own_functions_stop_the_compiler_and_are_right(name: str) -> None:
    """They are not operators: what stands before and behind them is compiled."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(lambda a, b: getattr(gp, name)(a + 1, b).relu(), backend="aot_eager")
    a, b = small(4, 5), small(5, 3, seed=1)
    for _ in range(2):
        equal(compiled(a, b), ((a + 1) @ b).relu())
    # What is before it, behind it, and its first lines: of what follows it took dozens of pieces apart before.
    assert torch._dynamo.utils.counters["frames"]["total"] < 12
