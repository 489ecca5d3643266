"""`gemmport.torch.use`: which of torch's products it computes, and that everything else stays torch's."""

# ruff: noqa: PLW0108 - where PyTorch is missing, its functions must not be named until a test is called

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import gemmport as gp
from absences import GPU, TORCH, beyond, needs, skip_without

if TORCH.is_here():
    import torch
    import torch.nn.functional as F  # noqa: N812 - its users' name for it

    import gemmport.torch as gt
    import tensors
    from gemmport.torch import mode
    from small_gpt import PRODUCTS, small_gpt, text
    from tensors import equal, placed, random, small

pytestmark = needs(TORCH)

ROUTED: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "@": (lambda a, b: a @ b, [(4, 5), (5, 3)]),
    "matmul-vector": (lambda a, b: torch.matmul(a, b), [(4, 5), (5,)]),
    "matmul-vectors": (lambda a, b: torch.matmul(a, b), [(5,), (5,)]),
    "matmul-batch": (lambda a, b: torch.matmul(a, b), [(2, 3, 4, 5), (3, 5, 3)]),
    "mm-out": (lambda a, b: torch.mm(a, b, out=placed(torch.zeros(4, 3))), [(4, 5), (5, 3)]),
    "mm-out-of-another-shape": (lambda a, b: torch.mm(a, b, out=placed(torch.empty(0))), [(4, 5), (5, 3)]),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, alpha=2, beta=3), [(3,), (4, 5), (5, 3)]),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, alpha=2, beta=3), [(3,), (2, 4, 5), (2, 5, 3)]),
    "baddbmm-out": (
        lambda c, a, b: torch.baddbmm(c, a, b, out=placed(torch.zeros(2, 4, 3))), [(2, 4, 3), (2, 4, 5), (2, 5, 3)]
    ),
    "addmm_": (lambda c, a, b: c.clone().addmm_(a, b, alpha=2, beta=3), [(4, 3), (4, 5), (5, 3)]),
    "baddbmm_": (lambda c, a, b: c.clone().mT.baddbmm_(a, b), [(2, 3, 4), (2, 4, 5), (2, 5, 3)]),
    "addbmm_": (lambda c, a, b: c.clone().addbmm_(a, b, beta=2), [(4, 3), (2, 4, 5), (2, 5, 3)]),
    "addmv_": (lambda c, a, b: c.clone().addmv_(a, b, alpha=2), [(4,), (4, 5), (5,)]),
    "addmv-out": (lambda c, a, b: torch.addmv(c, a, b, out=placed(torch.zeros(4))), [(), (4, 5), (5,)]),
    "vdot": (lambda a, b: torch.vdot(a, b), [(5,), (5,)]),
    "linear": (lambda x, w, b: F.linear(x, w, b), [(2, 4, 5), (3, 5), (3,)]),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), [(2, 4, 5), (2, 5, 3)]),
    "multi-dot": (lambda a, b: torch.linalg.multi_dot((a, b)), [(4, 5), (5, 3)]),
}  # fmt: skip


@pytest.mark.parametrize("inference", [False, True], ids=["", "inference-mode"])
@pytest.mark.parametrize("name", ROUTED)
def test_computes_torchs_products(name: str, inference: bool) -> None:
    function, shapes = ROUTED[name]
    operands = [small(*shape, seed=i) for i, shape in enumerate(shapes)]
    wanted = function(*operands)
    with torch.inference_mode(inference), gt.use() as routing:
        found = function(*operands)
    assert routing.products == 1
    equal(found, wanted)


def test_written_results_are_the_tensors_that_were_given() -> None:
    out = placed(torch.zeros(3, 4)).T
    with gt.use():
        assert torch.mm(small(4, 5), small(5, 3, seed=1), out=out) is out
    equal(out, torch.mm(small(4, 5), small(5, 3, seed=1)))


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_a_result_is_not_written_to_another_device(where: str) -> None:
    """Torch refuses that before any work, as it refuses operands on two devices."""
    skip_without(GPU)
    if not torch.cuda.is_available():
        pytest.skip(beyond("PyTorch", "this build has no CUDA"))
    a, b, c = torch.ones(2, 4, 5, device=where), torch.ones(2, 5, 3, device=where), torch.zeros(2, 4, 3, device=where)
    other = "cpu" if where == "cuda" else "cuda"
    calls: list[Callable[[], Any]] = [
        lambda: torch.bmm(a, b, out=c.to(other)), lambda: torch.bmm(a, b.to(other)), lambda: torch.bmm(a.to(other), b),
        lambda: torch.mm(a[0], b[0], out=c[0].to(other)), lambda: torch.baddbmm(c, a, b, out=c.to(other)),
        lambda: c.to(other).baddbmm_(a, b),
    ]  # fmt: skip
    with gt.use() as routing:
        for call in calls:
            with pytest.raises(RuntimeError):
                call()
    assert routing.products == 0


def test_what_is_written_in_place_is_the_tensor_that_was_given() -> None:
    a, b = small(4, 5), small(5, 3, seed=1)
    c = small(4, 3, seed=2)
    wanted = torch.addmm(c, a, b)
    with gt.use() as routing:
        assert c.addmm_(a, b) is c
        with pytest.raises(RuntimeError):
            c[0].addmm_(a, b)  # which would need a larger tensor
        with pytest.raises(RuntimeError):
            torch.mm(a, b, out=placed(torch.zeros(4, 3, dtype=torch.float64)))
    assert routing.products == 1
    equal(c, wanted)


def test_leaves_everything_else_to_torch() -> None:
    a = small(4, 4)
    with gt.use() as routing:
        equal(a + a, 2 * a)
        equal(torch.mm(a.to_sparse(), a), a @ a)  # the last one is ours
        assert torch.mm(a.to("meta"), a.to("meta")).is_meta
        assert torch.nn.functional.conv1d(a[None], a[None]).shape == (1, 1, 1)
    assert routing.products == 1


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [("float32", "float64", "same dtype"), ("bool", "bool", "Bool"), ("float32", "shape", "cannot be multiplied")],
)
def test_what_torch_refuses_it_refuses_in_its_words(left: str, right: str, told: str) -> None:
    a = small(4, 5, dtype=left)
    b = small(6, 5) if right == "shape" else small(5, 3, dtype=right)
    with gt.use() as routing, pytest.raises(RuntimeError, match=told):
        torch.mm(a, b)
    assert routing.products == 0


@pytest.mark.parametrize("error", [gp.ShapeError, gp.DtypeError, gp.ArrayError])
def test_what_is_refused_before_any_work_goes_to_torch(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """An ArrayError is that of tensors on two devices, of which torch tells in its words."""

    def refusal(*_: Any) -> None:
        raise error("these do not fit together")

    a, b = small(4, 5), small(5, 3, seed=1)
    wanted = torch.mm(a, b)
    monkeypatch.setitem(mode._ROUTES, torch.ops.aten.mm.default, refusal)
    with gt.use() as routing:
        equal(torch.mm(a, b), wanted)
    assert routing.products == 0


def test_ends_with_its_block_also_by_an_error() -> None:
    a = small(4, 4)
    routing = gt.use()
    with pytest.raises(ZeroDivisionError), routing:
        _ = a @ a / (1 // 0)
    assert routing.products == 1
    _ = a @ a
    assert routing.products == 1


@pytest.mark.parametrize("name", ["pinv", "lstsq"])
def test_what_torch_makes_of_complex_numbers_is_right(name: str) -> None:
    """Under a mode that does nothing it is wrong in torch 2.13."""
    z = random(5, 5, dtype="complex128")
    function = torch.linalg.pinv if name == "pinv" else lambda z: torch.linalg.lstsq(z, z).solution
    wanted = function(z)
    with gt.use():
        torch.testing.assert_close(function(z), wanted)


def test_holds_for_its_own_thread() -> None:
    a, routing = small(4, 4), gt.use()
    with routing:
        other = threading.Thread(target=lambda: a @ a)
        other.start()
        other.join()
    assert routing.products == 0


def test_sees_what_transforms_and_autocast_make_of_products() -> None:
    a, b = small(7, 4, 5), small(5, 3, seed=1)
    wanted = torch.vmap(torch.mm, in_dims=(0, None))(a, b)
    with gt.use() as routing:
        equal(torch.vmap(torch.mm, in_dims=(0, None))(a, b), wanted)
        with torch.autocast(tensors.place, torch.bfloat16):
            assert torch.mm(a[0], b).dtype == torch.bfloat16
    assert routing.products == 2


@pytest.mark.parametrize("build", ["gru", "attention"])
def test_sees_products_inside_modules(build: str) -> None:
    torch.manual_seed(0)
    model: Any = torch.nn.GRU(5, 6) if build == "gru" else torch.nn.MultiheadAttention(6, 2)
    model = model.to(tensors.place)
    x = placed(torch.randn(4, 3, 5 if build == "gru" else 6))
    operands = (x,) if build == "gru" else (x, x, x)
    with torch.backends.cudnn.flags(enabled=False):  # whose kernels have their products in them
        wanted = model(*operands)[0]
        with gt.use() as routing:
            found = model(*operands)[0]
    assert routing.products > 0
    torch.testing.assert_close(found, wanted)


class TestOfAModel:
    """Each parameter's gradient too: two products backward for each one forward."""

    def test_eager(self) -> None:
        model = small_gpt().to(tensors.place)
        wanted = model(placed(text()))
        wanted_grads = torch.autograd.grad(wanted.square().mean(), list(model.parameters()))
        with gt.use() as routing:
            found = model(placed(text()))
            assert routing.products == PRODUCTS
            grads = torch.autograd.grad(found.square().mean(), list(model.parameters()))
        assert routing.products == 3 * PRODUCTS
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(grads, wanted_grads)

    def test_compiled_by_aot_eager(self) -> None:
        self._compiled("aot_eager")

    @pytest.mark.processes
    def test_compiled_by_inductor(self) -> None:
        self._compiled("inductor")

    def _compiled(self, backend: str) -> None:
        torch._dynamo.reset()
        model = small_gpt().to(tensors.place)
        wanted = model(placed(text()))
        wanted_grads = torch.autograd.grad(wanted.square().mean(), list(model.parameters()))
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        compiled(placed(text()))  # compiled outside of the context, and used inside: it need not be compiled again
        with torch.compiler.set_stance("fail_on_recompile"), gt.use() as routing:
            found = compiled(placed(text()))
            grads = torch.autograd.grad(found.square().mean(), list(model.parameters()))
        assert routing.products == 3 * PRODUCTS
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(grads, wanted_grads)


def told(product: Any, a: Any, b: Any) -> str:
    """To what the operands of a product were rounded, as far as the product tells."""
    exact = a.double() @ b.double()
    return "full" if float((product.double() - exact).abs().max()) < 1e-5 else "rounded"


@pytest.fixture
def torchs_flag() -> Any:
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision("highest")


def test_torchs_own_flag_is_respected_where_it_is_of_torchs_products(
    monkeypatch: pytest.MonkeyPatch, torchs_flag: Callable[[str], None]
) -> None:
    a, b = (torch.randn(16, 16, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    torchs_flag("high")
    with gt.use():
        assert told(a @ b, a, b) == "full", "the flag is of CUDA"
    monkeypatch.setattr(mode, "_is_on_cuda", lambda x: True)
    with gt.use() as routing:
        assert told(a @ b, a, b) == "rounded"
        with gp.precision("full"):
            assert told(a @ b, a, b) == "full"
        assert routing.products == 4, "those in float64, too"
    assert told(gt.matmul(a, b), a, b) == told(gp.matmul(a, b), a, b) == "full", "it is not of gemmport's products"
    torchs_flag("highest")
    with gt.use():
        assert told(a @ b, a, b) == "full"


def test_derivatives_are_rounded_as_their_product_was() -> None:
    a, b = (torch.randn(16, 16, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    x = a.clone().requires_grad_()
    ones = torch.randn(16, 16, generator=torch.Generator().manual_seed(3))
    for word, outcome in (("bfloat16", "rounded"), ("full", "full")):
        with gp.precision(word):
            product = gt.matmul(x, b)
        x.grad = None
        thread = threading.Thread(target=lambda product=product: product.backward(ones))
        thread.start()
        thread.join()
        assert told(product.detach(), a, b) == told(x.grad, ones, b.mT) == outcome
    product = gt.matmul(x, b)
    x.grad = None
    with gp.precision("bfloat16"):
        product.backward(ones)
    assert told(x.grad, ones, b.mT) == "full", "on CUDA, too, the context of backward() does not reach torch's threads"
