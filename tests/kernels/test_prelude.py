"""The parts of the prelude: put together by need, instructions in a part of their own, and examples that are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pcpp import Preprocessor

from gemmport import kernels
from gemmport.contracts.kernel import problem_defines
from gemmport.core.errors import CompileError
from gemmport.core.plan import KernelSource
from gemmport.core.problem import GemmProblem
from gemmport.runtime.sources import PRELUDE, assemble, languages

FOLDER = Path(kernels.__path__[0])
STEMS = [contract.name for contract in (*kernels.variants(), *kernels.passes())]
SUFFIXES = {"opencl": "cl", "cuda": "cu"}

INSTRUCTIONS = {"opencl": ["hopper.cl", "ptx.cl"], "cuda": ["hopper.cu", "ptx.cu"]}
"""The parts that hold inline assembly, by language."""

each_language = pytest.mark.parametrize("language", languages())


def parts(language: str) -> dict[str, str]:
    """The shipped parts by their names."""
    return {path.name: path.read_text("utf-8") for path in (FOLDER / language / PRELUDE).iterdir()}


def included(text: str) -> list[str]:
    """What a source includes."""
    return re.findall(r'^#include "(.+)"$', text, re.MULTILINE)


def code(text: str) -> str:
    """A source without its comments."""
    return re.sub(r"//.*|/\*.*?\*/", "", text)


# What is shipped


@each_language
def test_instructions_stand_in_parts_of_their_own(language: str) -> None:
    sources = {path.name: path.read_text("utf-8") for path in (FOLDER / language).rglob(f"*.{SUFFIXES[language]}")}
    found = [name for name, text in sources.items() if re.search(r"\b(__)?asm(__)?\b", code(text))]
    assert sorted(found) == INSTRUCTIONS[language]


@pytest.mark.parametrize(("language", "part"), [(key, part) for key, found in INSTRUCTIONS.items() for part in found])
def test_each_instruction_stands_in_one_macro(language: str, part: str) -> None:
    """Which holds nothing else, so that what takes its place is one macro, too."""
    lines = code(parts(language)[part]).replace("\\\n", " ").splitlines()
    macros = [" ".join(line.split()) for line in lines if line.strip() and not included(line)]
    macros = [
        line for line in macros if not line.startswith("#define LATER ")
    ]  # of the instructions that a compiler refuses
    assert all(re.match(r"#define [A-Z_0-9]+\(", line) for line in macros)
    assert max(len(re.findall("asm", line)) for line in macros) == 1
    instructions = re.findall(r"asm.*", "\n".join(macros))
    assert len(instructions) == len(set(instructions)) > 9


@each_language
def test_every_part_begins_with_a_comment_that_has_numbers(language: str) -> None:
    for name, text in parts(language).items():
        head = text[: re.search(r"^(?!//)", text, re.MULTILINE).start()]
        assert head.startswith(f"// {name.partition('.')[0]}: "), name
        assert re.search(r"\d", head.partition("\n")[2]), name


@each_language
def test_every_part_is_included(language: str) -> None:
    sources = [path.read_text("utf-8") for path in (FOLDER / language).rglob(f"*.{SUFFIXES[language]}")]
    assert {name for text in sources for name in included(text)} == parts(language).keys()


SOURCES = [(key, stem) for key in SUFFIXES for stem in STEMS if (FOLDER / key / f"{stem}.{SUFFIXES[key]}").is_file()]


@pytest.mark.parametrize(("language", "stem"), SOURCES)
def test_what_a_source_includes_stands_before_its_code(stem: str, language: str) -> None:
    """What is put there once must not depend on a condition."""
    for text in ((FOLDER / language / f"{stem}.{SUFFIXES[language]}").read_text("utf-8"), *parts(language).values()):
        lines = [line for line in code(text).splitlines() if line.strip()]
        assert not any(line.startswith("#include") for line in lines[len(included(text)) :])


@each_language
def test_kernels_come_with_no_part_that_they_do_not_need(language: str) -> None:
    naive = assemble(KernelSource("naive", "naive"), language)
    for part, needed in (("products", True), ("arithmetic", True), ("runs", False), ("sub_groups", False)):
        assert (f"// {part}: " in naive) == needed, part


@each_language
def test_a_part_is_there_once(language: str) -> None:
    """`shuffle` asks for the types in two ways."""
    text = assemble(KernelSource("shuffle", "shuffle"), language)
    assert [len(re.findall(f"^// {part}: ", text, re.MULTILINE)) for part in ("types", "ptx")] == [1, 1]
    assert not included(text)


OF_THE_OTHER = {"opencl": None, "cuda": "matrix_instructions"}
"""By language, the part that it has not."""


@each_language
def test_the_documentation_says_what_a_part_brings(language: str) -> None:
    """But for `ptx`, which each language needs elsewhere."""
    page = (Path(__file__).parents[2] / "docs" / "adding-a-kernel.md").read_text("utf-8")
    table = re.search(r"\| part \| what it has \| brings \|\n\|.*\n((?:\|.*\n)+)", page)
    rows = [[re.findall(r"`(\w+)`", cell) for cell in row.split("|")[1:4]] for row in table[1].splitlines()]
    told = {name: set(brings) for (name,), _, brings in rows if name != OF_THE_OTHER[language]}
    brought = {name: {part.partition(".")[0] for part in included(text)} for name, text in parts(language).items()}
    assert told == {name.partition(".")[0]: found - {"ptx"} for name, found in brought.items()}


SIMT = {
    "WM": 32, "WN": 128, "TSM": 128, "TSN": 256, "TSK": 8, "SLICES": 1, "STAGES": 3, "WIDTH": 4, "WPTM": 8, "WPTN": 16,
    "A_RUNS_ALONG_K": 1, "B_RUNS_ALONG_K": 0,
}  # fmt: skip


@each_language
def test_the_numbers_of_the_example_in_simt_are_true(language: str) -> None:
    """Those that the comments start from are these, and the preprocessor finds the others."""
    text = (FOLDER / language / f"simt.{SUFFIXES[language]}").read_text("utf-8")
    comment = " ".join(line.removeprefix("//").strip() for line in text.splitlines() if line.startswith("//"))
    given = re.search(r"with (TSM = .*?),? and (WIDTH = \d+), .* with (A_RUNS\w+ = \d) and (B_RUNS\w+ = \d)", comment)
    assert dict(part.split(" = ") for group in given.groups() for part in group.split(", ")) == {
        name: str(value) for name, value in SIMT.items()
    }
    examples = re.findall(r"^//     (\w+(?:\(.*?\))?) = (\d+)$", text, re.MULTILINE)
    assert {name.partition("(")[0] for name, _ in examples} >= {"STEP", "ACROSS", "COPIES", "PIECES", "PIECE"}
    assert false_examples(text, examples) == []
    assert false_examples(text, [("PIECES", "3"), *examples]) == ["PIECES = 3"]


def false_examples(text: str, examples: list[tuple[str, str]]) -> list[str]:
    """Expressions that the preprocessor finds to be another number than is said."""
    defines = {**SIMT, "MMA": 0, "ASYNC_COPIES": 0, "OVERLAP": 0, "SHARES": 0}
    preprocessor = Preprocessor()
    preprocessor.parse(
        "".join(f"#define {name} {value}\n" for name, value in defines.items())
        + "#define min(x, y) ((x) < (y) ? (x) : (y))\n#define max(x, y) ((x) > (y) ? (x) : (y))\n"
        + re.sub("^#include.*$", "", text, flags=re.MULTILINE)
        + "".join(f'\n#if ({name}) != {value}\n"{name} = {value}"\n#endif\n' for name, value in examples)
    )
    tokens = {token.value for token in iter(preprocessor.token, None)}
    return [told for told in (f"{name} = {value}" for name, value in examples) if f'"{told}"' in tokens]


# Kernels of one's own


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of kernels of one's own, with parts of its own."""
    (tmp_path / "opencl" / PRELUDE).mkdir(parents=True)
    (tmp_path / "opencl" / "mine.cl").write_text(
        '// mine\n#include "types.cl"\n#include "more.cl"\n__kernel void mine() {}\n'
    )
    (tmp_path / "opencl" / PRELUDE / "more.cl").write_text(
        '// more\n#include "types.cl"\n#include "more.cl"\nint more;\n'
    )
    return tmp_path


def mine(folder: Path, overrides: Path | str = "") -> str:
    return assemble(KernelSource("mine", "mine", (("IN", "int8"),), str(folder)), "opencl", overrides)


def test_a_kernel_of_one_s_own_includes_the_shipped_parts_and_its_own(own: Path) -> None:
    text = mine(own)
    assert text.startswith("#define IN int8\n\n// mine\n// types: ")
    assert text.endswith("// more\nint more;\n__kernel void mine() {}\n")
    assert text.count("// types: ") == text.count("int more;") == 1


def test_a_kernel_that_includes_nothing_has_its_definitions_alone(own: Path) -> None:
    (own / "opencl" / "mine.cl").write_text("__kernel void mine() {}\n")
    assert mine(own) == "#define IN int8\n\n__kernel void mine() {}\n"


def test_what_the_compiler_shall_include_is_left_to_it(own: Path) -> None:
    (own / "opencl" / "mine.cl").write_text('#include <mine.h>\n// #include "none.cl"\n')
    assert mine(own).endswith('#include <mine.h>\n// #include "none.cl"\n')


def test_a_part_that_is_not_there_is_named_with_the_places_where_it_may_be(own: Path) -> None:
    (own / "opencl" / "mine.cl").write_text('#include "tpyes.cl"\n')
    with pytest.raises(CompileError, match=r'"tpyes\.cl" must name a part.*opencl.prelude or .*opencl.prelude') as told:
        mine(own)
    assert str(own) in str(told.value)


def test_a_part_stands_in_for_a_shipped_one_of_its_name(own: Path, tmp_path: Path) -> None:
    """That of `overrides` for all others."""
    (own / "opencl" / PRELUDE / "types.cl").write_text("// types of mine\n")
    assert "// types of mine\n" in mine(own)
    folder = tmp_path / "overrides"
    folder.mkdir()
    (folder / "types.cl").write_text("// types of a backend\n")
    for text in (mine(own, folder), mine(own, str(folder)), assemble(KernelSource("naive", "naive"), "opencl", folder)):
        assert "// types of a backend\n" in text
        assert "// types: " not in text
        assert "// types of mine" not in text


def test_overrides_that_are_no_folder_are_told(own: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"overrides must be a folder of parts; got .*nowhere"):
        mine(own, own / "nowhere")


@each_language
def test_another_part_of_instructions_is_all_that_a_backend_without_them_needs(language: str, tmp_path: Path) -> None:
    """With macros that are empty, nothing of NVIDIA's is left in any kernel of OpenCL, and none of its `asm` in CUDA's."""
    for name in INSTRUCTIONS[language]:
        text = parts(language)[name].replace("\\\n", " ")
        (tmp_path / name).write_text(re.sub(r"^(#define \w+\(.*?\)).*$", r"\1", text, flags=re.MULTILINE))
    defines = tuple(problem_defines(GemmProblem.create(1, 1, 1, dtype="float16")).items())
    for stem in (stem for key, stem in SOURCES if key == language):
        kernel = KernelSource(stem, stem, defines)
        assert "asm" not in code(assemble(kernel, language, tmp_path))
    assert "asm" in code(assemble(KernelSource("simt", "simt", defines), language))
