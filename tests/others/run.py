"""Runs other libraries' own tests of products with gemmport's in the place of theirs. This repository does not hold them:

    python tests/others/run.py cupy FOLDER     # of CuPy's tests: test_matmul.py, test_product.py
    python tests/others/run.py torch FOLDER    # of PyTorch's: test_linalg.py
    python tests/others/run.py torch FOLDER --part 1/4

FOLDER and its subfolders have the tests' files, of a version near the installed library's. PyTorch's import expecttest, which
does not come with it: pip install expecttest. What fails must be named in
not_applicable.yaml, with the reason; what fails without gemmport, too, is told, and is nobody's concern here. PyTorch's are run
on CUDA tensors if gemmport takes a CUDA device (GEMMPORT_BACKEND), on those of the host otherwise.

Exit status: 0 if all else passes, 1 if something does not, or is named and passes, 2 where there is nothing to run.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import pytest
import yaml

import gemmport as gp

LIST = Path(__file__).parent / "not_applicable.yaml"


class Library(ABC):
    """Whose tests are run.

    Attributes:
        files: that have them. chosen: what a test must call, as its source names it.
        products: that gemmport has computed.
    """

    files: ClassVar[Sequence[str]]
    chosen: ClassVar[re.Pattern[str]]

    def __init__(self) -> None:
        self.products = 0

    @abstractmethod
    def prepare(self) -> None:
        """Imports the library and what its tests need, and does what must be done before these are imported.

        Raises:
            ModuleNotFoundError: a module is missing.
        """

    def as_it_is(self) -> AbstractContextManager[Any]:
        """The time in which tests are run without gemmport, to see whether they pass so."""
        return nullcontext()

    @abstractmethod
    def replaced(self, module: ModuleType) -> AbstractContextManager[None]:
        """The time in which a module's products are gemmport's."""


class OfCuPy(Library):
    """`cupy.matmul`, and `operator.matmul` in the tests: of the operator `@` itself, CuPy's arrays decide."""

    files = ("test_matmul.py", "test_product.py")
    chosen = re.compile(r"(xp|cupy|operator|linalg)\.matmul\(")

    def matmul(self, *operands: Any, **options: Any) -> Any:
        """That is of gemmport where CuPy's would have been called."""
        self.products += 1
        return gp.matmul(*operands, **options)

    def prepare(self) -> None:
        importlib.import_module("cupy")

    @contextmanager
    def replaced(self, module: ModuleType) -> Iterator[None]:
        cupy = importlib.import_module("cupy")
        with mock.patch.object(cupy, "matmul", self.matmul):
            if not hasattr(module, "operator"):
                yield
                return

            def product(a: Any, b: Any) -> Any:
                return self.matmul(a, b) if isinstance(a, cupy.ndarray) else a @ b

            with mock.patch.object(module, "operator", SimpleNamespace(matmul=product)):
                yield


class OfTorch(Library):
    """All that `gemmport.torch.use` sees."""

    files = ("test_linalg.py",)
    chosen = re.compile(
        r"\b(matmul|mm|bmm|addmm|baddbmm|addbmm|mv|addmv|dot|vdot|inner|einsum|tensordot|linear|multi_dot)_?\(| @ "
    )

    def prepare(self) -> None:
        """Lets tests of one release run with another. Those that need a helper it lacks fail, with and without gemmport."""
        self.torch = importlib.import_module("gemmport.torch")
        backend = gp.get_backend().device.backend
        os.environ["PYTORCH_TESTING_DEVICE_ONLY_FOR"] = "cuda" if backend == "cuda" else "cpu"
        mkldnn = importlib.import_module("torch.testing._internal.common_mkldnn")
        if not hasattr(mkldnn, "bf32_on_and_off") and hasattr(mkldnn, "reduced_f32_on_and_off"):
            mkldnn.bf32_on_and_off = mkldnn.reduced_f32_on_and_off
        # The setUp of PyTorch 2.6's tests asks for that behind self.__class__, which newer releases derive from the tests' own
        # class: it would find itself, without an end, if the class that stands between had none.
        devices = importlib.import_module("torch.testing._internal.common_device_type").DeviceTypeTestBase
        for name in ("setUp", "tearDown"):
            if name not in vars(devices):
                setattr(devices, name, getattr(devices, name))

    def as_it_is(self) -> AbstractContextManager[Any]:
        """In a mode that does nothing: torch itself fails some tests in any."""
        modes = importlib.import_module("torch.utils._python_dispatch")

        class Nothing(modes.TorchDispatchMode):  # type: ignore[misc, name-defined]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return func(*args, **(kwargs or {}))

        return Nothing()

    @contextmanager
    def replaced(self, module: ModuleType) -> Iterator[None]:
        routing = self.torch.use()
        try:
            with routing:
                yield
        finally:
            self.products += routing.products


LIBRARIES: Mapping[str, Callable[[], Library]] = {"cupy": OfCuPy, "torch": OfTorch}


class Exchange:
    """A plugin of pytest that runs tests with gemmport's products, or as they are.

    Attributes:
        part: the number of this run, from 1, and of how many: each takes one test of so many.
        outcomes: of each test, "passed", "failed" or "skipped". computed: how many products of gemmport's it had.
    """

    def __init__(
        self, library: Library, chosen: Callable[[pytest.Item], bool], *, ours: bool, part: tuple[int, int] = (1, 1)
    ) -> None:
        self.library, self.chosen, self.ours, self.part = library, chosen, ours, part
        self.outcomes: dict[str, str] = {}
        self.told: dict[str, str] = {}
        self.computed: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out what is of something else, and of other parts."""
        number, parts = self.part
        taken = [item for item in items if self.chosen(item)][number - 1 :: parts]
        kept = set(taken)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = taken

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """One test."""
        if not self.ours:
            with self.library.as_it_is():
                return (yield)
        before = self.library.products
        try:
            with self.library.replaced(item.module):  # type: ignore[attr-defined]
                return (yield)
        finally:
            self.computed[name_of(item.nodeid)] = self.library.products - before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What came of it."""
        if report.when == "call" or report.outcome != "passed":
            name = name_of(report.nodeid)
            self.outcomes[name] = "failed" if report.failed else report.outcome
            if report.failed:
                lines = [line for line in str(report.longrepr).splitlines() if line.startswith("E ")]
                self.told[name] = (lines or [str(report.longrepr)])[0].removeprefix("E").strip()


def name_of(nodeid: str) -> str:
    """A test's file, class and name, without the folder."""
    path, _, rest = nodeid.partition("::")
    return f"{Path(path).name}::{rest}"


def names_a_product(library: Library) -> Callable[[pytest.Item], bool]:
    """Whether the source of a test does."""

    def chosen(item: pytest.Item) -> bool:
        # Decorators of CuPy's and PyTorch's tests wrap without telling, and PyTorch's add types and devices to the names.
        source = source_of(item.module, getattr(item, "originalname", None) or item.name)  # type: ignore[attr-defined]
        return library.chosen.search(source) is not None

    return chosen


def source_of(module: ModuleType, name: str) -> str:
    """That of a test as it stands in its file, in every class that has one of its name."""
    lines = inspect.getsource(module).splitlines()
    heads = [(number, match) for number, line in enumerate(lines) if (match := re.match(r"( *)def (test\w*)\(", line))]
    names = {match[2] for _, match in heads if name == match[2] or name.startswith(f"{match[2]}_")}
    found = []
    for number, match in heads:
        if match[2] == max(names, key=len, default=""):
            found.append(lines[number])
            for line in lines[number + 1 :]:
                if line.strip() and len(line) - len(line.lstrip()) <= len(match[1]):
                    break
                found.append(line)
    return "\n".join(found)


def run(files: Sequence[Path], plugin: Exchange) -> int:
    """Runs pytest over files, without this repository's configuration and the plugins that happen to be installed."""
    own = [
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(files[0].parent),
        "--tb=short",
    ]
    with mock.patch.dict(os.environ, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"):
        return int(pytest.main([*own, "--import-mode=importlib", *map(str, files)], plugins=[plugin]))


def judged(ours: Exchange, theirs: Exchange, reasons: Mapping[str, str]) -> tuple[list[str], int]:
    """What is to be told, and the exit status."""
    failed = [name for name, outcome in ours.outcomes.items() if outcome == "failed"]
    lines, status, used = [], 0, set()
    for name in failed:
        if theirs.outcomes.get(name) == "failed":
            lines.append(f"fails without gemmport, too: {name}")
            continue
        pattern = next((pattern for pattern in reasons if fnmatchcase(name, pattern)), None)
        if pattern is None:
            status = 1
            lines.append(f"FAILED: {name}: {ours.told[name]}")
        else:
            used.add(pattern)
    for pattern in reasons.keys() - used:
        if any(fnmatchcase(name, pattern) for name, outcome in ours.outcomes.items() if outcome == "passed"):
            status = 1
            lines.append(f"named as failing, and passes: {pattern}")
    counts = Counter(ours.outcomes.values())
    without = sum(outcome == "passed" and not ours.computed[name] for name, outcome in ours.outcomes.items())
    lines.append(
        f"{counts['passed']} passed ({without} of them had no product of gemmport's), {len(failed)} failed, "
        f"{counts['skipped']} skipped; {sum(ours.computed.values())} products; "
        + "; ".join(f"{pattern}: {reasons[pattern]}" for pattern in sorted(used))
    )
    return lines, status


def part_of(text: str) -> tuple[int, int]:
    """What --part says."""
    number, slash, parts = text.partition("/")
    if not slash or not number.isdecimal() or not parts.isdecimal() or not 1 <= int(number) <= int(parts):
        raise argparse.ArgumentTypeError(f"must be NUMBER/PARTS, as 1/4; got {text}")
    return int(number), int(parts)


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", type=Path, default=LIST, help="what fails, and why (default: %(default)s)")
    parser.add_argument("--part", type=part_of, default=(1, 1), help="run this of so many parts: 1/4, 2/4, …")
    given = parser.parse_args(arguments)
    library = LIBRARIES[given.library]()
    files = sorted(file for name in library.files for file in given.folder.rglob(name))
    if not files:
        sys.stderr.write(f"{given.folder} must have {' or '.join(library.files)}\n")
        return 2
    try:
        library.prepare()
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"{given.library}'s tests need {error.name}, which is not installed: pip install {error.name}\n"
        )
        return 2
    ours = Exchange(library, names_a_product(library), ours=True, part=given.part)
    run(files, ours)
    if not ours.outcomes:
        return 2
    failed = {name for name, outcome in ours.outcomes.items() if outcome == "failed"}
    theirs = Exchange(library, lambda item: name_of(item.nodeid) in failed, ours=False)
    if failed:
        run(files, theirs)
    reasons = (yaml.safe_load(given.list.read_text("utf-8")) or {}).get(given.library) or {}
    lines, status = judged(ours, theirs, reasons)
    sys.stdout.write("\n".join(lines) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
