"""`gemm`, `plan` and `run`: what they take, what they give, what they refuse, and that they change nothing else."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from exact import integers
from gemmport import backends


@pytest.fixture(scope="module")
def where(best_backend: gp.Backend) -> dict[str, Any]:
    """The arguments that choose the best device."""
    return {"device": best_backend.device}


def pair(a: tuple[int, ...], b: tuple[int, ...], dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([*a, 99, *b])
    return integers(a, dtype, rng), integers(b, dtype, rng)


def _inside(x: np.ndarray, key: tuple[slice, slice]) -> np.ndarray:
    """The same values, as a view of a larger array full of NaN."""
    large = np.full([2 * n + 5 for n in x.shape], np.nan, x.dtype)
    view = large[key][tuple(slice(0, n) for n in x.shape)]
    view[...] = x
    return view


def _unaligned(x: np.ndarray) -> np.ndarray:
    """The same values, one byte off."""
    raw = np.zeros(x.nbytes + 1, np.uint8)
    view = raw[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


VIEWS = {
    "dense": np.ascontiguousarray,
    "column-major": np.asfortranarray,
    "rows-apart": lambda x: _inside(x, (slice(2, None), slice(3, None))),
    "every-second-row": lambda x: _inside(x, (slice(None, None, 2), slice(None))),
    "every-second-column": lambda x: _inside(x, (slice(None), slice(None, None, 2))),
    "negative-rows": lambda x: _inside(x, (slice(None, None, -1), slice(None))),
    "negative-columns": lambda x: _inside(x, (slice(None), slice(None, None, -1))),
    "unaligned-bytes": _unaligned,
    "other-byte-order": lambda x: x.astype(x.dtype.newbyteorder()),
}


class TestGemm:
    @pytest.mark.parametrize("view_b", VIEWS)
    @pytest.mark.parametrize("view_a", VIEWS)
    def test_reads_any_view(self, where: dict[str, Any], view_a: str, view_b: str) -> None:
        a, b = pair((17, 13), (13, 11))
        in_a, in_b = VIEWS[view_a](a), VIEWS[view_b](b)
        np.testing.assert_array_equal(gp.gemm(in_a, in_b, **where), a @ b)

    @pytest.mark.parametrize(
        ("ta", "tb"), [(False, "N"), (True, "T"), ("T", False), ("t", True), ("C", "n"), ("N", "c")]
    )
    @pytest.mark.parametrize("view", VIEWS)
    def test_transposes_as_told(self, where: dict[str, Any], view: str, ta: Any, tb: Any) -> None:
        a, b = pair((17, 13), (13, 11))
        stored_a = VIEWS[view](a if ta in (False, "N") else a.T)
        stored_b = VIEWS[view](b if tb in (False, "N", "n") else b.T)
        np.testing.assert_array_equal(gp.gemm(stored_a, stored_b, trans_a=ta, trans_b=tb, **where), a @ b)

    @pytest.mark.parametrize("view", VIEWS)
    def test_adds_c_and_never_changes_it(self, where: dict[str, Any], view: str) -> None:
        a, b = pair((17, 13), (13, 11))
        c = VIEWS[view](integers((17, 11), np.float32))
        before = c.copy()
        product = gp.gemm(a, b, alpha=2.0, beta=-0.5, c=c, **where)
        np.testing.assert_array_equal(product, 2 * (a @ b) - 0.5 * c)
        np.testing.assert_array_equal(c, before)
        assert not np.shares_memory(product, c)

    def test_does_not_read_what_the_scalars_cancel(self, where: dict[str, Any]) -> None:
        a, b = pair((5, 7), (7, 3))
        nothing = np.full((5, 3), np.nan, np.float32)
        np.testing.assert_array_equal(gp.gemm(a, b, c=nothing, **where), a @ b)
        c = integers((5, 3), np.float32)
        product = gp.gemm(np.full_like(a, np.nan), np.full_like(b, np.nan), alpha=0, beta=2.0, c=c, **where)
        np.testing.assert_array_equal(product, 2 * c)

    @pytest.mark.parametrize(("a_shape", "b_shape"), [((4, 5, 7), (4, 7, 3)), ((4, 5, 7), (7, 3)), ((5, 7), (4, 7, 3))])
    def test_takes_batches_and_single_matrices(self, where: dict[str, Any], a_shape: Any, b_shape: Any) -> None:
        a, b = pair(a_shape, b_shape)
        c = integers((4, 5, 3), np.float32)
        np.testing.assert_array_equal(gp.gemm(a, b, beta=1.0, c=c, **where), a @ b + c)

    @pytest.mark.parametrize(
        "shapes", [((0, 7), (7, 3)), ((5, 0), (0, 3)), ((5, 7), (7, 0)), ((0, 5, 7), (7, 3))], ids=str
    )
    def test_of_nothing_is_empty_or_scaled_c(self, where: dict[str, Any], shapes: Any) -> None:
        a, b = pair(*shapes)
        c = integers((a @ b).shape, np.float32)
        np.testing.assert_array_equal(gp.gemm(a, b, beta=2.0, c=c, **where), 2 * c)

    def test_may_write_to_c(self, where: dict[str, Any]) -> None:
        a, b = pair((5, 7), (7, 3))
        c = integers((5, 3), np.float32)
        wanted = a @ b + 2 * c
        assert gp.gemm(a, b, beta=2.0, c=c, out=c, **where) is c
        np.testing.assert_array_equal(c, wanted)

    @pytest.mark.parametrize("view", ["dense", "column-major", "rows-apart", "negative-rows", "every-second-column"])
    def test_writes_to_any_out(self, where: dict[str, Any], view: str) -> None:
        a, b = pair((5, 7), (7, 3))
        out = VIEWS[view](np.zeros((5, 3), np.float32))
        assert gp.gemm(a, b, out=out, **where) is out
        np.testing.assert_array_equal(out, a @ b)

    def test_may_write_over_its_input_on_the_host(self, where: dict[str, Any]) -> None:
        a, b = pair((5, 5), (5, 5))
        wanted = a @ b
        gp.gemm(a, b, out=a, **where)
        np.testing.assert_array_equal(a, wanted)

    def test_computes_mixed_types_in_the_wider(self, best_backend: gp.Backend, where: dict[str, Any]) -> None:
        if "float64" not in best_backend.device.computes:
            pytest.skip(beyond(best_backend.device, "it does not compute in float64"))
        a, b = pair((5, 7), (7, 3))
        b = b.astype(np.float64) + 2.0**-40
        product = gp.gemm(a, b, **where)
        assert product.dtype == np.float64
        np.testing.assert_array_equal(product, a.astype(np.float64) @ b)

    def test_narrows_to_out_only_within_a_kind(self, where: dict[str, Any]) -> None:
        a, b = pair((5, 7), (7, 3))
        out = np.zeros((5, 3), np.float64)
        gp.gemm(a, b, out=out, **where)
        np.testing.assert_array_equal(out, a @ b)
        with pytest.raises(gp.DtypeError, match="int32"):
            gp.gemm(a, b, out=np.zeros((5, 3), np.int32), **where)


class TestRefusals:
    @pytest.mark.parametrize("dtype", ["U3", "object", "longdouble"])
    def test_an_unsupported_type_is_named(self, where: dict[str, Any], dtype: str) -> None:
        x = np.zeros((3, 3), dtype)
        with pytest.raises(gp.DtypeError, match=f"dtype {np.dtype(dtype)} ") as caught:
            gp.gemm(x, x, **where)
        assert isinstance(caught.value, TypeError)

    @pytest.mark.parametrize(
        ("shapes", "options", "told"),
        [
            (((5, 7), (6, 3)), {}, "7 and 6"),
            (((5, 7), (7, 3)), {"trans_a": "T"}, "5 and 7"),
            (((2, 5, 7), (3, 7, 3)), {}, "batch of 2"),
            (((7,), (7, 3)), {}, "a has shape"),
            (((1, 2, 5, 7), (7, 3)), {}, "a has shape"),
            (((5, 7), (7, 3)), {"c": np.zeros((5, 4), np.float32), "beta": 1.0}, "c has shape"),
            (((5, 7), (7, 3)), {"c": np.zeros((5, 4), np.float32)}, "c has shape"),
            (((5, 7), (7, 3)), {"out": np.zeros((4, 3), np.float32)}, "out"),
            (((5, 7), (7, 3)), {"trans_a": "X"}, "'X'"),
            (((5, 7), (7, 3)), {"trans_b": None}, "None"),
        ],
    )
    def test_shapes_that_do_not_fit_are_told(self, where: dict[str, Any], shapes: Any, options: Any, told: str) -> None:
        a, b = pair(*shapes)
        with pytest.raises(gp.ShapeError, match=told) as caught:
            gp.gemm(a, b, **options, **where)
        assert isinstance(caught.value, ValueError)

    def test_beta_needs_c(self, where: dict[str, Any]) -> None:
        with pytest.raises(gp.ArrayError, match=r"beta = 0\.5 needs c"):
            gp.gemm(*pair((5, 7), (7, 3)), beta=0.5, **where)

    @pytest.mark.parametrize(
        ("options", "kind", "told"),
        [
            ({"kernel": "no_such"}, gp.UnknownNameError, "naive"),
            ({"kernel": "tiled", "params": {"NO": 1}}, gp.UnknownNameError, "TS, PAD"),
            ({"kernel": "tiled", "params": {"TS": 0}}, gp.ParameterError, "from 1 to 32"),
            ({"kernel": "tiled", "params": {"TS": "8"}}, gp.ParameterError, "'8'"),
            ({"kernel": "register_tiled", "params": {"TSM": 30, "WPTM": 4}}, gp.ParameterError, "TSM = 30, WPTM = 4"),
            ({"config": "/no/such/file.yaml"}, gp.ConfigError, "/no/such/file.yaml"),
            ({"kernel": np.ones((2, 2))}, gp.UnknownNameError, "kernel must be the name of one"),
            ({"dtype": np.ones((2, 2), np.float32)}, gp.DtypeError, "is not supported"),
            ({"queue": np.ones((2, 2))}, gp.LaunchError, "queue must be"),
            ({"wait_for": np.ones((2, 2))}, gp.LaunchError, "events? must be"),
        ],
    )
    def test_choices_that_cannot_be_are_told(
        self, where: dict[str, Any], options: Any, kind: type[gp.GemmportError], told: str
    ) -> None:
        for _ in range(2):  # also where the product is one of those that are kept
            with pytest.raises(kind, match=told):
                gp.gemm(*pair((5, 7), (7, 3)), **options, **where)
            gp.gemm(*pair((5, 7), (7, 3)), **where)

    def test_arrays_that_are_no_types_and_no_kernels_are_told(self, where: dict[str, Any]) -> None:
        for dtype in (np.ones((2, 2)), "no_such"):
            with pytest.raises(gp.DtypeError):
                gp.matmul(*pair((5, 7), (7, 3)), dtype=dtype, **where)
        with pytest.raises(gp.UnknownNameError, match="kernel must be"):
            gp.plan(gp.GemmProblem.create(2, 2, 2), gp.devices()[0], kernel=np.ones(2))  # type: ignore[arg-type]

    def test_a_device_or_backend_that_is_not_there_is_named(self) -> None:
        a, b = pair((5, 7), (7, 3))
        with pytest.raises(gp.DeviceNotFoundError, match="no-such-chip"):
            gp.gemm(a, b, device="no-such-chip")
        with pytest.raises(gp.UnknownNameError, match="no-such-backend"):
            gp.gemm(a, b, backend="no-such-backend")


class TestConfiguration:
    def test_a_file_chooses_kernel_and_parameters(self, best_backend: gp.Backend, tmp_path: Path) -> None:
        file = tmp_path / "mine.yaml"
        file.write_text(
            "schema: 1\ndescription: a test's\nentries:\n"
            "  - {name: mine, kernels: {tiled: {TS: 4, PAD: 0}}, provenance: {tuned: false}}\n"
        )
        a, b = pair((5, 7), (7, 3))
        made = gp.plan(gp.GemmProblem.create(5, 3, 7), best_backend.device, config=file)
        assert (made.variant, made.values, made.entry) == ("tiled", {"TS": 4, "PAD": 0}, f"{file}: mine")
        np.testing.assert_array_equal(gp.gemm(a, b, config=file, device=best_backend.device), a @ b)
        np.testing.assert_array_equal(gp.matmul(a, b, config=[file], device=best_backend.device), a @ b)

    def test_params_go_before_a_file(self, best_backend: gp.Backend) -> None:
        made = gp.plan(gp.GemmProblem.create(5, 3, 7), best_backend.device, kernel="tiled", params={"TS": 2})
        assert made.values["TS"] == 2
        assert dict(made.parameters)["TS"].origin == "params="

    @pytest.mark.parametrize("kernel", ["naive", "tiled", "register_tiled"])
    def test_a_kernel_can_be_named(self, where: dict[str, Any], kernel: str) -> None:
        a, b = pair((5, 7), (7, 3))
        np.testing.assert_array_equal(gp.gemm(a, b, kernel=kernel, **where), a @ b)
        np.testing.assert_array_equal(gp.matmul(a, b, kernel=kernel, **where), a @ b)


class TestRun:
    def test_runs_a_plan_on_arrays(self, best_backend: gp.Backend) -> None:
        a, b = pair((5, 7), (7, 3))
        c = integers((5, 3), np.float32)
        made = gp.plan(gp.GemmProblem.create(5, 3, 7, alpha=2.0, beta=-1.0), best_backend.device)
        np.testing.assert_array_equal(gp.run(made, a, b, c), 2 * (a @ b) - c)

    def test_lays_operands_out_as_the_problem_says(self, best_backend: gp.Backend) -> None:
        problem = gp.GemmProblem.create(
            5, 3, 7, batch=2, trans_a="T", a=gp.Layout(9, 70, 3), b=gp.Layout(4, 28, 1), d=gp.Layout(5, 27, 2)
        )
        a, b = pair((2, 7, 5), (2, 7, 3))
        np.testing.assert_array_equal(gp.run(gp.plan(problem, best_backend.device), a, b), a.swapaxes(1, 2) @ b)

    def test_runs_a_plan_read_from_json(self, best_backend: gp.Backend) -> None:
        a, b = pair((5, 7), (7, 3))
        made = gp.plan(gp.GemmProblem.create(5, 3, 7), best_backend.device)
        np.testing.assert_array_equal(gp.run(gp.Plan.from_json(made.to_json()), a, b), a @ b)

    @pytest.mark.parametrize("sizes", [(0, 3, 7), (5, 0, 7), (5, 3, 0)], ids=str)
    def test_runs_plans_of_nothing(self, best_backend: gp.Backend, sizes: tuple[int, int, int]) -> None:
        m, n, k = sizes
        a, b = pair((m, k), (k, n))
        made = gp.plan(gp.GemmProblem.create(m, n, k), best_backend.device)
        np.testing.assert_array_equal(gp.run(made, a, b), a @ b)

    def test_refuses_operands_of_other_shapes(self, best_backend: gp.Backend) -> None:
        made = gp.plan(gp.GemmProblem.create(5, 3, 7, beta=1.0), best_backend.device)
        a, b = pair((5, 7), (7, 3))
        with pytest.raises(gp.ShapeError, match="b has shape"):
            gp.run(made, a, b.T, np.zeros((5, 3), np.float32))
        with pytest.raises(gp.ArrayError, match="needs c"):
            gp.run(made, a, b)

    @pytest.mark.parametrize(("dtype", "given"), [("float32", np.complex64), ("int32", np.float32), ("bool", np.int8)])
    def test_refuses_operands_that_would_lose_a_part(
        self, best_backend: gp.Backend, dtype: str, given: type[np.generic]
    ) -> None:
        made = gp.plan(gp.GemmProblem.create(5, 3, 7, dtype=dtype), best_backend.device)
        a, b = (np.ones(shape, dtype) for shape in ((5, 7), (7, 3)))
        for operands, name in (((a.astype(given), b), "a"), ((a, b.astype(given)), "b")):
            with pytest.raises(
                gp.DtypeError, match=f"{name} must be of the plan's kind, {dtype}; got {np.dtype(given)}"
            ):
                gp.run(made, *operands)


class TestDeviceArrays:
    def test_give_device_arrays(self, backend: gp.Backend) -> None:
        a, b = pair((17, 13), (13, 11))
        product = gp.gemm(backend.asarray(a), backend.asarray(b))
        assert isinstance(product, gp.DeviceArray)
        assert product.backend is backend
        np.testing.assert_array_equal(product.get(), a @ b)
        np.testing.assert_array_equal(gp.matmul(backend.asarray(a), backend.asarray(b)).get(), a @ b)

    def test_chain_without_waiting(self, backend: gp.Backend) -> None:
        a, b = pair((17, 17), (17, 17))
        x, y = backend.asarray(a), backend.asarray(b)
        np.testing.assert_array_equal(gp.gemm(gp.gemm(x, y), gp.gemm(y, x)).get(), (a @ b) @ (b @ a))

    @pytest.mark.sample(key=[(slice(None, None, -2), slice(1, 13))])
    @pytest.mark.parametrize(
        "key",
        [
            (slice(None, None, -2), slice(1, 13)),
            (slice(2, 14), slice(1, 13)),
            (slice(None, 12), slice(0, 24, 2)),
            (slice(0, 24, 2), slice(None, 12)),
            (slice(11, None, -1), slice(0, 12)),
            (slice(0, 12), slice(11, None, -1)),
            (slice(3, 4), slice(0, 12)),
        ],
        ids=str,
    )
    def test_may_be_views(self, best_backend: gp.Backend, key: tuple[slice, slice]) -> None:
        host = integers((24, 24), np.float32)
        array = best_backend.asarray(host)
        x, view = host[key], array[key]
        square = integers((x.shape[1], x.shape[1]), np.float32)
        np.testing.assert_array_equal(gp.gemm(view, best_backend.asarray(square)).get(), x @ square)
        np.testing.assert_array_equal(gp.gemm(view.T, view).get(), x.T @ x)
        np.testing.assert_array_equal(gp.gemm(view, view, trans_b="T").get(), x @ x.T)

    def test_take_out_and_update_in_place(self, backend: gp.Backend) -> None:
        a, b = pair((17, 13), (13, 11))
        c = integers((17, 11), np.float32)
        x, y, out = backend.asarray(a), backend.asarray(b), backend.asarray(c)
        assert gp.gemm(x, y, beta=2.0, c=out, out=out) is out
        np.testing.assert_array_equal(out.get(), a @ b + 2 * c)
        assert gp.gemm(x, y, out=out) is out
        np.testing.assert_array_equal(out.get(), a @ b)

    def test_write_to_a_part_of_an_array_and_nothing_else(self, backend: gp.Backend) -> None:
        a, b = pair((5, 7), (7, 3))
        whole = backend.asarray(np.full((9, 8), 7, np.float32))
        gp.gemm(backend.asarray(a), backend.asarray(b), out=whole[2:7, 4:7])
        wanted = np.full((9, 8), 7, np.float32)
        wanted[2:7, 4:7] = a @ b
        np.testing.assert_array_equal(whole.get(), wanted)

    def test_never_change_c(self, backend: gp.Backend) -> None:
        a, b = pair((5, 7), (7, 3))
        host = integers((3, 5), np.float32)
        c = backend.asarray(host)
        product = gp.gemm(backend.asarray(a), backend.asarray(b), beta=1.0, c=c.T)
        np.testing.assert_array_equal(product.get(), a @ b + host.T)
        np.testing.assert_array_equal(c.get(), host)

    def test_take_host_arrays_beside_them(self, backend: gp.Backend) -> None:
        a, b = pair((5, 7), (7, 3))
        np.testing.assert_array_equal(gp.gemm(backend.asarray(a), b).get(), a @ b)

    def test_of_a_batch_share_a_single_matrix(self, backend: gp.Backend) -> None:
        a, b = pair((4, 5, 7), (7, 3))
        np.testing.assert_array_equal(gp.gemm(backend.asarray(a), backend.asarray(b)).get(), a @ b)

    @pytest.mark.parametrize(
        "shapes", [((0, 7), (7, 3)), ((5, 0), (0, 3)), ((5, 7), (7, 0)), ((0, 5, 7), (7, 3))], ids=str
    )
    def test_may_be_empty(self, backend: gp.Backend, shapes: Any) -> None:
        a, b = pair(*shapes)
        np.testing.assert_array_equal(gp.gemm(backend.asarray(a), backend.asarray(b)).get(), a @ b)

    @pytest.mark.parametrize("which", ["a", "b", "part of a", "shifted c"])
    def test_refuse_an_out_that_overlaps_an_operand(self, backend: gp.Backend, which: str) -> None:
        x, y, z = (backend.asarray(integers((9, 8), np.float32)) for _ in range(3))
        a, b, c = x[:8], y[:8], z[:8]
        out = {"a": a, "b": b, "part of a": x[1:], "shifted c": z[1:]}[which]
        with pytest.raises(gp.ArrayError, match="overlaps"):
            gp.gemm(a, b, beta=1.0, c=c, out=out)

    def test_may_share_memory_that_does_not_overlap(self, backend: gp.Backend) -> None:
        host = integers((16, 8), np.float32)
        memory = backend.asarray(host)
        gp.gemm(memory[:8], memory[:8], out=memory[8:])
        np.testing.assert_array_equal(memory.get()[8:], host[:8] @ host[:8])

    @pytest.mark.parametrize("product", [gp.gemm, gp.matmul])
    def test_may_be_given_with_the_place_where_they_are(self, backend: gp.Backend, product: Any) -> None:
        host, device = integers((4, 4), np.float32), backend.device
        x = backend.asarray(host)
        places: list[dict[str, Any]] = [
            {"backend": backend.name}, {"backend": "auto"}, {"backend": backend.name.upper(), "device": device.selector},
            {"device": device}, {"device": gp.devices().index(device)}, {"backend": backend.name, "device": device.platform},
        ]  # fmt: skip
        for place in places:
            np.testing.assert_array_equal(product(x, host, **place).get(), host @ host)

    def test_are_not_where_another_device_is_asked_for(self, backend: gp.Backend) -> None:
        x = backend.asarray(integers((4, 4), np.float32))
        other = next(name for name in backends.names() if name != backend.name)
        elsewhere = replace(backend.device, backend=other)
        for place, told in (
            ({"backend": other}, f"backend='{other}'"),
            ({"device": "no such device"}, "device='no such device'"),
            ({"backend": backend.name, "device": "9:9"}, f"backend='{backend.name}' and device='9:9'"),
            ({"device": elsewhere}, f"device='{elsewhere.label}'"),
        ):
            with pytest.raises(gp.ArrayError) as caught:
                gp.gemm(np.eye(4, dtype=np.float32), x, **place)
            assert str(caught.value) == (
                f"{told} must mean the device of b, which is {backend.device.label}: leave it out, or copy b to the host "
                "with get()"
            )

    def test_refuse_what_does_not_fit(self, backend: gp.Backend) -> None:
        x = backend.asarray(integers((4, 4), np.float32))
        with pytest.raises(gp.ArrayError, match=r"out must be on .* in the host's memory"):
            gp.gemm(x, x, out=np.zeros((4, 4), np.float32))
        with pytest.raises(gp.ShapeError, match="4 and 3"):
            gp.gemm(x, x[:3])

    def test_of_a_type_that_the_device_cannot_compute_are_refused_by_name(self, backend: gp.Backend) -> None:
        x = backend.zeros((4, 4), np.float32)
        with pytest.raises(gp.DtypeError, match="datetime64"):
            gp.gemm(x, np.zeros((4, 4), "datetime64[s]"))
        if "float64" not in backend.device.computes:
            y = backend.asarray(np.zeros((4, 4), np.float64))
            with pytest.raises(gp.GemmportError, match="float64"):
                gp.gemm(y, y)

    def test_of_two_devices_are_refused(self, backend: gp.Backend, fresh_backend: gp.Backend) -> None:
        x, y = backend.asarray(np.zeros((4, 4), np.float32)), fresh_backend.asarray(np.zeros((4, 4), np.float32))
        with pytest.raises(gp.ArrayError, match="another context"):
            gp.gemm(x, y)
        with pytest.raises(gp.ArrayError, match="another context"):
            gp.gemm(x, x, out=y)


def test_c_of_another_dtype_widens_the_result_and_not_the_inputs(best_backend):
    a = best_backend.asarray(np.eye(2, dtype=np.float32))
    for c in (np.ones((2, 2)), best_backend.asarray(np.ones((2, 2))), [[1, 1], [1, 1]]):
        product = gp.gemm(a, a, beta=1.0, c=c)
        assert product.dtype == np.float64
        np.testing.assert_array_equal(product.get(), np.eye(2) + 1)


def test_a_closed_device_says_that_it_is_closed(best_backend):
    with type(best_backend)(best_backend.device) as opened:
        array = opened.asarray(np.eye(3, dtype=np.float32))
    for use in (array.get, opened.synchronize, lambda: opened.asarray(np.eye(3)), lambda: gp.gemm(array, array)):
        with pytest.raises(gp.LaunchError, match="was closed"):
            use()


def test_a_device_that_is_no_text_is_refused():
    with pytest.raises(gp.DeviceNotFoundError, match="device must be text"):
        gp.gemm(np.eye(2), np.eye(2), device=0.5)


@pytest.mark.parametrize("multiply", [gp.gemm, gp.matmul])
@pytest.mark.parametrize("word", ["no", None, 1, np.eye(2)], ids=str)
def test_what_is_no_truth_value_is_refused_as_deterministic(multiply, word):
    with pytest.raises(gp.ParameterError, match="deterministic must be True or False; got"):
        multiply(np.eye(2), np.eye(2), deterministic=word)


def test_a_device_may_be_a_number_and_a_backend_in_capitals(best_backend):
    device, x = best_backend.device, np.eye(2, dtype=np.float32)
    place = {"backend": device.backend.upper(), "device": gp.devices(device.backend).index(device)}
    assert gp.get_backend(**place) is best_backend
    for product in (gp.gemm, gp.matmul):
        np.testing.assert_array_equal(product(x, x, **place), x)


def test_numbers_of_the_other_byte_order_arrive_right(best_backend):
    a = np.arange(6.0, dtype=">f4").reshape(2, 3)
    np.testing.assert_array_equal(best_backend.asarray(a).get(), a)
    np.testing.assert_array_equal(gp.gemm(best_backend.asarray(a), best_backend.asarray(a.T)).get(), a @ a.T)


class TestTooLarge:
    """What no device can have is refused before the host makes a copy of it."""

    LONG = np.broadcast_to(np.float32(1), (1, 2**31))

    @pytest.fixture(autouse=True)
    def no_copy(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """At most a tenth of a gigabyte beyond what is mapped: a copy is a MemoryError."""
        pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 10**8, before[1]) if pages else before)
        yield
        resource.setrlimit(resource.RLIMIT_AS, before)

    @pytest.mark.parametrize("other", [np.float32, np.float64])
    @pytest.mark.parametrize("product", [gp.gemm, gp.matmul])
    def test_k_is_refused(self, where: dict[str, Any], product: Any, other: Any) -> None:
        a, b = self.LONG, np.broadcast_to(other(1), (2**31, 1))
        with pytest.raises(gp.ShapeError, match="k = 2147483648 is too large: the largest size is"):
            product(a, b, **where)

    @pytest.mark.parametrize("product", [gp.gemm, gp.matmul])
    def test_a_result_is_refused(self, where: dict[str, Any], product: Any) -> None:
        a = np.broadcast_to(np.float32(1), (2**30, 1))
        with pytest.raises(gp.DeviceMemoryError, match="the result takes 4,611,686,018,427,387,904 bytes"):
            product(a, a.T, **where)

    @pytest.mark.parametrize("product", [gp.gemm, gp.matmul])
    def test_an_operand_beside_one_on_the_device_is_refused(
        self, best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch, product: Any
    ) -> None:
        small = replace(best_backend.device, max_allocation=2**30, memory=2**31)
        monkeypatch.setattr(best_backend, "device", small)
        a, b = self.LONG[:, : 2**30], replace(best_backend.ones((1, 1), np.float32), shape=(2**30, 1), strides=(0, 0))
        told = "bytes in all; the device has 2,147,483,648: keep the array on the host"
        with pytest.raises(gp.DeviceMemoryError, match=told):
            product(a, b)

    def test_an_array_is_refused(self, best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            best_backend, "device", replace(best_backend.device, max_allocation=2**30, memory=2**31)
        )  # fmt: skip
        for array in (self.LONG, self.LONG.view(">f4")):
            with pytest.raises(gp.DeviceMemoryError, match="8,589,934,592 bytes in all"):
                best_backend.asarray(array)


class TestMasks:
    """Masked elements are refused: their numbers would count, and the result would have no mask."""

    MASKED = np.ma.array(np.ones((2, 2), np.float32), mask=[[False, True], [False, False]])
    PLAIN = np.ones((2, 2), np.float32)
    TOLD = r" must have no masked elements; 1 of 4 are: pass \w+\.filled\(0\)"

    @pytest.mark.parametrize("product", [gp.gemm, gp.matmul])
    def test_are_refused_by_name(self, where: dict[str, Any], product: Any) -> None:
        for a, b, name in ((self.MASKED, self.PLAIN, "a"), (self.PLAIN, self.MASKED, "b")):
            with pytest.raises(gp.ArrayError, match=f"^{name}{self.TOLD}"):
                product(a, b, **where)
        with pytest.raises(gp.ArrayError, match=f"^out{self.TOLD}"):
            product(self.PLAIN, self.PLAIN, out=self.MASKED.copy(), **where)
        with pytest.raises(gp.ArrayError, match=r"^a must have no masked elements; 1 of 1 are"):
            product([[1.0, np.ma.masked]], self.PLAIN, **where)

    def test_are_refused_wherever_arrays_go_in(self, best_backend: gp.Backend, where: dict[str, Any]) -> None:
        with pytest.raises(gp.ArrayError, match=f"^c{self.TOLD}"):
            gp.gemm(self.PLAIN, self.PLAIN, beta=1.0, c=self.MASKED, **where)
        with pytest.raises(gp.ArrayError, match=f"^a{self.TOLD}"):
            gp.gemm([self.PLAIN, self.MASKED], self.PLAIN, **where)
        with pytest.raises(gp.ArrayError, match=f"^data{self.TOLD}"):
            best_backend.asarray(self.MASKED)
        on_device = best_backend.asarray(self.PLAIN)
        with pytest.raises(gp.ArrayError, match=f"^values{self.TOLD}"):
            on_device.set(self.MASKED)
        for product in (gp.gemm, gp.matmul):
            with pytest.raises(gp.ArrayError, match=f"^b{self.TOLD}"):
                product(on_device, self.MASKED)
        plan = gp.plan(gp.GemmProblem.create(2, 2, 2), best_backend.device)
        with pytest.raises(gp.ArrayError, match=f"^b{self.TOLD}"):
            gp.run(plan, self.PLAIN, self.MASKED)

    @pytest.mark.parametrize("scalar", [np.ma.masked, np.ma.array(3.0, mask=True)], ids=["masked", "one element"])
    def test_of_scalars_are_refused(self, where: dict[str, Any], scalar: Any) -> None:
        with pytest.raises(gp.DtypeError, match="alpha is masked"):
            gp.gemm(self.PLAIN, self.PLAIN, alpha=scalar, **where)
        with pytest.raises(gp.DtypeError, match="beta is masked"):
            gp.gemm(self.PLAIN, self.PLAIN, beta=scalar, c=self.PLAIN, **where)

    @pytest.mark.parametrize("mask", [np.ma.nomask, [[False, False], [False, False]]])
    def test_of_nothing_hide_nothing(self, where: dict[str, Any], mask: Any) -> None:
        a = np.ma.array(self.PLAIN, mask=mask)
        np.testing.assert_array_equal(gp.gemm(a, a, **where), self.PLAIN @ self.PLAIN)
        tall = np.ma.concatenate([a, a[:1]])  # whose masks do not broadcast with those of the other operand
        product = gp.matmul(tall, self.PLAIN, **where)
        assert type(product) is np.ma.MaskedArray
        assert not np.ma.is_masked(product)
        np.testing.assert_array_equal(product.data, tall.data @ self.PLAIN)
