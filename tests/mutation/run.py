"""Mutation testing: `make mutation` runs it for the modules of checkers.py that changed, or whose tests did.

    python tests/mutation/run.py                       # what changed since the record
    python tests/mutation/run.py --all --processes 14  # everything
    python tests/mutation/run.py trust cache           # these

mutmut makes the mutants and runs them, each module in a folder of its own in build/mutation, where the package lies as it is
installed. Ends with status 1 where less than 95 % of a module's mutants are killed. A survivor is killed by a new test, or gets
its reason in record.json, which later runs keep.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import click

import checkers
from checkers import CHECKERS, LEAST_SCORE, RECORD, SOURCES, TESTS, Checker, Mutated, Survivor

ROOT = TESTS.parent
FOLDER = ROOT / "build" / "mutation"

AT_ONCE = 4
"""Modules: while one begins or ends, which takes one process, others have use for the rest."""

KILLED = {1, 2, 3, 24, 36, 152, 255, -9, -11, -24}
"""Exit statuses of pytest and mutmut where a mutant was noticed: a test failed or could not be collected; no end; a crash."""

LIVES = {0, 5, 33}
"""Those where it was not: all tests pass, or none reaches it."""


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also what has not changed since the record.")
@click.option("--processes", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True)
@click.option("--record", type=click.Path(path_type=Path), default=RECORD, help="Where the record is written.")
@click.option("--functions", help="Only these, between commas, for a trial; nothing is recorded.")
@click.argument("modules", nargs=-1, type=click.Choice([checker.module for checker in CHECKERS]))
def main(modules: Sequence[str], *, everything: bool, processes: int, record: Path, functions: str | None) -> None:
    """Mutates the checkers that changed since the record, or the given ones."""
    known = checkers.read()
    due = [checker for checker in CHECKERS if _is_due(checker, known, modules, everything=everything)]
    if functions:
        due = [replace(checker, functions=tuple(functions.split(","))) for checker in due]
    due.sort(key=lambda checker: checker.file.stat().st_size, reverse=True)  # what takes longest begins first
    begun, broken = time.monotonic(), False
    for checker, found in _outcomes(due, processes):
        if isinstance(found, RuntimeError):
            click.echo(f"{checker.module}: {found}", err=True)
            broken = True
            continue
        before = known.get(checker.module)
        outcome = replace(found, survivors=_with_reasons(found.survivors, before.survivors if before else ()))
        known[checker.module] = outcome
        if not functions:
            checkers.write(known, record)
        click.echo(
            f"{checker.module}: {outcome.killed} of {outcome.mutants} killed, score {outcome.score:.1%} "
            f"(after {time.monotonic() - begun:.0f} s)"
        )
        for survivor in outcome.survivors:
            if not survivor.reason:
                click.echo(f"  {survivor.function}\n    - {survivor.was}\n    + {survivor.becomes}")
    if worst := [module for module, outcome in known.items() if outcome.score < LEAST_SCORE]:
        click.echo(f"below {LEAST_SCORE:.0%}: {', '.join(worst)}; write tests, or reasons in {record}", err=True)
    if not due:
        click.echo("nothing changed since the record")
    sys.exit(1 if worst or broken else 0)


def _is_due(checker: Checker, known: dict[str, Mutated], modules: Sequence[str], *, everything: bool) -> bool:
    if modules:
        return checker.module in modules
    return everything or checker.module not in known or known[checker.module].digest != checker.digest


def _outcomes(due: Sequence[Checker], processes: int) -> Iterator[tuple[Checker, Mutated | RuntimeError]]:
    """What comes of each, as it is done; the error of one whose mutants could not be run."""
    at_once = min(AT_ONCE, max(1, processes // 2))
    children = math.ceil(processes / min(at_once, 2))
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(mutate, checker, children): checker for checker in due}
        for done in as_completed(running):
            try:
                yield running[done], done.result()
            except RuntimeError as error:
                yield running[done], error


def _with_reasons(survivors: Sequence[Survivor], before: Sequence[Survivor]) -> tuple[Survivor, ...]:
    """Survivors with the reasons that are on record for the same change of the same lines, or that their kind has."""
    reasons = {replace(survivor, reason=""): survivor.reason for survivor in before}
    return tuple(
        replace(survivor, reason=reasons.get(survivor) or checkers.why_harmless(survivor)) for survivor in survivors
    )


def mutate(checker: Checker, children: int) -> Mutated:
    """Makes and runs the mutants of a module, in a process of its own, whose folder and environment it changes.

    Raises:
        RuntimeError: mutmut, or the tests of the module as it is, failed.
    """
    folder = FOLDER / checker.module
    _assemble(checker, folder)
    os.chdir(folder)
    os.environ |= {
        "PYTHONPATH": _path(Path(__file__).parent),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TMPDIR": str(folder / "tmp"),  # tests that are killed leave something behind
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    }
    words = ["run", "--max-children", str(children), *_patterns(checker)]
    with Path("log").open("w") as log:
        # Not `python -m mutmut`, which imports the module twice.
        command = [sys.executable, "-c", "from mutmut.__main__ import cli; cli()", *words]
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise RuntimeError(f"mutmut ended with status {done.returncode}:\n{Path('log').read_text()[-3000:]}")
    outcome = _outcome(checker)
    _check_names_of_tests()
    return outcome


def _path(folder: Path) -> str:
    """PYTHONPATH with one more folder, before the others."""
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))


def _patterns(checker: Checker) -> list[str]:
    """The mutants of the functions, as mutmut names them; none where all are meant."""

    def mangled(function: str) -> str:
        return f"xǁ{function.replace('.', 'ǁ')}" if "." in function else f"x_{function}"

    return [f"gemmport.{checker.module}.{mangled(function)}__mutmut_*" for function in checker.functions]


def _assemble(checker: Checker, folder: Path) -> None:
    """The package as it is installed, beside its tests and what mutmut is told."""
    shutil.rmtree(folder, ignore_errors=True)
    package = folder / "src" / "gemmport"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCES, package, ignore=ignored)
    for name in ("backends", "kernels", "configs"):
        shutil.copytree(ROOT / name, package / name, ignore=ignored)
    shutil.copytree(TESTS, folder / "tests", ignore=ignored)
    (folder / "tmp").mkdir()
    deselected = [word for name in checker.without for word in ("--deselect", f"tests/{name}")]
    told = {
        "source_paths": ["src"],
        "only_mutate": [str(Path("src", "gemmport", checker.file.relative_to(SOURCES)))],
        "pytest_add_cli_args_test_selection": [f"tests/{name}" for name in checker.tests],
        "pytest_add_cli_args": ["-p", "host_only", "-p", "no:cacheprovider", "--tb=no", *deselected],
        "timeout_constant": 2.0,
        "timeout_multiplier": 5.0,
        "use_git_change_detection": False,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in told.items()]
    (folder / "pyproject.toml").write_text("\n".join(["[tool.mutmut]", *lines, ""]))


def _outcome(checker: Checker) -> Mutated:
    """What mutmut left in the folder."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant  # noqa: PLC0415  # reads the folder's configuration

    source = Path("src", "gemmport", checker.file.relative_to(SOURCES))
    statuses: dict[str, int | None] = json.loads(Path("mutants", f"{source}.meta").read_text())["exit_code_by_key"]
    judged = {name: status for name, status in statuses.items() if status is not None}
    if strange := Counter(status for status in judged.values() if status not in KILLED | LIVES):
        raise RuntimeError(f"gemmport.{checker.module}: exit statuses that mean nothing known: {dict(strange)}")
    if not judged:
        raise RuntimeError(f"gemmport.{checker.module} has no mutants")
    living = [name for name, status in judged.items() if status in LIVES]
    survivors = tuple(_survivor(name, get_diff_for_mutant(name, path=source)) for name in living)
    return Mutated(checker.digest, len(judged), survivors)


def _survivor(name: str, diff: str) -> Survivor:
    function = name.rpartition(".")[2].partition("__mutmut_")[0]
    function = ".".join(function.split("ǁ")[1:]) if "ǁ" in function else function.removeprefix("x_")

    def lines(sign: str) -> str:
        return " ".join(line[1:].strip() for line in diff.splitlines()[2:] if line.startswith(sign))

    return Survivor(function, lines("-"), lines("+"))


def _check_names_of_tests() -> None:
    """That the tests pass by the names under which they were run: else all mutants would seem to be killed."""
    names = json.loads(Path("mutants", "mutmut-stats.json").read_text())["duration_by_test"]
    environment = {**os.environ, "MUTANT_UNDER_TEST": "", "PYTHONPATH": _path(Path("mutants", "src").absolute())}
    words = ["--rootdir=.", "-x", "-q", "-p", "host_only", "-p", "no:cacheprovider", *names]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd="mutants",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"by name, tests ended with status {done.returncode}:\n{done.stdout[-3000:]}")


if __name__ == "__main__":
    main()
