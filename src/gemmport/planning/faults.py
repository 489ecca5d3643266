"""What is wrong with a file that people write, in words: which rule a value breaks, and which key was meant.

Pydantic finds what is wrong; its own words speak of Python's types. Here each key says what it must be, by the description of
its field.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gemmport.core.names import did_you_mean
from gemmport.runtime.userfile import brief

Place = Sequence[int | str]
"""Keys of mappings and numbers in lists, from the outermost on."""


class NotOneOf(ValueError):  # noqa: N818 - pydantic takes a ValueError for a verdict: it is none of ours
    """A text must be one of those that are known."""

    def __init__(self, known: Sequence[str]) -> None:
        super().__init__(f"one of {', '.join(known)}")
        self.known = known


def in_words(fault: ErrorDetails, rules: type[BaseModel], data: object, place: Place) -> str:
    """A fault that pydantic found.

    Args:
        rules: of what `data` is. The description of a field says what it must be; its title, what each value must be where it
            is a mapping.
        place: of the fault in `data`; `fault` itself may have another, in a file around it.
    """
    depth, field, own = _field(rules, place)
    of_key = place[-1:] == ("[key]",)
    told = [*_existing(place, data)]
    of_value = field is not None and field.title is not None and len(told) > depth and not of_key
    expected = (field and (field.title if of_value else field.description)) or "a mapping"
    where = ".".join(told[:depth] if of_key else told)
    match fault["type"]:
        case "missing":
            return f"{place[-1]} is missing: add {expected}"
        case "extra_forbidden":
            known = [field.alias or name for name, field in own.model_fields.items()]
            return f"{where or 'it'} is an unknown key: there are {', '.join(known)}{did_you_mean(place[-1], known)}"
    error = fault.get("ctx", {}).get("error")
    value = fault["input"]
    hint = ""
    if isinstance(error, NotOneOf):
        hint = did_you_mean(value, error.known)
    elif "text" in expected and isinstance(value, int | float | dt.date):
        hint = "; write it in quotes"
    rule = str(error) if isinstance(error, ValueError) and str(error) else expected
    return must_be(where, rule, value) + hint


def must_be(place: str, rule: str, value: object) -> str:
    """The sentence that tells a rule and the value that breaks it."""
    return f"{place or 'it'} must be {rule}; got {brief(value)}"


def _field(rules: type[BaseModel], place: Place) -> tuple[int, FieldInfo | None, type[BaseModel]]:
    """The innermost field that the place is in, how many keys lead to it, and the rules that it belongs to, or those of the
    place itself.
    """
    found: FieldInfo | None = None
    inner: type[BaseModel] | None = rules
    named = False  # the next key is a name of a mapping whose values have rules of their own
    depth = 0
    for number, key in enumerate(place, 1):
        if isinstance(key, int):
            continue
        if inner is None:
            break
        if named:
            named = False
            continue
        rules, depth = inner, number
        found = next((field for name, field in rules.model_fields.items() if key in (name, field.alias)), None)
        inner = None if found is None else _rules_of(found.annotation)
        named = found is not None and get_origin(found.annotation) is dict
    return depth, found, rules


def _rules_of(annotation: Any) -> type[BaseModel] | None:
    """The rules of a mapping, or of the mappings in a list."""
    return next(
        (x for x in (annotation, *get_args(annotation)) if isinstance(x, type) and issubclass(x, BaseModel)), None
    )


def _existing(place: Place, data: object) -> Iterator[str]:
    """The keys of a place that are those of mappings in a file, and not what pydantic adds."""
    for key in place:
        if isinstance(data, Mapping) and key in data:
            yield str(key)[:100]
            data = data[key]
        elif isinstance(data, list) and isinstance(key, int) and key < len(data):
            data = data[key]
        else:
            return
