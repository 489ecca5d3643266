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


def text_of(name: str) -> str:
    """The source of a module."""
    return MODULES[name].read_text(encoding="utf-8")


def own_imports(name: str) -> set[str]:
    """Modules of gemmport that a module imports, without "gemmport."."""
    return imported_by(text_of(name))


def imported_by(text: str) -> set[str]:
    """Likewise, of a module's source."""
    found = imports(ast.parse(text))
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


def upward_imports(name: str, text: str) -> set[str]:
    """Modules of higher rooms that a module of this name and source imports."""
    return {wanted for wanted in imported_by(text) if floor(wanted) > floor(name)}


@each_module
def test_a_lower_room_never_imports_a_higher_one(name: str) -> None:
    assert not upward_imports(name, text_of(name))


@pytest.mark.parametrize(
    "planted",
    [
        "from gemmport.planning.planner import make_plan",
        "import gemmport.planning.planner",
        "def late() -> None:\n    from gemmport.planning import planner",
    ],
)
def test_an_import_of_a_higher_room_is_found(planted: str) -> None:
    assert upward_imports("core.problem", f"{text_of('core.problem')}\n{planted}\n") == {"planning.planner"}
    assert not upward_imports("execution.executor", f"{text_of('execution.executor')}\n{planted}\n")


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


APART = {
    "cuda": {
        "_check_pointer": "a pointer tells neither its device nor its context, which OpenCL's wrapped buffers do by themselves",
        "free_memory": "OpenCL's runtimes do not tell what is free",
        "dlpack_device": "no consumer of DLPack reaches OpenCL's memory",
        "share": "likewise",
        "reaches": "OpenCL knows no peers",
        "copy_from": "likewise",
        "_left": "another process makes programs without a device by NVRTC; OpenCL's compilers are in its drivers",
        "pin": "CUDA's graphs launch functions of modules that may be unloaded; OpenCL's kernels hold their programs",
        "is_captured": "OpenCL captures no graphs",
        "_may_be_captured": "likewise",
        "_until_gone": "likewise",
        "_handle": "CUDA's driver takes a stream by its handle; PyOpenCL takes the queue itself",
        "_finish": "one call waits for all streams of a context; OpenCL has no such call",
        "_drain": "the pool of CUDA is emptied while its context is current, also at the end of the process",
        "_join_event": "PyCUDA does not tell the handle of an event, and PyOpenCL's queues take events",
        "_packed": "CUDA's driver takes a kernel's arguments as one structure, OpenCL's one by one",
        "_interface": "the CUDA array interface is one of many libraries, OpenCL has one: `_is_array`",
        "_on_gpu": "likewise, of DLPack",
        "_MOST_STREAMS": "is the twin of `_MOST_QUEUES`, in the words of each runtime",
        "_NON_BLOCKING": "OpenCL has no legacy stream that others would wait for",
        "_POINTER": "part of `_packed`",
        "modules: graphs": "OpenCL captures no graphs",
        "modules: host": "PyOpenCL pins memory itself, by a flag of its buffers",
        "modules: modules": "OpenCL's programs and launches are PyOpenCL's, but for those in `_opencldriver`",
        "modules: streams": "OpenCL's queues are PyOpenCL's",
    },
    "opencl": {
        "_borrow": "an OpenCL device may be the host's CPU, which uses the host's memory in place",
        "give_back": "likewise",
        "takes_addresses": "likewise",
        "_shared": "likewise",
        "_address": "an OpenCL buffer has no address; CUDA's `Memory.handle` is one",
        "_completed": "NVIDIA's OpenCL compiles no instructions of sm_90a alone, which NVRTC does",
        "_cuda": "makes machine code and tensor maps of NVIDIA's devices, which the CUDA backend has at hand",
        "_capability": "likewise",
        "_with_residency": "OpenCL C has no word for resident groups; `__launch_bounds__` is CUDA C++",
        "_Map": "OpenCL tells its host no addresses: maps are made with those that `_addresses` guesses, and kernels compare",
        "_guesses": "likewise",
        "_place": "likewise",
        "_keeps_programs": "PoCL keeps programs on disk by itself, NVRTC does not",
        "_build": "OpenCL's compiler works in a context, NVRTC without one (`_nvrtc`)",
        "_most_work_items": "runtimes have quirks in what they tell; CUDA's driver has none",
        "_use_first": "see the quirk pocl-first-use; CUDA's memory is there when it is allocated",
        "_catch_up": "launches in C outrun a CPU, and GPUs have queues of limited length",
        "_waits_for_others": "likewise",
        "_is_to_come": "likewise",
        "as_owner": "PyOpenCL's queues of others may run out of order; CUDA's streams never do",
        "in_order": "likewise",
        "_has_no_order": "likewise",
        "_compiles_after_callers": "NVIDIA's OpenCL has a lock; NVRTC compiles in another process",
        "survives_forks": "some runtimes of OpenCL go on in a child, CUDA's never does",
        "_is_array": "see `_interface` of CUDA",
        "_Program": "PyOpenCL takes long to make a kernel, so that a program keeps idle ones; CUDA's cost nothing",
        "log": "the CUDA backend goes on from no failure with a warning",
        "_FILL_BYTES": "see the quirk nvidia-byte-fills; CUDA's fills have none",
        "_MOST_QUEUES": "see `_MOST_STREAMS` of CUDA",
        "_MOST_AHEAD": "part of `_catch_up`",
        "_LONGEST_WAIT": "likewise",
        "_LOOKS_AGAIN": "likewise",
        "modules: build": "PyOpenCL's own build warns of every log; NVRTC's log is `_nvrtc`'s",
        "modules: disassembly": "each runtime of OpenCL keeps other code in its binaries; NVRTC's is `_nvrtc`'s",
    },
}
"""What one of the two backends alone has, and why: methods, what stands beside the class, and the
modules `_cuda*` and `_opencl*` that help it.
"""


def parts_of(name: str) -> set[str]:
    """The names of a backend's methods, of what stands beside its class, and of the modules that help it."""
    found = set(signatures(backend_class(name)))
    for node in ast.parse(text_of(f"backends.{name}")).body:
        match node:
            case ast.FunctionDef() | ast.ClassDef() if node.name != backend_class(name).name:
                found.add(node.name)
            case ast.Assign():
                found |= {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=variable)):
                found.add(variable)
            case _:
                pass
    helpers = (each.partition(f"backends._{name}")[2] for each in MODULES)
    return found | {f"modules: {helper}" for helper in helpers if helper}


def test_what_one_backend_alone_has_has_a_reason() -> None:
    """What is new in one of them belongs into both, or into the list above."""
    cuda, opencl = parts_of("cuda"), parts_of("opencl")
    assert cuda - opencl == APART["cuda"].keys()
    assert opencl - cuda == APART["opencl"].keys()


@pytest.mark.parametrize("name", backends.names())
def test_a_backend_is_named_like_its_file(name: str) -> None:
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in backend_class(name).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert values["name"] == name
