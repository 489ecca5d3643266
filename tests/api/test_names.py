"""What `import gemmport` offers: named in one place, each with a first line that says what it is."""

from __future__ import annotations

import inspect
import pydoc
import re

import pytest

import gemmport as gp


def test_the_map_has_every_name_but_those_of_single_errors() -> None:
    told = set(re.findall(r"\w+", gp.__doc__ or ""))
    errors = {name for name in gp.__all__ if name.endswith("Error")}
    assert set(gp.__all__) - told - errors == set()
    assert "GemmportError" in told


@pytest.mark.parametrize("name", gp.__all__)
def test_a_name_has_a_first_line(name: str) -> None:
    first = (inspect.getdoc(getattr(gp, name)) or "").split("\n")[0]
    assert re.match(r"[^ ].{10,}", first), first


def test_names_are_in_order_and_stand_for_something() -> None:
    assert list(gp.__all__) == sorted(gp.__all__, key=lambda name: (name[0].islower(), name))
    assert all(hasattr(gp, name) for name in gp.__all__)


def test_every_error_of_the_package_that_is_offered_is_one() -> None:
    assert all(issubclass(getattr(gp, name), gp.GemmportError) for name in gp.__all__ if name.endswith("Error"))


def test_help_shows_functions_for_users_alone() -> None:
    text = pydoc.plain(pydoc.render_doc(gp))
    functions = re.findall(
        r"^    (\w+)(?:\(| = )", text.partition("\nFUNCTIONS\n")[2].partition("\nDATA\n")[0], re.MULTILINE
    )
    assert functions == [name for name in gp.__all__ if name[0].islower()]
