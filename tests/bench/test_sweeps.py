"""The file of a sweep: what is written is read, what is cut off is left out, what is broken is told with its line."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmport.bench.comparison import read_results
from gemmport.bench.standings import Workload
from gemmport.bench.sweeps import Swept, Timed, header, read_sweep
from gemmport.core.errors import RecordError
from gemmport.core.problem import GemmProblem
from gemmport.matrix import record
from made_up_devices import DEVICES

DEVICE = DEVICES["AMD gfx90a"]

extents = st.integers(1, 5000)
problems = st.builds(
    GemmProblem.create,
    extents,
    extents,
    extents,
    batch=st.integers(1, 9),
    dtype=st.sampled_from(["float32", "complex64", "float16", "int8"]),
    trans_a=st.sampled_from("NTCR"),
    trans_b=st.sampled_from("NTCR"),
    beta=st.integers(-2, 2),
)
trials = st.builds(
    Timed,
    st.sampled_from(["naive", "direct"]),
    st.dictionaries(st.sampled_from(["TSM", "ARRANGE"]), st.integers(1, 512) | st.sampled_from(["quads"])),
    st.floats(1e-9, 1e3),
    st.sampled_from([None, True, False]),
)
sweeps = st.lists(
    st.builds(
        Swept, st.builds(Workload, problems, st.text(max_size=9), st.text(max_size=9)), st.lists(trials).map(tuple)
    ),
    min_size=1,
    max_size=4,
)

TINY = Swept(Workload(GemmProblem.create(4, 4, 4), "tiny"), (Timed("naive", {"TS": 8}, 1e-6),))


@given(swept=sweeps)
def test_what_is_written_is_read(tmp_path_factory, swept):
    path = tmp_path_factory.mktemp("sweep") / "s.jsonl"
    path.write_text(header(DEVICE, {"cpu": "none"}) + "".join(one.to_line() for one in swept), encoding="utf-8")
    found = read_sweep(path)
    assert (found.device, found.environment, list(found.swept)) == (DEVICE, {"cpu": "none"}, swept)


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_text(header(DEVICE, {}) + TINY.to_line() + TINY.to_line()[:-20], encoding="utf-8")
    assert read_sweep(path).swept == (TINY,)


@pytest.mark.parametrize("kept", [0, 20])
def test_a_file_without_workloads_is_refused(tmp_path, kept):
    path = tmp_path / "s.jsonl"
    path.write_text(header(DEVICE, {}) + TINY.to_line()[:kept], encoding="utf-8")
    with pytest.raises(RecordError, match=r"s\.jsonl: no workload is in it"):
        read_sweep(path)


def changed(line, **fields):
    return json.dumps({**json.loads(line), **fields}) + "\n"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("{\n", TINY.to_line(), "line 1 must be a line of a sweep; got no JSON; name a file that gemmport tune or"),
        ("[]\n", TINY.to_line(), "line 1 must be a line of a sweep"),
        (changed(header(DEVICE, {}), schema=2), TINY.to_line(), "line 1 must .*schema 2 is not 1"),
        (changed(header(DEVICE, {}), device={}), TINY.to_line(), "line 1 must be a line"),
        (header(DEVICE, {}), "{}\n", "line 2 must .*KeyError: 'problem'"),
        (header(DEVICE, {}), changed(TINY.to_line(), timed=[{"kernel": "naive"}]), "line 2 must .*missing"),
        (header(DEVICE, {}), changed(TINY.to_line(), timed=[{"kernel": "naive", "parameters": {}, "seconds": 0}]),
         "line 2 must .*a candidate took no time"),
    ],
)  # fmt: skip
def test_a_broken_line_is_told_with_its_number(tmp_path, first, second, message):
    path = tmp_path / "s.jsonl"
    path.write_text(first + second, encoding="utf-8")
    with pytest.raises(RecordError, match=message):
        read_sweep(path)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(RecordError, match="cannot be read"):
        read_sweep(tmp_path / "none.jsonl")


@pytest.mark.parametrize("reader", [read_sweep, record.read, read_results], ids=lambda reader: reader.__module__)
def test_a_line_that_nests_too_deep_for_json_is_told(tmp_path, reader):
    path = tmp_path / "deep.jsonl"
    path.write_text("[" * 100_000 + "\n", encoding="utf-8")
    with pytest.raises(RecordError, match=re.escape(str(path))):
        reader(path)
