"""Result files of the matrix: nothing is lost, nothing is believed that is not whole, and several become one."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gemmport as gp
from gemmport.core.errors import RecordError
from gemmport.matrix.record import FAILED, STATUSES, Header, Journal, Record, Status, Verdict, merge, read
from gemmport.matrix.record import Tested as Device
from gemmport.matrix.summary import exit_status, summarize
from made_up_devices import DEVICES

HEADER = Header("1.2.3", "quick", (1, 1), "2026-01-02T03:04:05+00:00", {"cpu": "a"})
GPU = Device(
    "cuda/x/y", DEVICES["NVIDIA sm_90 under CUDA"], "a GPU", {"driver": "1"}, ({"cpu": "a"},), 4, "gemmport matrix"
)


def verdict(cell: str, status: Status = "verified", **more: Any) -> Verdict:
    kernel, types, ops, shape, scalars = cell.split("/")
    reason = "" if status == "verified" else f"because of {status}"
    return Verdict(
        more.pop("on", GPU.id), cell, kernel, types, ops, shape, scalars, 3, 5, 7, 1, "exact", status,
        more.pop("reason", reason), 0.25, f"gemmport matrix --cell {cell}", **more,
    )  # fmt: skip


ONE, TWO, THREE = (f"naive/float32/NN/{shape}/a1b0" for shape in ("odd", "tiny", "large"))


def written(path: Path, *items: Device | Verdict, header: Header = HEADER) -> Path:
    journal = Journal(header, path)
    for item in items:
        journal.add(item)
    journal.close()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.jsonl"


class TestJournal:
    def test_is_read_as_it_was_written(self, path: Path) -> None:
        timed = verdict(THREE, gflops=12.5, baselines={"numpy": {"gflops": 25.0, "ratio": 0.5, "status": "verified"}})
        items = (GPU, verdict(ONE, "wrong", reason="ü\n</script> \u2028"), verdict(TWO, quirk="q"), timed)
        found = read(written(path, *items))
        assert found.header == HEADER
        assert found.devices == {GPU.id: GPU}
        assert list(found.verdicts.values()) == list(items[1:])
        assert json.loads(json.dumps(found.to_dict()))["cells"][2]["baselines"]["numpy"]["ratio"] == 0.5

    def test_has_each_line_when_it_is_added(self, path: Path) -> None:
        journal = Journal(HEADER, path)
        for number, item in enumerate((GPU, verdict(ONE), verdict(TWO)), 2):
            journal.add(item)
            assert len(path.read_text("utf-8").splitlines()) == number
        journal.close()

    def test_goes_on_with_what_is_there(self, path: Path) -> None:
        written(path, GPU, verdict(ONE))
        later = replace(HEADER, started="2027-01-01T00:00:00+00:00")
        journal = Journal(later, path)
        assert [found.cell for found in journal.record.on(GPU.id)] == [ONE]
        journal.add(GPU)
        journal.add(verdict(TWO))
        journal.close()
        assert len(path.read_text("utf-8").splitlines()) == 4  # the device is not told twice
        assert [found.cell for found in read(path).on(GPU.id)] == [ONE, TWO]

    @pytest.mark.parametrize("torn", ['{"on": "cuda/x/y", "ce', '{"on"', "\x00\x00"])
    def test_forgets_a_line_that_was_torn(self, path: Path, torn: str) -> None:
        written(path, GPU, verdict(ONE))
        with path.open("a", encoding="utf-8") as file:
            file.write(torn)
        assert [found.cell for found in read(path).on(GPU.id)] == [ONE]
        written(path, verdict(TWO))
        assert [found.cell for found in read(path).on(GPU.id)] == [ONE, TWO]

    @pytest.mark.parametrize(
        "line",
        [
            "nonsense", "[]", "{}", '{"on": "nowhere", "cell": "x"}', '{"on": "nowhere", "lost": "x"}',
            json.dumps({**verdict(ONE).to_dict(), "status": "great"}), json.dumps({**verdict(ONE).to_dict(), "on": "nowhere"}),
        ],
    )  # fmt: skip
    def test_refuses_a_file_that_is_damaged(self, path: Path, line: str) -> None:
        written(path, GPU)
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        with pytest.raises(RecordError, match="line 3"):
            read(path)

    @pytest.mark.parametrize("content", ["", "no newline", "[]\n", '{"schema": 2}\n', '{"schema": 1}\n'])
    def test_refuses_a_file_that_is_none(self, path: Path, content: str) -> None:
        path.write_text(content, encoding="utf-8")
        with pytest.raises(RecordError):
            read(path)

    def test_begins_in_an_empty_file(self, path: Path) -> None:
        path.touch()
        assert read(written(path, GPU)).devices

    @pytest.mark.parametrize(
        "other",
        [
            replace(HEADER, scope="full"), replace(HEADER, shard=(1, 2)), replace(HEADER, gemmport="1.2.4"),
            replace(HEADER, chosen={"kernels": ["naive"]}),
        ],
    )  # fmt: skip
    def test_does_not_go_on_with_something_else(self, path: Path, other: Header) -> None:
        before = written(path, GPU, verdict(ONE)).read_bytes()
        with pytest.raises(RecordError, match="name another file"):
            Journal(other, path)
        assert path.read_bytes() == before

    def test_remembers_a_lost_device_until_it_is_there_again(self, path: Path) -> None:
        journal = Journal(HEADER, path)
        journal.add(GPU)
        journal.lose(GPU.id, "it fell off the bus")
        journal.close()
        assert read(path).devices[GPU.id].lost == "it fell off the bus"
        assert read(written(path, GPU)).devices[GPU.id].lost == ""


def record(*items: Device | Verdict, header: Header = HEADER) -> Record:
    made = Record(header)
    for item in items:
        made.add(item)
    return made


class TestMerging:
    def test_unites_shards(self) -> None:
        first, second = (replace(HEADER, shard=(number, 2), started=f"2026-01-0{number}") for number in (1, 2))
        merged = merge(
            [
                record(replace(GPU, cells=2), verdict(ONE), header=second),
                record(replace(GPU, cells=2, environments=({"cpu": "b"},)), verdict(TWO), verdict(THREE), header=first),
            ]
        )
        (summary,) = summarize(merged)
        assert (summary.tested.cells, summary.done, summary.left) == (4, 3, 1)
        assert summary.tested.environments == ({"cpu": "a"}, {"cpu": "b"})
        assert merged.header.started == "2026-01-01"
        assert [source["shard"] for source in merged.header.sources] == [(2, 2), (1, 2)]

    def test_counts_what_two_runs_of_the_same_did_once(self) -> None:
        merged = merge([record(GPU, verdict(ONE)), record(GPU, verdict(ONE), verdict(TWO))])
        (summary,) = summarize(merged)
        assert (summary.done, summary.left) == (2, 2)

    @pytest.mark.parametrize("backwards", [False, True])
    def test_keeps_the_worse_of_two_verdicts(self, backwards: bool) -> None:
        for better, worse in itertools.pairwise(STATUSES):
            records = [record(GPU, verdict(ONE, better)), record(GPU, verdict(ONE, worse))]
            merged = merge(reversed(records) if backwards else records)
            assert merged.verdicts[GPU.id, ONE].status == worse

    def test_keeps_devices_apart(self) -> None:
        other = replace(GPU, id="opencl/z/y")
        merged = merge([record(GPU, verdict(ONE)), record(other, verdict(ONE, "wrong", on=other.id))])
        assert [summary.verdict for summary in summarize(merged)] == ["3 left", "1 failed"]

    def test_of_merged_records_is_that_of_all(self, path: Path) -> None:
        shards = [
            record(replace(GPU, cells=2), verdict(cell), header=replace(HEADER, shard=(number, 3)))
            for number, cell in enumerate((ONE, TWO, THREE), 1)
        ]
        merge(shards[:2]).write(path)
        both = merge([read(path), shards[2]])
        at_once = merge(shards)
        assert both.verdicts == at_once.verdicts
        assert both.devices == at_once.devices
        assert (both.devices[GPU.id].cells, len(both.header.sources)) == (6, 3)

    def test_of_nothing_is_refused(self) -> None:
        with pytest.raises(RecordError):
            merge([])

    def test_makes_no_record_to_go_on_with(self, path: Path) -> None:
        merge([record(GPU)]).write(path)
        with pytest.raises(gp.GemmportError, match="merged"):
            Journal(HEADER, path)


class TestSummary:
    def test_counts(self) -> None:
        made = record(
            GPU, verdict(ONE), verdict(TWO, "unsupported", reason="too old", quirk="q"),
            verdict(THREE, gflops=3.0, baselines={"a": {"gflops": None, "ratio": None}, "b": {"gflops": 6.0, "ratio": 0.5}}),
            verdict("tiled/float32/NN/odd/a1b0", reason="right in a process of its own"),
        )  # fmt: skip
        (summary,) = summarize(made)
        assert summary.counts == {"verified": 3, "unsupported": 1}
        assert (summary.left, summary.failures, summary.verdict) == (0, [], "all verified")
        assert summary.unsupported == [("too old", 1)]
        assert [(rate.gflops, rate.ratios) for rate in summary.rates] == [(3.0, {"b": 0.5})]
        assert [found.kernel for found in summary.retried] == ["tiled"]
        assert summary.quirks == {"q": 1}
        assert summary.grid()["naive", "float32"] == {"verified": 2, "unsupported": 1}
        assert set(summary.grid("ops", "shape")) == {("NN", "odd"), ("NN", "tiny"), ("NN", "large")}
        assert exit_status([summary]) == 0

    def test_puts_the_worst_first(self) -> None:
        cells = ("odd", "tiny", "prime", "past")
        made = record(GPU, *(verdict(f"naive/int8/NN/{c}/a1b0", s) for c, s in zip(cells, FAILED, strict=True)))
        (summary,) = summarize(made)
        assert [failure.status for failure in summary.failures] == list(reversed(FAILED))
        assert (summary.verdict, exit_status([summary])) == ("4 failed", 1)

    def test_of_what_is_not_done(self) -> None:
        (left,) = summarize(record(GPU, verdict(ONE)))
        assert (left.left, left.verdict, exit_status([left])) == (3, "3 left", 4)
        (lost,) = summarize(record(replace(GPU, lost="gone"), verdict(ONE)))
        assert (lost.verdict, exit_status([lost])) == ("lost", 1)
        (none,) = summarize(record(replace(GPU, cells=1), verdict(ONE, "unsupported")))
        assert none.verdict == "nothing verified"
