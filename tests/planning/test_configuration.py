"""Configuration: faults are told with file, entry, key, value and rule; the most specific entry of the first source wins."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import gemmport as gp
from gemmport import backends, configs, kernels
from gemmport.contracts.device_model import derived
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ConfigError
from gemmport.core.problem import GemmProblem
from gemmport.planning import lookup, parser
from gemmport.planning.lookup import Configuration, load_configuration, load_file
from gemmport.planning.planner import make_plan
from gemmport.planning.precedence import precedence
from gemmport.planning.schema import PRECEDENCE, Entry, Loaded, LoadedEntry, LoadedModel, Match, Provenance
from gemmport.runtime import sources, userfile
from made_up_devices import DEVICES

DEVICE = DEVICES["AMD gfx90a"]
TUNED = {"tuned": False}


def entry(name: str = "mine", /, *, kernel: str = "naive", params: dict[str, Any] | None = None, **match: Any) -> Any:
    return {"name": name, "match": match, "kernels": {kernel: params or {}}, "provenance": TUNED}


def document(*entries: Any) -> dict[str, Any]:
    return {"schema": 1, "description": "of a test", "entries": list(entries)}


def write(path: Path, *entries: Any) -> Path:
    path.write_text(yaml.safe_dump(document(*entries), sort_keys=False), encoding="utf-8")
    return path


def parse(text: str) -> list[LoadedEntry]:
    return list(parser.parse(text, "mine.yaml", "call").entries)


def configuration(*entries: Any) -> Configuration:
    return Configuration(tuple(parse(yaml.safe_dump(document(*entries)))))


# Faults

LANGUAGES = ", ".join(sources.languages())

KERNELS = "a mapping of kernels to their parameters, such as {tiled: {TS: 16}}"

JARGON = re.compile(r"Input|valid (string|integer|dictionary|tuple)|Value error|type=|<unicode")
"""What only those who know pydantic and PyYAML would understand."""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"kernles": {}},
            "entry 'mine': kernles is an unknown key: there are name, match, kernels, provenance, trials; did you mean",
        ),
        ({"match": {"devise": "x"}}, "entry 'mine': match.devise is an unknown key: there are device, architecture, "),
        ({"match": {"devise": "x"}}, ", ops, shape, precision; did you mean device?"),
        ({"match": {"zzz": "x"}}, "entry 'mine': match.zzz is an unknown key: there are device, "),
        (
            {"match": 5},
            "entry 'mine': match must be a mapping of keys to what they must be, such as {platform: pocl}; got 5",
        ),
        (
            {"provenance": {"tuned": False, "by": "me"}},
            "entry 'mine': provenance.by is an unknown key: there are tuned, ",
        ),
        ({"provenance": [1]}, "entry 'mine': provenance must be a mapping, such as {tuned: false}; got [1]"),
        ({"kernels": 5}, f"entry 'mine': kernels must be {KERNELS}; got 5"),
        ({"kernels": {}}, f"entry 'mine': kernels must be {KERNELS}; got {{}}"),
        (
            {"kernels": {"naive": [8]}},
            "entry 'mine': kernels.naive must be a mapping of parameters to values, or a list of such; got [8]",
        ),
        (
            {"kernels": {"naive": None}},
            "kernels.naive must be a mapping of parameters to values, or a list of such; got None; write naive: {} for its",
        ),
        ({"kernels": {"naive": {"TS": 8.5}}}, "entry 'mine': naive: TS = 8.5 is not allowed"),
        ({"kernels": {"naive": {"TS": True}}}, "entry 'mine': naive: TS = True is not allowed"),
        ({"kernels": {"naive": {"TS": None}}}, "entry 'mine': naive: TS = None is not allowed"),
        ({"kernels": {5: {}}}, "entry 'mine': kernels: no kernel 5: there are naive, tiled"),
        (
            {"match": {"device": 5}},
            "entry 'mine': match.device must be a text, or a list of texts; got 5; write it in quotes",
        ),
        ({"match": {"device": ["x", {}]}}, "entry 'mine': match.device must be a text, or a list of texts; got {}"),
        (
            {"match": {"dtype": "float23"}},
            "match.dtype must be one of float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64, complex64, ",
        ),
        ({"match": {"dtype": "float23"}}, ", bool; got 'float23'; did you mean float32?"),
        (
            {"match": {"shape": "tall"}},
            "match.shape must be one of empty, vector, small, skinny, medium, large; got 'tall'; did you mean small?",
        ),
        ({"match": {"ops": "NX"}}, "entry 'mine': match.ops must be a pair of N, T, C, R, such as NT; got 'NX'"),
        (
            {"match": {"type": "gup"}},
            "entry 'mine': match.type must be one of gpu, cpu, accelerator; got 'gup'; did you mean gpu?",
        ),
        ({"match": {"backend": "vulkan"}}, f"entry 'mine': match.backend must be one of {LANGUAGES}; got 'vulkan'"),
        (
            {"match": {"backend": ["cuda", "opengl"]}},
            f"match.backend must be one of {LANGUAGES}; got 'opengl'; did you mean opencl?",
        ),
        ({"match": {"version": "new"}}, "match.version must be a range of versions, such as '>=3.1,<4'; got 'new'"),
        ({"match": {"version": "3.1"}}, "match.version must be a range of versions, such as '>=3.1,<4'; got '3.1'"),
        ({"match": {"version": 3}}, "entry 'mine': match.version must be a text; got 3; write it in quotes"),
        ({"provenance": {"tuned": "maybe"}}, "entry 'mine': provenance.tuned must be true or false; got 'maybe'"),
        ({"provenance": {"modelled": 1}}, "entry 'mine': provenance.modelled must be true or false; got 1"),
        (
            {"provenance": {"tuned": True, "modelled": True}},
            "entry 'mine': provenance must be tuned or modelled, not both; got {'modelled': True, 'tuned': True}",
        ),
        ({"name": 5}, "entry number 2: name must be a text that is not empty; got 5; write it in quotes"),
        ({"name": ""}, "entry number 2: name must be a text that is not empty; got ''"),
        ({"kernels": {"naiv": {}}}, "entry 'mine': kernels: no kernel 'naiv': there are naive, tiled"),
        ({"kernels": {"naiv": {}}}, "; did you mean naive?"),
        ({"kernels": {"naive": {"TSM": 8}}}, "entry 'mine': naive has no parameter TSM: it has TS; did you mean TS?"),
        (
            {"kernels": {"register_tiled": {"wptn": 8}}},
            "register_tiled has no parameter wptn: it has TSM, TSN, TSK, WPTM, WPTN, ARRANGE, PAD; did you mean WPTN?",
        ),
        (
            {"kernels": {"naive": {"TS": 33}}},
            "entry 'mine': naive: TS = 33 is not allowed: it is a whole number from 1 to 32",
        ),
        ({"kernels": {"naive": {"TS": "8"}}}, "entry 'mine': naive: TS = '8' is not allowed"),
        (
            {"kernels": {"register_tiled": {"TSM": 100, "WPTM": 8}}},
            "entry 'mine': register_tiled: TSM = 100, WPTM = 8: the rule is TSM % WPTM = 0",
        ),
        (
            {"kernels": {"naive": {}, "register_tiled": {"WPTM": 3}}},
            "entry 'mine': register_tiled: TSM = 64, WPTM = 3: the rule is TSM % WPTM = 0",
        ),
    ],
    ids=str,
)
def test_a_fault_in_an_entry_is_told_with_file_entry_key_value_and_rule(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    path = write(tmp_path / "mine.yaml", entry("fine"), {**entry(), **change})
    with pytest.raises(ConfigError) as caught:
        load_file(path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    assert any(told in line for line in lines)
    assert not JARGON.search(str(caught.value))


@pytest.mark.parametrize(
    ("key", "told"),
    [("name", "entry number 1: name is missing: add a text that is not empty"),
     ("kernels", f"entry 'mine': kernels is missing: add {KERNELS}")],
)  # fmt: skip
def test_a_missing_key_of_an_entry_is_named(key: str, told: str) -> None:
    broken = entry()
    del broken[key]
    with pytest.raises(ConfigError) as caught:
        configuration(broken)
    assert str(caught.value) == f"mine.yaml: {told}"


def test_a_file_needs_no_description_and_an_entry_no_provenance() -> None:
    (loaded,) = parse("schema: 1\nentries:\n- {name: mine, kernels: {naive: {}}}")
    assert loaded.entry.provenance == Provenance(tuned=False)
    (loaded,) = parse("schema: 1\nentries:\n- {name: mine, kernels: {naive: {}}, provenance: {note: mine}}")
    assert loaded.entry.provenance == Provenance(tuned=False, note="mine")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a configuration must be a mapping with the keys schema and entries, models or precision; got None"),
        (
            "- 1\n- 2",
            "a configuration must be a mapping with the keys schema and entries, models or precision; got [1, 2]",
        ),
        ("entries: []", "schema must be 1; got None; write schema: 1"),
        ("schema: one", "schema must be 1; got 'one'; write schema: 1"),
        ("schema: 0", "schema must be 1; got 0; write schema: 1"),
        ("schema: yes", "schema must be 1; got True; write schema: 1"),
        ("schema: 1.0", "schema must be 1; got 1.0; write schema: 1"),
        ("schema: 2.5", "schema must be 1; got 2.5; write schema: 1"),
        ("schema: 2\nanything: else", "schema 2 is newer than this gemmport, which knows 1: upgrade gemmport"),
        (
            "schema: 1\ndescription: x",
            "entries is missing: add a list of entries, each with a name and kernels, or one of models",
        ),
        (
            "schema: 1\ndescription: x\nentries: 5",
            "entries must be a list of entries, each with a name and kernels; got 5",
        ),
        ("schema: 1\ndescription: x\nentries: [5]", "entry number 1: it must be a mapping; got 5"),
        (
            "schema: 1\ndescription: x\nentries: []\nextra: 1",
            "extra is an unknown key: there are schema, description, precision, entries, models",
        ),
        ("schema: 1\ndescription: 5\nentries: []", "description must be a text; got 5; write it in quotes"),
        (
            "schema:\n- [1\n]]",
            "this is not YAML: line 3, column 2: did not find expected key while parsing a block mapping, which begins in",
        ),
        (
            "schema: 1\n\tdescription: x",
            "this is not YAML: line 2, column 1: found a tab character that violates indentation",
        ),
        (
            "schema: !!python/object:os.system {}",
            "line 1: values must have no tag, such as !!str; got 'tag:yaml.org,2002:pyt",
        ),
        ("schema: 1\ndate: 2024-13-45", "this is not YAML"),
        ("schema: 1\nx: !!bool 1", "line 2: values must have no tag, such as !!str; got 'tag:yaml.org,2002:bool'"),
        ("x: !!seq [1]", "line 1: values must have no tag"),
        ("schema: 1\nx: " + "9" * 5000, "line 2: a text must have at most 2,000 characters; '9999"),
        ("schema: 0x" + "f" * 1990, "is newer than this gemmport"),
        ("schema: 1\nx: " + "1" + ":59" * 300 + ".5", "this is not YAML: int too large to convert to float"),
        ("x: " + "[" * 50_000, "line 1: lists and mappings must nest at most 32 deep; write it flatter"),
        ("- " * 50_000, "must nest at most 32 deep"),
        ("x: " + "{a: " * 33 + "1" + "}" * 33, "must nest at most 32 deep"),
        ("x: &a [[*a]]", "line 1: alias 'a' must not stand within what it stands for"),
        ("x: &a [1]\ny: &a [*a]", "line 2: alias 'a' must not stand within what it stands for"),
        ("x: *a", "this is not YAML: line 1, column 4: found undefined alias"),
        ('schema: 1\nx: "\\e[31m"', r"line 2: texts must have no control characters; got '\x1b': remove it"),
        ('schema: 1\n"\\x9b": 1', r"line 2: texts must have no control characters; got '\x9b'"),
        (
            "schema: 1\nx: a\x1bb",
            "this is not YAML: unacceptable character #x001b: control characters are not allowed at",
        ),
        ("schema: 1\ndescription: x\nentries: [" + "1, " * 30 + "]", "\n…, and more faults"),
    ],
)
def test_a_fault_of_a_whole_file_is_told(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert str(caught.value).startswith("mine.yaml: ")
    assert told in str(caught.value)
    assert not JARGON.search(str(caught.value))


LAUGHS = "a0: &a0 [ha]\n" + "".join(f"a{n}: &a{n} [{', '.join(9 * [f'*a{n - 1}'])}]\n" for n in range(1, 10))
"""Nine lists of nine aliases each: 9⁹ texts."""


@pytest.mark.parametrize(
    "bomb",
    [
        LAUGHS,
        LAUGHS.replace("[ha]", "{k: v}").replace("[*", "{<<: [*").replace("]\n", "]}\n"),
        "a: &a [" + "1, " * 2000 + "]\nb: [" + "*a, " * 2000 + "]\n",
    ],
    ids=["billion laughs", "merged", "quadratic"],
)
def test_aliases_that_stand_for_too_much_are_refused_before_they_are_written_out(bomb: str) -> None:
    with pytest.raises(
        ConfigError, match=r"line \d+: must have at most 262,144 values, aliases written out; split the file"
    ):
        parse(bomb)


def test_as_much_as_is_allowed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "[" * 31 + "]" * 31
    text = f"{{a: {deep}, b: {'x' * 2000}, c: &c [1, 2], d: [*c, *c]}}"
    for most in (47, 46):
        monkeypatch.setattr(userfile, "MOST_NODES", most)
        with suppress(ConfigError) if most == 47 else pytest.raises(ConfigError, match="at most 46 values"):
            assert userfile.load_yaml(text).data["d"] == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("value", "told"), [(10**5000, "a number of too many digits"), (["x" * 10**6] * 10, "['xxx"), ({"a": {}}, "{'a': {}}")],
    ids=["digits", "texts", "short"],
)  # fmt: skip
def test_a_value_is_told_in_few_words(value: Any, told: str) -> None:
    assert userfile.brief(value).startswith(told)
    assert len(userfile.brief(value)) < 1000


def test_of_what_is_wrong_little_is_told() -> None:
    """Neither texts nor how often they stand there make a message long."""
    shared = "x: &x " + "y" * 2000 + "\nschema: 1\ndescription: z\nentries:\n"
    with pytest.raises(ConfigError) as caught:
        parse(shared + "- {name: *x, *x : [" + "*x, " * 1000 + "]}\n" * 100)
    assert len(str(caught.value)) < 21 * 501


@given(st.text(st.sampled_from("a0:-[]{},&*!|>'\"\\#%?<=~._ \n\t1\x1b\x85\ud800é")))
def test_any_text_is_read_or_told(text: str) -> None:
    with suppress(ConfigError):
        userfile.load_yaml(text)


WRITTEN = [
    "!!bool",
    "!!int",
    "0x",
    "0b",
    "1:",
    "._",
    ".",
    "e",
    "2024-",
    "-01",
    "01",
    "T",
    "+",
    "_",
    "<<",
    "=",
    "*a",
    "&a",
    " ",
    ": ",
]


@given(st.lists(st.sampled_from(WRITTEN), max_size=8).map("".join))
def test_any_number_date_or_merge_is_read_or_told(text: str) -> None:
    with suppress(ConfigError):
        userfile.load_yaml(f"a: {{b: {text}}}")


@pytest.mark.parametrize(
    "change",
    [{"tuned": 1}, {"tuned": "yes"}, {"tuned": 0.0}, *({"tuned": True, "date": x} for x in (0, 1e9, True, "0", "now"))],
    ids=str,
)
def test_a_number_is_no_truth_value_and_no_date(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"entry 'mine': provenance\.{list(change)[-1]} must be "):
        configuration({**entry(), "provenance": change})


def test_a_date_may_be_quoted() -> None:
    for date in ("2026-11-21", dt.date(2026, 11, 21)):
        (loaded,) = configuration({**entry(), "provenance": {"tuned": True, "date": date}}).entries
        assert loaded.entry.provenance.date == dt.date(2026, 11, 21)


def test_a_path_that_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match="cannot be read: embedded null byte"):
        load_file("a\0b")


def test_no_more_of_a_file_is_read_than_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (userfile.MOST_BYTES + 1))
    for endless in (path, "/dev/zero"):
        with pytest.raises(ConfigError, match="cannot be read: it must have at most 4,194,304 bytes; split it"):
            load_file(endless)


def test_every_fault_of_a_file_is_told_at_once_in_the_order_of_the_file() -> None:
    """Those of keys and types, of names, of kernels and of their parameters."""
    two = {**entry("two"), "y": 2, "kernels": {"naiv": {}, "naive": {"TS": 99}, "tiled": {"TS": 0, "PADD": 1}}}
    with pytest.raises(ConfigError) as caught:
        configuration({**entry("one"), "match": {"version": 3}}, two, entry("one", params={"TS": "8"}))
    rules = [line.removeprefix("mine.yaml: ") for line in str(caught.value).splitlines()]
    begins = [
        "entry 'one': match.version must be a text; got 3",
        "entry 'two': y is an unknown key",
        "entry 'two': kernels: no kernel 'naiv'",
        "entry 'two': naive: TS = 99 is not allowed",
        "entry 'two': tiled has no parameter PADD: it has TS, PAD; did you mean PAD?",
        "entry 'two': tiled: TS = 0 is not allowed",
        "entry 'one': name must be unique in the file; got 'one' again: rename one",
        "entry 'one': naive: TS = '8' is not allowed",
    ]
    assert len(rules) == len(begins)
    assert all(rule.startswith(begin) for rule, begin in zip(rules, begins, strict=True))


def test_every_broken_rule_of_a_kernel_is_told() -> None:
    broken = entry(kernel="register_tiled", params={"TSM": 100, "WPTM": 8, "TSN": 60, "WPTN": 8})
    with pytest.raises(ConfigError) as caught:
        configuration(broken)
    assert "TSM = 100, WPTM = 8: the rule is TSM % WPTM = 0" in str(caught.value)
    assert "TSN = 60, WPTN = 8: the rule is TSN % WPTN = 0" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["schema: 1\nentries: [5]", "schema: [1", "schema: 1\ndate: 2024-13-45", "x: *a", "x: " + "[" * 50,
     "schema: 1\nentries:\n- {name: mine, kernels: {naiv: {}}}", None, b"\xff"],
    ids=["rule", "YAML", "date", "alias", "depth", "kernel", "no file", "not UTF-8"],
)  # fmt: skip
def test_a_traceback_tells_one_exception(tmp_path: Path, text: str | bytes | None) -> None:
    """What was caught on the way says nothing that the message does not."""
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_file(path)
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback") == 1
    assert str(caught.value) in shown


DOUBTS = [
    (
        {"platform": "pokl"},
        "platform 'pokl' is unknown: there are pocl, intel, .*; did you mean pocl\\?",
    ),
    (
        {"platform": ["intel", "vulkan"]},
        "platform 'vulkan' is unknown: there are pocl, intel, [a-z, ]*",
    ),
    ({"vendor": "AMDD"}, "vendor 'AMDD' is unknown: there are nvidia, amd, .*; did you mean amd\\?"),
    (
        {"architecture": "sm90"},
        "architecture 'sm90' must be the start of an architecture's name: they are written sm_90, .*",
    ),
    ({"architecture": ["gfx", "hopper"]}, "architecture 'hopper' must be the start of an architecture's name.*"),
]


@pytest.mark.parametrize(("match", "told"), DOUBTS, ids=str)
def test_a_match_on_what_is_not_known_is_a_warning_with_what_is(
    tmp_path: Path, match: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be the name of a runtime or a backend that is new to gemmport."""
    lookup._warn_once.cache_clear()
    path = write(tmp_path / "mine.yaml", entry(**match))
    for _ in range(2):
        assert [loaded.entry.name for loaded in load_file(path).entries] == ["mine"]
    (line,) = caplog.messages
    assert re.fullmatch(f"{path}: entry 'mine': match.{told}", line)
    assert lookup.check_file(path)[1] == [line]


def test_a_doubtful_file_of_a_folder_of_the_users_is_warned_of_too(
    found: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(found, entry("mine", vendor="nvida"))
    assert of_the_user(load_configuration()) == ["mine"]
    (line,) = caplog.messages
    assert line.startswith(f"{found}: entry 'mine': match.vendor 'nvida' is unknown")


@pytest.mark.parametrize(
    "match",
    [{"platform": "PoCL", "vendor": "Intel"}, {"architecture": ["sm_", "sm", "gfx9", "gfx", "znver4", "xe_hpg", "SM_90a"]},
     {"device": "anything"}],
    ids=str,
)  # fmt: skip
def test_a_match_on_what_is_known_is_none(tmp_path: Path, match: dict[str, Any]) -> None:
    assert lookup.check_file(write(tmp_path / "mine.yaml", entry(**match)))[1] == []


def test_what_is_shipped_is_not_doubtful() -> None:
    assert list(parser.doubts(ALL_SHIPPED)) == []


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_what_devices_tell_is_not_doubtful(device: DeviceInfo) -> None:
    """But of a platform and a vendor that nobody knows."""
    keys = {"architecture": device.architecture} if device.architecture else {}
    if device.platform != "plain":
        keys |= {"platform": device.platform, "vendor": device.vendor}
    assert list(parser.doubts(Loaded(configuration(entry(**keys)).entries))) == []


def test_a_key_that_stands_twice_is_a_fault() -> None:
    """YAML readers keep the last one, so that the first would be lost without a word."""
    text = "schema: 1\ndescription: x\nentries:\n- name: mine\n  kernels: {naive: {TS: 8, TS: 16}}\n"
    with pytest.raises(ConfigError, match=r"mine.yaml: this is not YAML: line 5, column 28: key 'TS' stands twice"):
        parse(text + "  provenance: {tuned: false}")


def test_yaml_aliases_and_merge_keys_are_read() -> None:
    text = """
        schema: 1
        description: x
        entries:
        - {name: one, kernels: {naive: &small {TS: 4}}, provenance: &untuned {tuned: false}}
        - {name: two, kernels: {tiled: {<<: *small, PAD: 0}}, provenance: *untuned}
    """
    assert parse(text)[1].tilings("tiled") == ({"TS": 4, "PAD": 0},)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: .*No such file"):
        load_file(tmp_path / "none.yaml")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_file(tmp_path)


def test_a_file_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes("description: Größe".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.yaml: cannot be read"):
        load_file(path)


def test_a_search_path_that_is_no_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=r"GEMMPORT_CONFIG_PATH must name folders; got .*gone"):
        load_configuration()


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in a folder of the user's."""
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", str(folder))
    lookup._warn_once.cache_clear()
    return write(folder / "mine.yaml", entry("mine"))


def of_the_user(configuration: Configuration) -> list[str]:
    return [loaded.entry.name for loaded in configuration.entries if loaded.source != "shipped"]


@pytest.mark.parametrize("depth", ["the file", "its folder", "the folder above"])
def test_what_others_may_write_is_not_read_from_a_folder_which_is_said_once(
    found: Path, depth: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that the call names is the caller's own affair."""
    place = {"the file": found, "its folder": found.parent, "the folder above": found.parents[1]}[depth]
    assert of_the_user(load_configuration()) == ["mine"]
    place.chmod(0o777)
    for _ in range(2):
        configuration = load_configuration()
        assert of_the_user(configuration) == []
        (refused,) = configuration.refused
        assert refused.startswith(f"{place} must be owned by root or by you")
    (line,) = caplog.messages
    assert line == f"configuration: {refused}. It is not read: a file of --config (config=) is, wherever it stands"
    assert of_the_user(load_configuration([found])) == ["mine"]


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is read where nobody names one, with a file."""
    monkeypatch.setattr(lookup, "user_config_folder", lambda name: tmp_path / "config" / name)
    monkeypatch.delenv("GEMMPORT_CONFIG_PATH", raising=False)
    lookup._warn_once.cache_clear()
    folder = lookup.user_folder()
    assert folder is not None
    folder.mkdir(mode=0o700, parents=True)
    write(folder / "own.yaml", entry("own"))
    return folder


def test_the_users_folder_is_read_behind_those_that_are_named(
    own_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert of_the_user(load_configuration()) == ["own"]
    named = tmp_path / "named"
    named.mkdir(mode=0o700)
    write(named / "named.yaml", entry("named"))
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", str(named))
    assert of_the_user(load_configuration()) == ["named", "own"]
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", "")
    assert of_the_user(load_configuration()) == []


def test_a_plan_that_was_made_with_the_users_folder_is_none_without_it(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, device = GemmProblem.create(64, 64, 64), DEVICES["NVIDIA sm_90 under CUDA"]
    assert gp.plan(problem, device).entry.endswith("own.yaml: own")
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", "")
    assert not gp.plan(problem, device).entry.endswith("own.yaml: own")


def test_a_users_folder_that_others_may_change_is_not_read(own_folder: Path) -> None:
    own_folder.chmod(0o777)
    assert of_the_user(load_configuration()) == []
    own_folder.chmod(0o700)
    (own_folder / "own.yaml").unlink()
    own_folder.rmdir()
    assert load_configuration().refused == ()


def test_the_other_files_of_the_folder_are_read(found: Path) -> None:
    write(found.with_name("another.yml"), entry("another")).chmod(0o666)
    (found.parent / "endless.yaml").symlink_to("/dev/zero")
    os.mkfifo(found.parent / "fifo.yaml")
    write(found.with_name("long.yaml"), entry("long"))
    os.truncate(found.with_name("long.yaml"), 2**40)
    configuration = load_configuration()
    assert of_the_user(configuration) == ["mine"]
    names = [refused.partition(" must ")[0].rpartition("/")[2] for refused in configuration.refused]
    assert names == ["another.yml", "zero", "fifo.yaml", "long.yaml"]


def test_links_in_the_folder_are_followed_to_where_nobody_else_may_write(found: Path, tmp_path: Path) -> None:
    """So programs that manage configurations lay them out."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    linked = found.rename(tmp_path / "elsewhere" / "linked.yaml")
    found.symlink_to(linked)
    assert of_the_user(load_configuration()) == ["mine"]
    linked.parent.chmod(0o777)
    assert of_the_user(load_configuration()) == []


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=2),
    max_leaves=4,
)
SOUND = document(
    entry("all keys", kernel="tiled", params={"TS": 8, "PAD": 0}, device=["a", "b"], version=">=1", dtype="float32",
          shape=["large"], ops="NT"),
)  # fmt: skip


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every node below the root."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [place for key, inner in items for place in [(*path, key), *places(inner, (*path, key))]]


@given(st.sampled_from(places(SOUND)), anything)
def test_whatever_stands_anywhere_in_a_file_it_is_read_or_told(place: tuple[Any, ...], value: Any) -> None:
    """Never another exception, and never a parameter that the kernel would not take."""
    data = yaml.safe_load(yaml.safe_dump(SOUND))
    *path, last = place
    node = data
    for key in path:
        node = node[key]
    node[last] = value
    text = yaml.safe_dump(data)
    try:
        loaded = parse(text)
    except ConfigError:
        with pytest.raises(ConfigError, match=r"^mine\.yaml: "):
            parse(text)
        return
    for one in loaded:
        for name, values in one.entry.kernels.items():
            assert all(type(x) in (int, str) for x in kernels.variant(name).complete(values).values())


def test_the_backends_that_an_entry_may_name_are_those_there_are() -> None:
    """The configuration reads them off the kernels' languages, because what is planned knows no backend."""
    assert sources.languages() == backends.names()


# Matching


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ({}, True),
        ({"device": "GFX90A"}, True),
        ({"device": "gfx906"}, False),
        ({"device": ["h100", "gfx90a"]}, True),
        ({"architecture": "gfx9"}, True),
        ({"architecture": "90a"}, False),
        ({"platform": "AMD"}, True),
        ({"platform": "am"}, False),
        ({"platform": "amd", "version": ">=3.5,<4"}, True),
        ({"platform": "amd", "version": ">=3.10"}, False),
        ({"version": "==3.6.*"}, True),
        ({"vendor": "amd"}, True),
        ({"vendor": "nvidia"}, False),
        ({"type": "gpu"}, True),
        ({"type": ["cpu", "accelerator"]}, False),
        ({"backend": "opencl"}, True),
        ({"backend": "OpenCL"}, True),
        ({"backend": "cuda"}, False),
        ({"vendor": "amd", "backend": "cuda"}, False),
        ({"dtype": "float32"}, True),
        ({"dtype": "float64"}, False),
        ({"ops": "nt"}, True),
        ({"ops": ["NN", "TN"]}, False),
        ({"shape": ["small", "large"]}, True),
        ({"shape": "skinny"}, False),
        ({"device": "gfx90a", "shape": "skinny"}, False),
    ],
    ids=str,
)
def test_an_entry_matches_where_all_its_keys_do(match: dict[str, Any], matches: bool) -> None:
    problem = GemmProblem.create(2048, 2048, 2048, trans_b="T")
    assert bool(configuration(entry(**match)).matching(DEVICE, problem)) == matches


@pytest.mark.parametrize("key", ["device", "architecture", "platform", "vendor", "type", "backend"])
def test_each_key_is_that_of_the_device(key: str) -> None:
    """Of a device of which no two are alike."""
    device = DeviceInfo("opencl", "one", "pocl", vendor="amd", architecture="znver4", type="cpu")
    own = {
        "device": "one",
        "architecture": "znver4",
        "platform": "pocl",
        "vendor": "amd",
        "type": "cpu",
        "backend": "opencl",
    }
    match = Match(**{key: (own[key],)})
    assert match.device_matches(device)
    named = "name" if key == "device" else key
    assert not match.device_matches(replace(device, **{named: "another"}))


def test_without_a_problem_the_keys_of_the_device_decide() -> None:
    loaded = configuration(entry("a", dtype="float64", vendor="amd"), entry("b", vendor="nvidia"))
    assert [found.entry.name for found in loaded.matching(DEVICE)] == ["a"]


@pytest.mark.parametrize("version", ["", "unknown", "OpenCL 3.0 PoCL"])
def test_a_version_that_is_none_is_in_no_range(version: str) -> None:
    device = replace(DEVICE, platform_version=version)
    assert not configuration(entry(version=">=0")).matching(device)


def test_a_preliminary_version_is_in_a_range() -> None:
    device = replace(DEVICE, platform_version="4.0rc1")
    assert configuration(entry(version=">=3.1")).matching(device)


# Precedence

LADDER = [
    {"device": "gfx90a"},
    {"architecture": "gfx90a"},
    {"platform": "amd", "version": ">=3"},
    {"platform": "amd"},
    {"vendor": "amd"},
    {"type": "gpu"},
    {"backend": "opencl"},
    {"dtype": "float32"},
    {"shape": "large"},
    {"ops": "NN"},
    {},
]


@pytest.mark.parametrize(("higher", "lower"), list(itertools.pairwise(LADDER)), ids=str)
@pytest.mark.parametrize("order", [1, -1], ids=["higher first", "lower first"])
def test_the_more_specific_entry_comes_first(higher: dict[str, Any], lower: dict[str, Any], order: int) -> None:
    found = configuration(*[entry("higher", **higher), entry("lower", **lower)][::order]).matching(
        DEVICE, GemmProblem.create(2048, 2048, 2048)
    )
    assert [loaded.entry.name for loaded in found] == ["higher", "lower"]


def test_a_higher_key_outweighs_all_lower_ones_together() -> None:
    everything = {key: value for keys in LADDER[1:] for key, value in keys.items()}
    found = configuration(entry("lower", **everything), entry("device", device="gfx90a")).matching(
        DEVICE, GemmProblem.create(2048, 2048, 2048)
    )
    assert [loaded.entry.name for loaded in found] == ["device", "lower"]


def test_equally_specific_entries_keep_the_order_of_their_file() -> None:
    found = configuration(entry("b", device="gfx"), entry("a", device="90a")).matching(DEVICE)
    assert [loaded.entry.name for loaded in found] == ["b", "a"]


def test_the_call_goes_before_the_user_and_the_user_before_what_is_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where an entry of a later source is more specific."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    write(first / "b.yaml", entry("user first b", device="gfx90a"))
    write(first / "a.yaml", entry("user first a", device="gfx90a"))
    write(first / "not yaml.txt", {"broken": True})
    write(second / "a.yaml", entry("user second", device="gfx90a"))
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", os.pathsep.join([str(first), str(second)]))
    call = write(tmp_path / "call.yaml", entry("call"))
    found = load_configuration([call]).matching(DEVICE)
    names = [loaded.entry.name for loaded in found]
    assert names[:4] == ["call", "user first a", "user first b", "user second"]
    assert [loaded.source for loaded in found] == ["call", "user", "user", "user", *["shipped"] * (len(found) - 4)]
    assert names[-1] == "any device"
    assert [loaded.asked_for for loaded in found] == [loaded.source != "shipped" for loaded in found]


def test_the_origin_is_file_and_entry(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml", entry("wheel"))
    assert load_file(path).entries[0].origin == f"{path}: wheel"


def test_parameters_are_those_of_a_listed_kernel_alone() -> None:
    (loaded,) = parse(yaml.safe_dump(document(entry(params={"TS": 8}))))
    assert loaded.tilings("naive") == ({"TS": 8},)
    assert loaded.tilings("tiled") == ()


def test_kernels_keep_the_order_of_preference_of_their_file() -> None:
    mine = {**entry(), "kernels": {"tiled": {}, "naive": {}, "register_tiled": {}}}
    text = yaml.safe_dump(document(mine), sort_keys=False)
    assert list(parse(text)[0].entry.kernels) == ["tiled", "naive", "register_tiled"]


# What is shipped

ALL_SHIPPED = lookup._shipped()
SHIPPED = [loaded for loaded in load_configuration().entries if loaded.source == "shipped"]


def test_every_shipped_file_is_loaded() -> None:
    folder = Path(configs.__path__[0])
    found = {loaded.file for loaded in (*ALL_SHIPPED.entries, *ALL_SHIPPED.models)}
    assert found == {f"configs/{path.name}" for path in folder.glob("*.yaml")}


@pytest.fixture
def unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A process that has not read what is shipped, and the file in which a machine keeps what was read."""
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    lookup._shipped.cache_clear()
    yield tmp_path / "configs"
    lookup._shipped.cache_clear()


def test_every_shipped_file_obeys_the_rules() -> None:
    """They are read without being checked."""
    folder = Path(configs.__path__[0])
    checked = [
        parser.parse(path.read_text("utf-8"), f"configs/{path.name}", "shipped")
        for path in sorted(folder.glob("*.yaml"))
    ]
    assert sum(checked, Loaded()) == lookup._shipped()


def test_what_is_shipped_is_kept_as_it_was_read(unread: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lookup._shipped() == ALL_SHIPPED
    lookup._shipped.cache_clear()
    monkeypatch.setattr(lookup, "_unchecked", None)  # not read again
    assert lookup._shipped() == ALL_SHIPPED


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-3], lambda data: b"", lambda data: data.replace(b"naive", b"evian")]
)
def test_what_was_kept_and_damaged_is_read_again(unread: Path, damage: Callable[[bytes], bytes]) -> None:
    lookup._shipped()
    whole = unread.read_bytes()
    unread.write_bytes(damage(whole))
    lookup._shipped.cache_clear()
    assert lookup._shipped() == ALL_SHIPPED
    assert unread.read_bytes() == whole


def test_another_text_is_read_anew_without_a_word(
    unread: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lookup._shipped()
    lookup._shipped.cache_clear()
    monkeypatch.setattr(lookup, "_FORM", "another")
    before = unread.read_bytes()
    assert lookup._shipped() == ALL_SHIPPED
    assert unread.read_bytes() != before
    assert not caplog.messages


@pytest.mark.parametrize(
    "text",
    ["schema: 1\n\tentries", yaml.safe_dump({"schema": 1, "description": "x"}),
     yaml.safe_dump(document(entry() | {"match": {"devise": "x"}})), yaml.safe_dump(document(entry() | {"match": 5})),
     yaml.safe_dump(document({"name": "x"}))],
)  # fmt: skip
def test_a_shipped_file_that_cannot_be_read_is_told_as_any_other(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^configs/mine\.yaml: "):
        lookup._unchecked("configs/mine.yaml", text)


def test_rules_are_stated_for_every_key() -> None:
    for rules, data in ((parser._Match, Match), (parser._Provenance, Provenance), (parser._Entry, Entry)):
        assert list(rules.model_fields) == [field.name for field in fields(data)]


@pytest.mark.parametrize("loaded", SHIPPED, ids=lambda loaded: loaded.origin)
def test_the_provenance_of_every_shipped_entry_is_stated(loaded: LoadedEntry) -> None:
    """What was measured says with what; what was not says so, and why these sizes."""
    stated = loaded.entry.provenance
    if stated.tuned:
        assert all((stated.date, stated.device, stated.driver, stated.runtime, stated.gemmport, stated.sizes))
        assert stated.figures
    else:
        assert stated.note
        assert not stated.modelled or "benchmarks/results/" in stated.note


def test_what_a_model_chose_is_told_apart_from_what_was_measured() -> None:
    stated = [{"tuned": True}, {"tuned": False}, {"tuned": False, "modelled": True}]
    told = [configuration({**entry(), "provenance": own}).entries[0].entry.provenance.how for own in stated]
    assert told == ["tuned", "not tuned", "modelled, not tuned"]


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_an_entry_for_every_device_is_shipped(device: Any) -> None:
    found = load_configuration().matching(device)
    assert found[-1].origin == "configs/default.yaml: any device"


# Models


def model(name: str = "mine", /, **stated: Any) -> dict[str, Any]:
    return {"name": name, "provenance": TUNED, **stated}


def with_models(*models: Any) -> Loaded:
    text = yaml.safe_dump({"schema": 1, "description": "of a test", "models": list(models)})
    return parser.parse(text, "mine.yaml", "call")


SIMT_TILING = {"TSM": 32, "TSN": 32, "TSK": 8, "WM": 32, "WN": 32, "WPTM": 8, "WPTN": 4, "SLICES": 1, "STAGES": 2}


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ({"launch": 0}, "model 'mine': launch must be a number above 0; got 0"),
        ({"launch": True}, "model 'mine': launch must be a number above 0; got True"),
        ({"launch": "soon"}, "model 'mine': launch must be a number above 0; got 'soon'"),
        ({"latency": float("inf")}, "model 'mine': latency must be a number above 0; got inf"),
        ({"lunch": 1}, "model 'mine': lunch is an unknown key: there are name, match, "),
        ({"lunch": 1}, "; did you mean launch?"),
        ({"match": {"dtype": "float32"}}, "model 'mine': match.dtype is an unknown key: there are device, architecture, "),
        (
            {"multiply_adds": {"float128": 1.0}},
            "multiply_adds must be a mapping of float16, float32, float64 or int32 to numbers; got 'float128'",
        ),
        ({"multiply_adds": {"float32": -1}}, "multiply_adds.float32 must be a number above 0; got -1"),
        ({"kernels": 5}, "model 'mine': kernels must be a mapping of kernels to mappings with fitted and tilings; got 5"),
        ({"kernels": {"simt": {"fited": {}}}}, "kernels.simt.fited is an unknown key: there are fitted, tilings; did you mean"),
        ({"kernels": {"simt": {"tilings": {}}}}, "kernels.simt.tilings must be a list of mappings of parameters to values"),
        ({"kernels": {"simt": {"fitted": {"sharpness": "x"}}}}, "fitted.sharpness must be a number that is not negative"),
        ({"kernels": {"smit": {}}}, "model 'mine': kernels: no kernel 'smit': there are naive"),
        ({"kernels": {"simt": {"fitted": {"sharpnes": 1.0}}}}, "simt has no fitted constant sharpnes; did you mean sharpness?"),
        ({"kernels": {"simt": {"fitted": {"x": 1.0}}}}, "simt has no fitted constant x: it has share, issue, "),
        ({"kernels": {"naive": {"fitted": {"sharpness": 1.0}}}}, "naive has no fitted constant sharpness; did you mean share?"),
        ({"kernels": {"simt": {"tilings": [{**SIMT_TILING, "WM": 16}]}}}, "model 'mine': simt: WM = 16, WN = 32"),
        ({"kernels": {"simt.mma": {"tilings": [{"TSX": 1}]}}}, "model 'mine': simt has no parameter TSX"),
        ({"kernels": {"simt.mma.complex128": {"tilings": [{"TSX": 1}]}}}, "model 'mine': simt has no parameter TSX"),
        ({"kernels": {"relayout": {"fitted": {"x": 1}}}}, "relayout has no fitted constant x: it has elements_per_clock"),
        ({"kernels": {"transpose": {"tilings": [{"TS": 32}]}}}, "kernels.transpose.tilings must be left out, for nothing"),
        ({"kernels": {"simt.mma.complex": {}}}, "model 'mine': kernels: no kernel 'simt.mma.complex'"),
        ({"kernels": {"gemv.float32": {}}}, "model 'mine': kernels: no kernel 'gemv.float32'"),
    ],
    ids=str,
)  # fmt: skip
def test_a_fault_in_a_model_is_told_with_file_model_key_value_and_rule(stated: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_models(model("fine"), model(**stated))
    assert str(caught.value).startswith("mine.yaml: ")
    assert told in str(caught.value)
    assert not JARGON.search(str(caught.value))


def test_all_faults_of_a_model_are_told_at_once() -> None:
    tilings = [SIMT_TILING, {**SIMT_TILING, "WM": 16}, {"TSX": 1}]
    with pytest.raises(ConfigError) as caught:
        with_models(
            model(launch=0, kernels={"simt": {"fitted": {"x": 1}, "tilings": tilings}, "smit": {}}), model(), model()
        )
    lines = str(caught.value).splitlines()
    assert len(lines) == 7
    for line, told in zip(
        lines, ("launch must be", "no fitted constant x", "(tiling 2 of the model)", "(tiling 3 of the model)",
                "no kernel 'smit'", "name must be unique", "name must be unique"), strict=True,
    ):  # fmt: skip
        assert line.startswith("mine.yaml: model 'mine': ")
        assert told in line


def test_what_a_model_matches_is_doubted_too() -> None:
    (doubt,) = parser.doubts(with_models(model(match={"vendor": "nvida"})))
    assert doubt.startswith("mine.yaml: model 'mine': match.vendor 'nvida' is unknown")


def test_a_model_needs_no_provenance() -> None:
    loaded = with_models({"name": "mine", "launch": 1e-6})
    assert loaded.models[0].model.provenance == Provenance()


def test_a_number_of_a_model_may_be_written_as_yaml_1_1_does_not_read_it() -> None:
    text = "schema: 1\ndescription: x\nmodels: [{name: a, read_bandwidth: 4.2e12, provenance: {tuned: false}}]"
    assert parser.parse(text, "mine.yaml", "call").models[0].model.rates == {"read_bandwidth": 4.2e12}


def test_of_each_number_the_most_specific_model_counts_and_what_none_states_is_derived() -> None:
    loaded = with_models(
        model("all", launch=1e-6, latency=2e-6, kernels={"simt": {"fitted": {"sharpness": 2, "issue": 64}}}),
        model("gpus", match={"type": "gpu"}, latency=3e-6, multiply_adds={"float32": 1e12},
              kernels={"simt": {"fitted": {"issue": 32}, "tilings": [SIMT_TILING]}}),
        model("others", match={"vendor": "intel"}, latency=4e-6),
    )  # fmt: skip
    plain, found = derived(DEVICE), Configuration((), models=loaded.models).model(DEVICE)
    assert (found.launch, found.latency, found.barrier) == (1e-6, 3e-6, plain.barrier)
    assert found.multiply_adds == {**plain.multiply_adds, "float32": 1e12}
    assert found.fitted == {"simt": {"sharpness": 2, "issue": 32}}
    assert found.tilings == {"simt": (SIMT_TILING,)}
    assert found.origin == "mine.yaml: gpus"
    assert Configuration(()).model(DEVICE) == plain


def test_models_of_the_call_go_before_those_of_the_user_and_these_before_what_is_shipped(
    found: Path, tmp_path: Path
) -> None:
    """Even where a model of a later source is more specific."""
    hopper = DEVICES["NVIDIA sm_90 under CUDA"]
    shipped = load_configuration().model(hopper)
    assert shipped.origin == "configs/nvidia.yaml: Hopper"
    simt = {"simt": {"fitted": {"step_issue": 40}}}
    one = {"schema": 1, "description": "x", "models": [model(launch=1e-6, latency=1e-6, kernels=simt)]}
    found.write_text(yaml.safe_dump(one), encoding="utf-8")
    call = tmp_path / "call.yaml"
    call.write_text(yaml.safe_dump({**one, "models": [model(launch=2e-6)]}), encoding="utf-8")
    merged = load_configuration([call]).model(hopper)
    assert (merged.launch, merged.latency) == (2e-6, 1e-6)
    assert merged.fitted["simt"] == {**shipped.fitted["simt"], "step_issue": 40}
    assert merged.tilings == shipped.tilings


@pytest.mark.parametrize("loaded", ALL_SHIPPED.models, ids=lambda loaded: loaded.origin)
def test_the_provenance_of_every_shipped_model_is_stated(loaded: LoadedModel) -> None:
    stated = loaded.model.provenance
    assert (
        all((stated.date, stated.device, stated.driver, stated.sizes, stated.figures)) if stated.tuned else stated.note
    )
    assert "benchmarks/" in stated.figures + stated.note or not (stated.tuned or stated.modelled)


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_files_that_numbers_come_from_exist(path: Path) -> None:
    """In descriptions, provenance, and comments beside numbers: each is told in full, and stands in one line."""
    text = path.read_text(encoding="utf-8")
    named = [each.rstrip(".,") for each in re.findall(r"benchmarks/[\w*./-]*", text)]
    assert [each for each in named if not any(ROOT.glob(each))] == []
    assert [each for each in named if not re.fullmatch(r".*\.(jsonl?|csv|py|yaml)", each)] == []
    assert text.count("benchmarks/") == len(named)


# Why


def test_every_entry_is_told_why_it_serves_or_does_not() -> None:
    """On a key, on the source, on its place, or on what it does not match by."""
    mine = configuration(
        entry("anything", kernel="tiled"),
        entry("not listed", kernel="naive", device="gfx90a"),
        entry("no fit", kernel="tiled", params={"TS": 32}, architecture="gfx90a"),  # 1024 work-items
        entry("winner", kernel="tiled", params={"TS": 8}, platform="amd", version=">=3"),
        entry("again", kernel="tiled", platform=["amd", "intel"], version=">3"),
        entry("another", vendor=["nvidia", "arm"], type="cpu", dtype="float64", version="<3"),
    )
    loaded = Configuration(tuple(replace(each, source="shipped") for each in mine.entries))
    found = precedence(make_plan(GemmProblem.create(1024, 1024, 1024), DEVICE, loaded, kernel="tiled"), loaded)
    assert found.winner is not None
    assert found.winner.entry.name == "winner"
    assert [each.loaded.entry.name for each in found.passed_over] == ["not listed", "no fit"]
    assert {each.loaded.entry.name: each.lost for each in found.behind} == {
        "again": "lost by its place: it asks for the same keys, and stands behind the winner",
        "anything": "lost on platform: the winner asks for amd, this one for none",
    }
    (other,) = found.others
    assert other.loaded.entry.name == "another"
    assert list(map(str, other.unmet)) == [
        "version is 3.6, not <3", "vendor is amd, not nvidia or arm", "type is gpu, not cpu", "dtype is float32, not float64",
    ]  # fmt: skip


def test_the_source_of_an_entry_is_a_reason() -> None:
    (call,) = configuration(entry("call")).entries
    shipped = replace(configuration(entry("shipped", device="gfx90a")).entries[0], source="shipped")
    loaded = Configuration((shipped, call))
    found = precedence(make_plan(GemmProblem.create(64, 64, 64), DEVICE, loaded), loaded)
    assert found.winner == call
    (behind,) = found.behind
    assert behind.lost == "lost on its source: files of the call go before files that gemmport ships"


def test_where_no_entry_serves_there_is_no_winner() -> None:
    loaded = configuration(entry("other", vendor="nvidia"))
    plan = make_plan(GemmProblem.create(64, 64, 64), replace(DEVICE, architecture=""), loaded)
    found = precedence(plan, loaded)
    assert (found.winner, found.passed_over, found.behind) == (None, (), ())
    assert [str(unmet) for unmet in found.others[0].unmet] == ["vendor is amd, not nvidia"]


def test_a_key_that_the_device_does_not_tell_is_told() -> None:
    (unmet,) = Match(architecture=("sm_90",)).unmet(replace(DEVICE, architecture=""), GemmProblem.create(1, 1, 1))
    assert str(unmet) == "architecture is not known, and must be sm_90"


def test_precedence_knows_every_key() -> None:
    assert set(PRECEDENCE) == {field.name for field in fields(Match)}
