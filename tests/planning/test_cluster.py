"""What is predicted of a product on a cluster: by hand, at the limits, and beside the least that any schedule moves."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

import gemmport as gp
from gemmport.contracts.named_devices import chip_of
from gemmport.core.errors import DeviceMemoryError, ParameterError, ShapeError
from gemmport.core.problem import GemmProblem
from gemmport.planning.cluster import (
    PANEL,
    SCHEDULES,
    Bound,
    Cluster,
    ClusterExplanation,
    Grid,
    Layout,
    Moved,
    explain_cluster,
    grids,
    layouts,
    nodes_needed,
)
from gemmport.planning.lookup import load_configuration

H200 = chip_of("H200")
CUBE = GemmProblem.create(65536, 65536, 65536)
WIRED = Cluster(nodes=8, gpus=8, link=450e9, net=50e9)


def explained(cluster: Cluster, problem: GemmProblem = CUBE) -> ClusterExplanation:
    return explain_cluster(problem, cluster, H200, load_configuration())


def by_name(found: ClusterExplanation) -> dict[str, object]:
    return {each.name: each for each in found.schedules}


# A cluster in words


def test_a_cluster_is_read_from_its_description() -> None:
    found = Cluster.parse("nodes=64, gpus=8,link=450GB/s,net=400Gb/s,memory=80GiB")
    assert found == Cluster(64, 8, 450e9, 50e9, 80 * 2**30)
    assert found.devices == 512
    assert Cluster.parse("nodes=1") == Cluster(1)
    assert Cluster.parse("nodes=2,net=12.5e9").net == 12.5e9


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must state nodes"), ("gpus=8", "must state nodes"),
        ("nodes", "KEY=VALUE of nodes, gpus, link, net, memory; got 'nodes'"),
        ("nodes=2,speed=3", "got 'speed=3'"), ("nodes=two", "nodes must be a whole number"), ("nodes=0", "1 or more"),
        ("nodes=1000000000", "nodes must be a whole number from 1 to 131,072"),
        ("nodes=-1", "nodes must be a whole number"), ("nodes=2,nodes=3,net=1GB/s", "state nodes once"),
        ("nodes=2", "net must be the bandwidth between nodes"), ("nodes=2,net=0", "net must be the bandwidth"),
        ("nodes=1,gpus=2", "link must be the bandwidth between devices of a node"),
        ("nodes=2,net=fast", "net must be a number with a unit"),
        ("nodes=2,net=5XB/s", "such as 50GB/s; got '5XB/s'"), ("nodes=2,net=nan", "must be a number"),
        ("nodes=1,memory=80GB/s", "memory must be a number with a unit, such as 80GB"),
        ("nodes=999999,gpus=9,link=1,net=1", "at most 131,072"),
        ("nodes=2,net=1e999", "net must be the bandwidth"),
    ],
)  # fmt: skip
def test_a_description_that_says_nothing_of_a_cluster_is_told(text: str, told: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Cluster.parse(text)
    assert told in str(caught.value)


# By hand


def test_what_moves_on_a_grid_of_four() -> None:
    """2 × 2 devices, 1000 cubed: each has 500 × 500 of A and of B, and receives as many of each from one other."""
    layout = Layout(GemmProblem.create(1000, 1000, 1000), Grid(2, 2), Grid())
    assert layout.brick == (500, 500, 1000)
    moved = layout.moved()
    assert moved == {"A": Moved(500 * 500 * 4, 0), "B": Moved(500 * 500 * 4, 0), "C": Moved()}
    assert layout.memory() == {
        "A": 1e6, "B": 1e6, "C": 1e6, "panels": 2 * 1000 * (500 + 500) * 4, "sums of others": 0,
    }  # fmt: skip


def test_layers_add_up_their_sums() -> None:
    """Two layers of 1 × 1: no operand moves; each has half of the terms, and adds up half of C that the other sends."""
    layout = Layout(GemmProblem.create(100, 200, 400), Grid(1, 1, 2), Grid())
    assert layout.moved() == {"A": Moved(), "B": Moved(), "C": Moved(100 * 200 * 4 / 2, 0)}
    assert layout.memory() == {
        "A": 100 * 200 * 4, "B": 200 * 200 * 4, "C": 100 * 200 * 4, "panels": 0, "sums of others": 100 * 200 * 4 / 2,
    }  # fmt: skip


def test_a_node_fetches_each_element_once() -> None:
    """Rows of 4 devices, two of a node side by side: half of the panel is elsewhere, and each fetches half of that."""
    whole = 100 * 1000 * 4
    apart, together = (Layout(GemmProblem.create(100, 400, 1000), Grid(1, 4), Grid(1, on)) for on in (1, 2))
    assert apart.moved()["A"] == Moved(0.75 * whole, 0.0)
    assert together.moved()["A"] == Moved(0.25 * whole, 0.5 * whole)
    on_one = Layout(GemmProblem.create(100, 400, 1000), Grid(1, 4), Grid(1, 4)).moved()["A"]
    assert on_one == Moved(0.0, 0.75 * whole)


def test_sums_are_added_up_inside_of_nodes_first() -> None:
    whole = 100 * 100 * 4
    layout = Layout(GemmProblem.create(100, 100, 800), Grid(1, 1, 4), Grid(1, 1, 2))
    assert layout.moved()["C"] == Moved(0.25 * whole, 0.5 * whole)


def test_halves_move_as_halves_and_are_summed_in_float32() -> None:
    layout = Layout(GemmProblem.create(100, 100, 800, dtype="float16"), Grid(2, 1, 2), Grid())
    assert layout.moved()["B"].nbytes == 400 * 100 * 2 / 2
    assert layout.moved()["C"].nbytes == 50 * 100 * 4 / 2


def test_time_is_computing_beside_moving_then_what_nothing_hides() -> None:
    slow = replace(WIRED, net=1e9)
    found = explained(slow)
    for each in found.schedules:
        moved = each.moved["A"] + each.moved["B"]
        assert each.moving == max(moved.by_net / 1e9, moved.by_link / 450e9)
        assert each.filling == pytest.approx(each.moving / -(-each.brick[2] // each.panel))
        assert each.adding == max(each.moved["C"].by_net / 1e9, each.moved["C"].by_link / 450e9)
        assert each.seconds == max(each.computing, each.moving) + each.filling + each.adding
    assert found.best.seconds == min(each.seconds for each in found.schedules)


def test_a_precision_is_the_matrix_unit_s_and_operands_travel_as_they_are() -> None:
    rounded = replace(CUBE, precision="tf32")
    plain, found = (by_name(explained(WIRED, problem)) for problem in (CUBE, rounded))
    for name in SCHEDULES:
        assert found[name].computing < plain[name].computing
        assert found[name].moving == plain[name].moving


@pytest.mark.parametrize(
    ("dtype", "precision", "peak", "told"),
    [
        ("float32", "full", 66.9, "66.9 TFLOPS a device in float32\n"),
        ("float16", "full", 989, "a device in float16 by the matrix unit\n"),
        ("float32", "tf32", 495, "a device in tf32 by the matrix unit\n"),
        ("complex64", "full", 66.9, "66.9 TFLOPS a device in complex64\n"),
    ],
)
def test_a_peak_is_that_of_the_units_that_multiply(dtype: str, precision: str, peak: float, told: str) -> None:
    """By the data sheet; what the model takes of the matrix unit's peak is what it was measured to reach."""
    found = explained(WIRED, GemmProblem.create(65536, 65536, 65536, dtype=dtype, precision=precision))
    assert 0.8 * peak <= found.peak / 1e12 <= 1.01 * peak
    assert found.by_unit == ("matrix unit" in told)
    assert told in str(found)
    assert 0.5 < found.at_best / found.best.seconds <= 1


def test_computing_is_what_the_kernel_s_model_predicts() -> None:
    found = explained(Cluster(nodes=1), GemmProblem.create(4096, 4096, 4096))
    alone = gp.explain((4096, 4096, 4096), H200, config=None).prediction
    assert alone is not None
    assert found.best.computing == alone.seconds


# COSMA's bound


def test_the_bound_by_hand() -> None:
    cube = GemmProblem.create(1024, 1024, 1024)
    much = Bound.of(cube, 8, 1e9)  # bricks of 512 cubed, three faces each
    assert much.touched == pytest.approx(3 * 512**2)
    assert much.own == 3 * 1024**2 / 8
    assert much.elements == pytest.approx(3 * 512**2 - 3 * 1024**2 / 8)
    little = Bound.of(cube, 8, 10_000)  # 2 · 2²⁷ / 100 + 10,000
    assert little.touched == pytest.approx(2 * 2**27 / 100 + 10_000)
    assert Bound.of(cube, 1, 1e9).elements == pytest.approx(0, abs=1e-3)
    assert Bound.of(GemmProblem.create(10, 1000, 30), 1, 1e9).elements == 0


@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (64, 65536, 512), (8192, 8, 8192), (100, 100, 10**6)], ids=str)
@pytest.mark.parametrize(
    "cluster", [Cluster(2, 2, 1e9, 1e9), Cluster(16, net=1e9), Cluster(3, 8, 1e9, 1e9), Cluster(1, 6, 1e9)], ids=str
)
def test_no_schedule_moves_less_than_the_bound(sizes: tuple[int, int, int], cluster: Cluster) -> None:
    problem = GemmProblem.create(*sizes)
    for name in SCHEDULES:
        for layout in layouts(name, problem, cluster):
            bound = Bound.of(problem, cluster.devices, layout.nbytes / 4).elements
            received = sum(each.nbytes for each in layout.moved().values()) / 4
            assert received >= bound * (1 - 1e-9), layout


# Limits


@pytest.mark.parametrize("problem", [CUBE, GemmProblem.create(1000, 30, 7)], ids=str)
def test_one_device_receives_nothing(problem: GemmProblem) -> None:
    for each in explained(Cluster(nodes=1), problem).schedules:
        assert each.traffic == Moved()
        assert each.nbytes == problem.bytes
        assert each.seconds == each.computing


def test_one_layer_is_two_dimensions() -> None:
    two = set(grids("2-D", 64))
    assert two == {grid for grid in grids("2.5-D", 64) if grid.layers == 1}
    small = replace(WIRED, memory=int(1.05 * explained(WIRED).schedules[1].nbytes))
    found = by_name(explained(small))
    assert replace(found["2.5-D"], name="2-D") == found["2-D"]  # type: ignore[type-var]
    assert found["2-D"].grid.layers == 1  # type: ignore[attr-defined]


def test_layers_pay_where_a_network_is_slow_and_there_is_memory() -> None:
    found = explained(Cluster(64, net=1e9))
    one, two, layered = found.schedules
    assert layered.grid.layers > 1
    assert layered.traffic.nbytes < two.traffic.nbytes < one.traffic.nbytes
    assert layered.nbytes > two.nbytes
    assert found.best is layered


def test_a_line_is_one_of_three() -> None:
    assert {str(grid) for grid in grids("1-D", 4)} == {"4 × 1", "1 × 4", "1 × 1 × 4"}
    deep = explained(Cluster(4, net=1e9), GemmProblem.create(512, 512, 2**20)).schedules[0]
    assert deep.grid == Grid(1, 1, 4)
    assert deep.moved["A"] == deep.moved["B"] == Moved()
    assert deep.panel == 2**18  # nothing comes in panels
    wide = explained(Cluster(4, net=1e9), GemmProblem.create(512, 2**18, 512)).schedules[0]
    assert wide.grid == Grid(1, 4, 1)


def test_more_of_a_cluster_takes_no_longer() -> None:
    times = [explained(replace(WIRED, nodes=nodes)).best.seconds for nodes in (1, 2, 4, 8, 16)]
    assert times == sorted(times, reverse=True)
    rates = [explained(replace(WIRED, net=rate)).best.seconds for rate in (1e9, 5e9, 25e9)]
    assert rates == sorted(rates, reverse=True)
    sizes = [explained(WIRED, GemmProblem.create(m, 65536, 65536)).best.seconds for m in (16384, 32768, 65536)]
    assert sizes == sorted(sizes)


def test_what_has_no_room_is_refused_by_name_with_the_nodes_that_it_takes() -> None:
    small = replace(WIRED, nodes=1, memory=2 * 10**9)
    with pytest.raises(DeviceMemoryError) as caught:
        explained(small)
    told = str(caught.value)
    assert "float32 NN 65536×65536×65536 on 1 node of 8 × NVIDIA H200 must have " in told
    assert "got 2 GB: " in told
    needed = min(n for name in SCHEDULES if (n := nodes_needed(name, CUBE, small, small.memory)))
    assert f": {needed} nodes would do, " in told
    fitting = explained(replace(small, nodes=needed))
    assert fitting.best.nbytes <= small.memory
    for fewer in range(1, needed):
        with pytest.raises(DeviceMemoryError):
            explained(replace(small, nodes=fewer))


def test_what_has_no_room_is_told_before_a_kernel_is_looked_for() -> None:
    """No kernel computes so many rows at once, on however many nodes."""
    problem = GemmProblem.create(2147418112, 2147418112, 64, dtype="float16")
    with pytest.raises(DeviceMemoryError, match="nodes would do"):
        explained(Cluster(nodes=1, gpus=8, link=450e9, memory=80 * 2**30), problem)


def test_a_schedule_that_has_no_room_beside_others_that_have_says_so() -> None:
    tight = explained(replace(WIRED, memory=int(explained(WIRED).schedules[0].nbytes) - 1))
    one = tight.schedules[0]
    assert one.nodes_needed is not None
    assert one.nodes_needed > WIRED.nodes
    assert "1-D has no room: " in str(tight)
    assert tight.best.name != "1-D"
    assert [each["fits"] for each in tight.to_dict()["schedules"]] == [False, True, True]


def test_panels_bound_memory() -> None:
    layout = Layout(GemmProblem.create(8192, 8192, 2**20), Grid(2, 2), Grid())
    assert layout.panel == PANEL
    assert layout.steps == 2**20 // PANEL
    assert layout.memory()["panels"] == 2 * PANEL * 4 * (4096 + 4096)


@pytest.mark.parametrize("problem", [GemmProblem.create(8, 8, 8, batch=2), GemmProblem.create(0, 8, 8)], ids=str)
def test_a_batch_and_a_product_of_nothing_are_refused(problem: GemmProblem) -> None:
    with pytest.raises(ShapeError, match="a product must be one"):
        explained(WIRED, problem)


# Told


def test_the_page_and_the_data_tell_the_same() -> None:
    found = explained(WIRED)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    page = str(found)
    assert data["best"] == found.best.name
    assert [each["name"] for each in data["schedules"]] == list(SCHEDULES)
    assert page.splitlines()[0] == "float32 NN 65536×65536×65536 on 8 nodes of 8 × NVIDIA H200"
    for each, told in itertools.zip_longest(found.schedules, data["schedules"]):
        assert told["seconds"] == each.seconds
        assert told["traffic"]["bytes"] == each.traffic.nbytes
        assert told["memory"]["bytes"] == each.nbytes
        (row,) = [
            line for line in page.splitlines() if line.split()[:1] == [each.name] or f"schedules  {each.name} " in line
        ]
        assert str(each.grid) in row
    assert "Kwasniewski et al. 2019" in page


def test_the_library_explains_a_cluster_by_its_description() -> None:
    found = gp.explain_cluster((65536, 65536, 65536), "nodes=8,gpus=8,link=450GB/s,net=50GB/s", "H200")
    assert found.to_dict() == explained(WIRED).to_dict()
    assert gp.explain_cluster(CUBE, WIRED, H200).to_dict() == explained(WIRED).to_dict()
    half = gp.explain_cluster((4096, 4096, 4096), WIRED, H200, dtype="float16", trans_b="T")
    assert (half.problem.dtype.name, half.problem.trans_b) == ("float16", "T")
