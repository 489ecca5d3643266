"""The modules that decide whether a result, an entry or a device is right, and the tests that judge each of them.

`make mutation` breaks a module in one place at a time; its tests must fail every time. What came of it is in record.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmport.runtime.fingerprint import of_code, of_texts

TESTS = Path(__file__).parent.parent
SOURCES = TESTS.parent / "src" / "gemmport"
RECORD = Path(__file__).parent / "record.json"

COMMAND = "make mutation"

LEAST_SCORE = 0.95
"""Of the mutants of a module that are not known to change nothing, the part that must be killed."""


@dataclass(frozen=True)
class Checker:
    """A module that is mutated.

    Attributes:
        module: without "gemmport.".
        tests: files in tests/ that judge it, of which those run that need no device and are in `make test`. They are run for
            each of hundreds of mutants: a fraction of a second is long.
        functions: what is mutated, "function" or "Class.method"; empty for the whole module.
        without: tests that say nothing of the module, or run it in a process of its own; as pytest's --deselect takes them.
    """

    module: str
    tests: tuple[str, ...]
    functions: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def file(self) -> Path:
        """The module's source."""
        return SOURCES.joinpath(*self.module.split(".")).with_suffix(".py")

    @property
    def digest(self) -> str:
        """Differs where the module, its tests, or what is run of both differs; comments and docstrings do not count."""
        return of_texts(
            of_code([self.file, *(TESTS / name for name in self.tests)]), *self.functions, "", *self.without
        )


CHECKERS = (
    Checker(
        "checking.verification",
        (
            "checking/test_verification.py", "checking/test_bounds.py", "checking/test_neighbours.py",
            "checking/test_matrix_unit_sums.py",
        ),
    ),
    Checker("checking.reference", ("checking/test_reference.py", "checking/test_neighbours.py")),
    Checker("checking.scales", ("checking/test_scaled_bound.py",)),
    Checker("checking.guarded_run", ("checking/test_judges.py",)),
    Checker(
        "fuzz.case", ("fuzz/test_fuzz.py", "fuzz/test_outcomes.py"),
        ("refusal", "outcomes_of_call", "_arrangements", "_layouts", "shortened", "operands_of", "fault_of"),
    ),
    Checker("fuzz.views", ("fuzz/test_fuzz.py",)),
    Checker("fuzz.plans", ("checking/test_judges.py",), ("PlanCase.outcomes", "PlanCase.judge")),
    Checker(
        "fuzz.arrays", ("checking/test_judges.py", "fuzz/test_fuzz.py"),
        ("GemmCase.judge", "GemmCase._given", "MatmulCase.judge", "as_type", "_judgeable", "_judged", "_options"),
    ),
    Checker("matrix.judge", ("checking/test_judges.py",)),
    Checker("runtime.cache", ("runtime/test_cache.py",)),
    Checker("runtime.trust", ("runtime/test_trust.py",)),
    Checker("execution.selection", ("execution/test_selection.py",)),
    Checker("planning.planner", ("planning/test_planner.py",)),
)  # fmt: skip


@dataclass(frozen=True)
class Survivor:
    """A mutant that every test passes.

    Attributes:
        function: "function" or "Class.method".
        was, becomes: the lines that the mutant changes, without their indentation.
        reason: why nothing is lost by it; empty where a test is missing.
    """

    function: str
    was: str
    becomes: str
    reason: str = ""


_SAME_START = (
    (re.compile(r"raise \w+\("), "the same error is raised; what it says is no judgement"),
    (re.compile(r"(log\.\w+|warn_once|reasons\.append)\("), "words of a log or a message"),
    (re.compile(r"with np\.errstate\("), "only whether NumPy warns"),
)
"""How a line begins, before and after, and why no such mutant is a fault of a checker."""

_WORDS = re.compile(r'(f"|"[^"]* )[^"]*"( f?"[^"]*")*[),]*$')
"""A line of nothing but text, a part of a message."""

_OPTIONAL = re.compile(r",?\s*(\b(strict|copy)=\w+)?\s*(?=\))")


def why_harmless(survivor: Survivor) -> str:
    """The reason that mutants of this kind have in common; empty where there is none."""
    for start, reason in _SAME_START:
        was, becomes = start.match(survivor.was), start.match(survivor.becomes)
        if was and becomes and was[0] == becomes[0]:
            return reason
    if _WORDS.match(survivor.was) and (survivor.becomes == "None" or _WORDS.match(survivor.becomes)):
        return "words of a message"
    if _OPTIONAL.sub("", survivor.was) == _OPTIONAL.sub("", survivor.becomes):
        return "only whether lengths are compared that are the same, or whether a copy is made that nobody changes"
    if survivor.was.replace("astype(np.float64)", "astype(None)") == survivor.becomes:
        return "float64 is NumPy's type where none is named"
    return ""


@dataclass(frozen=True)
class Mutated:
    """What came of a module's mutants.

    Attributes:
        digest: of the checker when it was mutated.
        survivors: in the order of the module.
    """

    digest: str
    mutants: int
    survivors: tuple[Survivor, ...]

    @property
    def killed(self) -> int:
        """Mutants that a test noticed."""
        return self.mutants - len(self.survivors)

    @property
    def score(self) -> float:
        """The part of the mutants that was killed, of those that have no reason to live."""
        judged = self.mutants - sum(bool(survivor.reason) for survivor in self.survivors)
        return self.killed / judged if judged else 1.0

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Mutated:
        """As `as_json` told it."""
        return cls(told["digest"], told["mutants"], tuple(Survivor(**survivor) for survivor in told["survivors"]))

    def as_json(self) -> dict[str, Any]:
        """For the record, with sums for its readers."""
        return {
            "digest": self.digest,
            "mutants": self.mutants,
            "killed": self.killed,
            "survived": len(self.survivors),
            "survivors": [vars(survivor) for survivor in self.survivors],
        }


def read(path: Path = RECORD) -> dict[str, Mutated]:
    """The record by module; nothing where there is none yet."""
    if not path.exists():
        return {}
    return {module: Mutated.of(told) for module, told in json.loads(path.read_text("utf-8")).items()}


def write(record: Mapping[str, Mutated], path: Path = RECORD) -> None:
    """The record of the modules that are checked, in the order of `CHECKERS`."""
    told = {checker.module: record[checker.module].as_json() for checker in CHECKERS if checker.module in record}
    path.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", "utf-8")
