"""Sources of kernels, read as text: one in each language for each contract, which reads every parameter; and twin preludes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmport import kernels
from gemmport.contracts.kernel import parameter_defines
from gemmport.core.plan import KernelSource
from gemmport.core.problem import GemmProblem
from gemmport.runtime.sources import PRELUDE, assemble
from made_up_devices import DEVICES

ROOM = Path(kernels.__path__[0])

FOLDERS = sorted(path.parent.name for path in ROOM.glob(f"*/{PRELUDE}"))
"""One for each language."""


def sources(folder: str, stem: str) -> list[Path]:
    return [path for path in (ROOM / folder).iterdir() if path.stem == stem]


OPENCLS_ALONE = {"matrix_instructions", "sub_group_mma"}
"""A part of the prelude, and a kernel, of instructions of AMD's and Intel's GPUs, which CUDA does not reach."""

ELSEWHERE = dict.fromkeys(OPENCLS_ALONE, ("cuda",))
"""Languages that have no source of that name."""

STEMS = [contract.name for contract in (*kernels.variants(), *kernels.passes())]


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("folder", FOLDERS)
def test_each_kernel_has_one_source_per_language(folder: str, stem: str) -> None:
    found = len(sources(folder, stem))
    if folder in ("cuda", "opencl"):
        assert found == (0 if folder in ELSEWHERE.get(stem, ()) else 1)
    else:  # of another language, the planner skips what has none
        assert found <= 1


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_of_sources_holds_one_language(folder: str) -> None:
    suffixes = {path.suffix for path in (ROOM / folder).rglob("*") if path.is_file()}
    assert len(suffixes) == 1


def parts(folder: str) -> dict[str, Path]:
    """The parts of a language's prelude, by their names without what tells the language."""
    return {path.stem: path for path in (ROOM / folder / PRELUDE).iterdir()}


def test_preludes_have_the_same_parts() -> None:
    assert {"cuda", "opencl"} <= {*FOLDERS}
    assert len({frozenset({*parts(folder)} - OPENCLS_ALONE) for folder in FOLDERS}) == 1
    assert not {*parts("cuda")} & OPENCLS_ALONE


def words(text: str) -> set[str]:
    """Identifiers of a C source, its comments and strings left out."""
    code = "\n".join(re.sub(r'"[^"]*"', " ", line.partition("//")[0]) for line in text.splitlines())
    return {word for word in "".join(c if c.isalnum() or c == "_" else " " for c in code).split() if not word.isdigit()}


OF_ONE_LANGUAGE = {"MOVES": "opencl", "CLUSTER": "cuda", "EARLY": "cuda"}
"""Parameters that one language reads: CUDA C++ has no vectors of any length, and moves elements; OpenCL launches no
clusters, and nothing early.
"""


@pytest.mark.parametrize("variant", kernels.variants(), ids=lambda variant: variant.name)
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_source_reads_every_parameter_of_its_contract(folder: str, variant: kernels.KernelVariant) -> None:
    """Itself or through what it includes, but those of passes alone, which change what is done before. Of the macros of a
    word's choices one may be left out: where no other is defined.
    """
    if not sources(folder, variant.name):
        return
    read = words(assemble(KernelSource(variant.name, variant.name), folder))
    dtype = "float32" if "float32" in variant.dtypes else min(variant.dtypes)
    problem, values = GemmProblem.create(9, 9, 1000, dtype=dtype), variant.complete({})
    told = variant.defines(values, problem).keys()
    for parameter in variant.parameters:
        if OF_ONE_LANGUAGE.get(parameter.name, folder) != folder:
            continue
        choices = [parameter_defines({parameter.name: x}).keys() for x in parameter.choices or (parameter.default,)]
        if any(choice <= told for choice in choices):
            macros = set().union(*choices)
            assert len(macros - read) < min(len(macros), 2), parameter.name
        else:
            default = int(parameter.default)
            other = {**values, parameter.name: default // 2 or default + 1}
            assert any(
                variant.steps(problem, device, other) != variant.steps(problem, device, values)
                for device in (DEVICES["CPU under PoCL"], DEVICES["NVIDIA sm_90 under CUDA"])
            ), parameter.name


OPENCLS_WORDS = {"WARP_SHUFFLE", "WARP_SYNC", "DECLARE_LOCAL", "FENCE_MAPS", "PARAMETER_PLACE", "NEGATE"}
"""For what CUDA C++ has functions or words; for tensor maps in global memory (FENCE_MAPS) or as parameters (PARAMETER_PLACE),
whose address CUDA C++ takes; and for a factor that NVIDIA's compiler of OpenCL C alone negates by a subtraction (NEGATE).
"""

CUDAS_WORDS = {"CLUSTER_ADDRESS", "CLUSTER_STORE", "CLUSTER_STORE_WHOLE", "COPY_TILE_TO", "OWN_RANK", "CLUSTER_ARRIVE"}
"""For clusters, which OpenCL does not launch."""


def test_preludes_offer_kernels_the_same_words() -> None:
    """What a kernel of either language takes from a part, the other language's part has too: macros, functions and types."""
    taken: dict[str, set[str]] = {name: set() for name in parts("opencl")}
    for folder in FOLDERS:
        for path in (path for stem in STEMS for path in sources(folder, stem)):
            source = path.read_text("utf-8")
            for name, part in parts(folder).items():
                taken[name] |= words(source) & offered(part.read_text("utf-8")) - offered(source)
    assert {"LOAD_A", "LOAD_B"} <= taken["products"]
    assert {"ACC_ZERO", "mul_add", "store"} <= taken["arithmetic"]
    assert {"this_tile", "INSIDE", "RESIDENT", "tile_t"} <= taken["tiles"]
    assert {"COPY_16", "MATRIX_MUL_ADD_16", "LOAD_READ_ONLY_4"} <= taken["ptx"]
    for folder in FOLDERS:
        for name, part in parts(folder).items():
            lacking = taken.get(name, set()) - words(part.read_text("utf-8"))
            assert not {word for word in lacking - OPENCLS_WORDS - CUDAS_WORDS if not word.startswith("__")}, part


def offered(text: str) -> set[str]:
    """Macros, functions and types that a C source defines."""
    macros = re.findall(r"^ *# *define (\w+)", text, re.MULTILINE)
    functions = re.findall(r"^\w[\w ]*\binline\b[^(\n=]*?(\w+)\(", text, re.MULTILINE)
    types = re.findall(r"^(?:typedef .*\b|\} )(\w+);|^struct (\w+)", text, re.MULTILINE)
    return {*macros, *functions, *(name for pair in types for name in pair if name)}


def contracts() -> set[str]:
    """The modules of kernels; those whose names begin with an underscore hold a part of a contract."""
    return {path.stem for path in ROOM.glob("*.py") if not path.stem.startswith("_")}


def test_every_module_of_kernels_is_listed() -> None:
    assert contracts() == set(STEMS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_source_belongs_to_a_contract(folder: str) -> None:
    stems = {path.stem for path in (ROOM / folder).iterdir() if path.is_file()}
    assert not {stem for stem in stems if not any(stem.startswith(contract) for contract in contracts())}
