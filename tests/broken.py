"""Kernels that are wrong on purpose: copies of `naive` with one planted fault, for tests of what must notice them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from gemmport import kernels
from gemmport.kernels.naive import Naive

FAULTS = {
    "drops the last term": ("p < k", "p < k - 1"),
    "ignores beta": ("alpha, beta);", "alpha, ACC_ZERO);"),
    "skips the last row": ("i < m &&", "i < m - 1 &&"),
    "writes beyond the edge": ("j < n)", "j < n + 1)"),
    "reads the wrong column": ("LOAD_B(p, j)", "LOAD_B(p, (j + 1) % n)"),
    "does not compile": ("acc_t sum =", "no_such_type sum ="),
}


@contextmanager
def planted(fault: str, folder: Path) -> Iterator[str]:
    """Registers `naive` with a fault of `FAULTS` in both languages; gives the variant's name."""
    good, bad = FAULTS[fault]
    for file in ("cuda/naive.cu", "opencl/naive.cl"):
        source = files("gemmport.kernels").joinpath(file).read_text("utf-8")
        assert good in source
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        # The guard is compiled out where no tile crosses an edge; a broken guard must stay broken.
        target.write_text("#undef INSIDE\n#define INSIDE(condition) (condition)\n" + source.replace(good, bad), "utf-8")

    class Broken(Naive):
        name = "broken"
        folder = ""

        def source(self, defines, *, function="", stem=""):  # type: ignore[no-untyped-def]
            return super().source(defines, function="naive", stem="naive")

    Broken.folder = str(folder)
    kernels.register(Broken())
    try:
        yield "broken"
    finally:
        kernels._FAMILY.pop("broken")
