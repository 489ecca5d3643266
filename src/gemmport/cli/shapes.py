"""Files of shapes, for `gemmport run --shapes`: problems from YAML or CSV, each fault with the line it stands in."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gemmport.bench.standings import Workload
from gemmport.core.errors import ConfigError, GemmportError
from gemmport.core.problem import GemmProblem
from gemmport.runtime.userfile import brief, check_text, listed, load_yaml, read_text


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a size must be a number; got yes, no, true or false")  # noqa: TRY004 - what pydantic turns into its own error
    return value


_Size = Annotated[int, BeforeValidator(_no_bool)]


class _Shape(BaseModel):
    """One shape of a file; what it leaves out comes from the command line."""

    model_config = ConfigDict(extra="forbid")

    label: str = Field("", exclude=True)
    source: str = Field("", exclude=True)
    m: _Size
    n: _Size
    k: _Size
    batch: _Size | None = None
    dtype: str | None = None
    output_dtype: str | None = Field(None, serialization_alias="output")
    accumulator: str | None = None
    precision: str | None = None
    trans_a: str | None = None
    trans_b: str | None = None
    alpha: complex | None = None
    beta: complex | None = None


@dataclass(frozen=True)
class _Row:
    """What stands in a file for one shape, and the line it starts in, counted from 1."""

    line: int
    content: Any


def read_shapes(path: Path, problem: Callable[..., GemmProblem]) -> list[Workload]:
    """The workloads of a file: a YAML list of mappings, or CSV with a header, where blanks around cells do not matter.

    Args:
        problem: makes one of a row's m, n, k, batch, dtype, output, accumulator, precision, trans_a, trans_b, alpha and
            beta; those that the row leaves out are not passed. Its label and source stay with the workload.

    Raises:
        ConfigError: the file cannot be read, a row breaks a rule, or a label stands twice; the message names file, line, key,
            value and rule.
    """
    text = read_text(path)
    try:
        rows = _csv_rows(text) if path.suffix.lower() == ".csv" else _yaml_rows(text)
    except (ConfigError, ValueError, csv.Error) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    if not rows:
        raise ConfigError(
            f"{path}: a file of shapes is a list of mappings with m, n and k (or a CSV file with a header)"
        )
    workloads: list[Workload] = []
    faults: list[str] = []
    labelled: dict[str, int] = {}
    for row in rows:
        try:
            shape = _Shape.model_validate(row.content)
            made = problem(**shape.model_dump(exclude_none=True, by_alias=True))
            workloads.append(Workload(made, shape.label, shape.source))
            if shape.label and (first := labelled.setdefault(shape.label, row.line)) != row.line:
                faults.append(f"{path}, line {row.line}: label {brief(shape.label)} stands in line {first} already")
        except ValidationError as error:
            faults += [f"{path}, line {row.line}: {fault}" for fault in _explain(error)]
        except (GemmportError, click.UsageError) as error:
            faults.append(f"{path}, line {row.line}: {error}")
    if faults:
        raise ConfigError(listed(faults))
    return workloads


def _csv_rows(text: str) -> list[_Row]:
    """Rows of a CSV file; an empty cell leaves its key out.

    Raises:
        ValueError: a column that stands twice, a row with more cells than the header, a cell that `check_text` refuses.
    """
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    header: Sequence[str] = ()
    rows: list[_Row] = []
    for line in reader:
        cells = [cell.strip() for cell in line]
        if not any(cells):
            continue
        try:
            for cell in cells:
                check_text(cell)
        except ConfigError as error:
            raise ValueError(f"line {reader.line_num}: {error}") from None
        if not header:
            header = cells
            if twice := sorted({name for name in header if header.count(name) > 1}):
                raise ValueError(f"line {reader.line_num}: column {', '.join(map(repr, twice))} stands twice")
            continue
        if len(cells) > len(header):
            raise ValueError(f"line {reader.line_num}: {len(cells)} cells, but the header has {len(header)}")
        rows.append(_Row(reader.line_num, {name: cell for name, cell in zip(header, cells, strict=False) if cell}))
    return rows


def _yaml_rows(text: str) -> list[_Row]:
    """Rows of a YAML list; empty where the file holds something else."""
    document = load_yaml(text)
    if not isinstance(document.node, yaml.SequenceNode):
        return []
    lines = [child.start_mark.line + 1 for child in document.node.value]
    return [_Row(line, content) for line, content in zip(lines, document.data, strict=True)]


def _explain(error: ValidationError) -> list[str]:
    """One line for each fault of a row: the key, the rule, the value."""
    lines = []
    for fault in error.errors():
        key = ".".join(map(str, fault["loc"])) or "the shape"
        rule = {"extra_forbidden": "unknown key", "missing": "missing key"}.get(fault["type"], fault["msg"])
        value = "" if fault["type"] == "missing" else f" (value {brief(fault['input'])})"
        lines.append(f"{key}: {rule}{value}")
    return lines
