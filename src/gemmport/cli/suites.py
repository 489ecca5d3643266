"""Suites of shapes by name, as they are installed: what `gemmport bench` measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from gemmport.bench.standings import Workload
from gemmport.cli.shapes import read_shapes
from gemmport.core.errors import UnknownNameError
from gemmport.core.names import did_you_mean
from gemmport.core.problem import GemmProblem
from gemmport.runtime.userfile import load_yaml

PACKAGE = "gemmport.shapes"


class _Listed(BaseModel):
    """A suite as suites.yaml has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    about: str
    files: tuple[str, ...]
    as_called: bool = False


@dataclass(frozen=True)
class Suite:
    """A named list of shapes.

    Attributes:
        about: one line for people.
        as_called: whether its products are measured as a user calls them.
        files: of `read_shapes`: names of installed ones, or a path of the user's.
    """

    name: str
    about: str
    files: tuple[str | Path, ...]
    as_called: bool = False

    def workloads(self, problem: Callable[..., GemmProblem]) -> list[Workload]:
        """Its shapes, each problem once.

        Args:
            problem: makes one of a shape, as of `read_shapes`.

        Raises:
            ConfigError: as `read_shapes`.
        """
        found: dict[GemmProblem, Workload] = {}
        for workload in (one for file in self.files for one in _read(file, problem)):
            found.setdefault(workload.problem, workload)
        return list(found.values())


def _read(file: str | Path, problem: Callable[..., GemmProblem]) -> list[Workload]:
    if isinstance(file, Path):
        return read_shapes(file, problem)
    with as_file(files(PACKAGE).joinpath(file)) as path:
        return read_shapes(path, problem)


def known_suites() -> dict[str, Suite]:
    """The suites that are installed, by name."""
    return {suite.name: suite for suite in _listed()}


def _listed() -> Iterator[Suite]:
    text = files(PACKAGE).joinpath("suites.yaml").read_text(encoding="utf-8")
    for name, content in load_yaml(text).data.items():
        told = _Listed.model_validate(content)
        yield Suite(name, told.about, told.files, told.as_called)


def suite_of(text: str) -> Suite:
    """A suite by its name, or one of a file of shapes by its path.

    Raises:
        UnknownNameError: neither is there.
    """
    known = known_suites()
    if text in known:
        return known[text]
    path = Path(text)
    if path.is_file():
        return Suite(path.stem, f"the shapes of {path.name}", (path,))
    raise UnknownNameError(
        f"a suite must be one of {', '.join(known)}, all, or a file of shapes; got {text!r}{did_you_mean(text, known)}"
    )
