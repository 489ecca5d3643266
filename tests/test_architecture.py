"""The plan of the building: which room may import which, and that backends mirror each other. Read from the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import gemmport
from gemmport import backends, configs, kernels, shapes
from gemmport.backends.base import Backend

PLACES = {
    "gemmport": Path(gemmport.__path__[0]),
    "gemmport.backends": Path(backends.__path__[0]),
    "gemmport.kernels": Path(kernels.__path__[0]),
    "gemmport.configs": Path(configs.__path__[0]),
    "gemmport.shapes": Path(shapes.__path__[0]),
}

ROOMS = (
    "core", "runtime", "pages", "shapes", "contracts", "backends", "kernels", "configs", "planning", "execution", "multidevice",
    "outofcore", "api", "", "checking", "baselines", "bench", "calibration", "tuning", "diagnose", "inspection", "profiling",
    "fuzz", "matrix", "cli", "__main__", "torch", "jax", "dask",
)  # fmt: skip
"""From the ground up: a module imports modules of its own room and of lower ones. "" is `gemmport` itself."""

RUNTIMES = {"pycuda", "pyopencl"}


def modules() -> dict[str, Path]:
    """Every module of the package by its name without "gemmport.", which is empty for the package itself."""
    found = {}
    for package, folder in PLACES.items():
        for path in folder.rglob("*.py"):
            parts = [*package.split("."), *path.relative_to(folder).with_suffix("").parts]
            found[".".join(part for part in parts[1:] if part != "__init__")] = path
    return found


MODULES = modules()
each_module = pytest.mark.parametrize("name", sorted(MODULES), ids=lambda name: name or "gemmport")


def floor(name: str) -> int:
    """The number of a module's room."""
    return ROOMS.index(name.partition(".")[0])


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """All statements that run; those under TYPE_CHECKING are for people and type checkers."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from statements(child)


def imports(tree: ast.Module) -> set[str]:
    """Full names of all modules that a module imports, wherever in it."""
    found = set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                known = full.removeprefix("gemmport.") in MODULES
                found.add(full if known else str(node.module))
    return found


def own_imports(name: str) -> set[str]:
    """Modules of gemmport that a module imports, without "gemmport."."""
    found = imports(ast.parse(MODULES[name].read_text(encoding="utf-8")))
    return {full.removeprefix("gemmport").removeprefix(".") for full in found if full.split(".")[0] == "gemmport"}


def test_the_reader_of_imports_sees_them_in_every_form() -> None:
    text = """
        import gemmport.core.plan, numpy as np
        from gemmport import kernels
        from gemmport.core.errors import ShapeError
        if TYPE_CHECKING:
            from gemmport.api.gemm import gemm
        def f():
            try:
                import pyopencl.array
            except ImportError:
                from gemmport.backends import cuda
    """
    found = imports(ast.parse("if True:" + text))
    assert found == {"gemmport.core.plan", "numpy", "gemmport.kernels", "gemmport.core.errors", "pyopencl.array",
                     "gemmport.backends.cuda"}  # fmt: skip


@each_module
def test_a_lower_room_never_imports_a_higher_one(name: str) -> None:
    assert not [wanted for wanted in own_imports(name) if floor(wanted) > floor(name)]


def test_no_imports_go_in_a_circle() -> None:
    found = {name: own_imports(name) - {name} for name in MODULES}
    assert len([*TopologicalSorter(found).static_order()]) == len(MODULES)


def test_every_room_is_installed() -> None:
    """A package that setuptools does not list is missing for everyone but those who work in a clone."""
    told = (Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8")
    listed = told.partition("\npackages = [")[2].partition("]")[0]
    packages = {name.removeprefix("gemmport").removeprefix(".") for name in re.findall(r'"([\w.]+)"', listed)}
    assert packages == {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert {name.partition(".")[0] for name in packages} == {*ROOMS} - {"__main__"}


def test_every_source_of_kernels_is_installed() -> None:
    told = (Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8")
    (patterns,) = re.findall(r'^"gemmport\.kernels" = (\[.*\])$', told, re.MULTILINE)
    root = PLACES["gemmport.kernels"]
    sources = {path for path in root.rglob("*.c?") if path.is_file()}
    assert sources
    assert sources <= {path for pattern in ast.literal_eval(patterns) for path in root.glob(pattern)}


def test_the_backends_never_import_each_other() -> None:
    for name in backends.names():
        others = {f"backends.{other}" for other in backends.names() if other != name}
        assert not own_imports(f"backends.{name}") & others


@each_module
def test_nothing_but_backends_imports_a_runtime(name: str) -> None:
    found = {full.partition(".")[0] for full in imports(ast.parse(MODULES[name].read_text(encoding="utf-8")))}
    assert name.startswith("backends.") or not found & RUNTIMES


@pytest.mark.parametrize("library", ["torch", "jax", "dask"])
@each_module
def test_a_library_is_imported_by_its_own_room_alone_which_only_users_import(name: str, library: str) -> None:
    if name.partition(".")[0] != library:
        found = imports(ast.parse(MODULES[name].read_text(encoding="utf-8")))
        assert not {full for full in found if full.removeprefix("gemmport.").partition(".")[0] == library}


@pytest.mark.parametrize("name", ["backends", "backends.base", "backends.objects", "backends.array"])
def test_what_backends_share_imports_no_runtime_either(name: str) -> None:
    found = {full.partition(".")[0] for full in imports(ast.parse(MODULES[name].read_text(encoding="utf-8")))}
    assert not found & RUNTIMES


@pytest.mark.parametrize("name", ["core.problem", "core.plan", "kernels", "planning.planner"])
def test_what_is_planned_knows_no_backend(name: str) -> None:
    reached, waiting = set(), [name]
    while waiting:
        for wanted in own_imports(waiting.pop()) - reached:
            reached.add(wanted)
            waiting.append(wanted)
    assert not [wanted for wanted in reached if wanted.startswith("backends")]


# Backends


def backend_class(name: str) -> ast.ClassDef:
    """The one class of a backend's file that derives from Backend."""
    tree = ast.parse(MODULES[f"backends.{name}"].read_text(encoding="utf-8"))
    (found,) = (
        node for node in tree.body
        if isinstance(node, ast.ClassDef) and any(ast.unparse(b).rpartition(".")[2] == "Backend" for b in node.bases)
    )  # fmt: skip
    return found


def signatures(body: ast.ClassDef) -> dict[str, tuple[list[str], list[str], list[str]]]:
    """Methods in order with the names of their parameters, those by keyword alone apart, and their decorators."""
    return {
        node.name: (
            [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)],
            [argument.arg for argument in node.args.kwonlyargs],
            [ast.unparse(decorator) for decorator in node.decorator_list if "property" in ast.unparse(decorator)],
        )
        for node in body.body
        if isinstance(node, ast.FunctionDef)
    }


def interface() -> dict[str, tuple[list[str], list[str], list[str]]]:
    """The methods of the base class."""
    tree = ast.parse(MODULES["backends.base"].read_text(encoding="utf-8"))
    (base,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Backend")
    return signatures(base)


@pytest.mark.parametrize("name", backends.names())
def test_a_backend_implements_the_interface_with_its_parameters_and_adds_no_public_method(name: str) -> None:
    own = signatures(backend_class(name))
    public = {method for method in own if not method.startswith("_")}
    assert public <= interface().keys()
    assert Backend.__abstractmethods__ <= own.keys()
    shared = own.keys() & interface().keys()
    assert {method: own[method] for method in shared} == {method: interface()[method] for method in shared}


@pytest.mark.parametrize("name", backends.names())
def test_what_a_backend_overrides_is_on_the_page_about_backends(name: str) -> None:
    page = (Path(__file__).parent.parent / "docs" / "adding-a-backend.md").read_text("utf-8")
    overridden = signatures(backend_class(name)).keys() & interface().keys() - {"__init__"}
    assert not {method for method in overridden if f"`{method}`" not in page}


def test_backends_have_what_they_share_in_one_order() -> None:
    methods = [signatures(backend_class(name)) for name in backends.names()]
    orders = [[method for method in own if all(method in other for other in methods)] for own in methods]
    assert all(order == orders[0] for order in orders)


@pytest.mark.parametrize("name", backends.names())
def test_a_backend_is_named_like_its_file(name: str) -> None:
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in backend_class(name).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert values["name"] == name
