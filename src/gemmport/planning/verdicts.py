"""Which of the forms of kernels that only simulations have shown to be right (`gemmport.contracts.kernel.Form`) are right on a
device.

`gemmport doctor` computes exact products by them and notes what came of it in the user's cache folder, where plans look. A
verdict is of one form on one kind of device with one driver, and of one source: after a change of any, it is as if there
were none.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemmport import kernels
from gemmport.contracts.kernel import Form
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem
from gemmport.runtime.cache import load_text, program_key, store_text
from gemmport.runtime.sources import assemble

RIGHT, WRONG = "right", "wrong"

_SIZE = 61
"""Of the product whose source stands for all of a form's: with edges."""


def forms(device: DeviceInfo) -> Iterator[Form]:
    """All that wait for a verdict on a device."""
    for variant in kernels.variants():
        yield from variant.forms(device)


def known(device: DeviceInfo) -> dict[str, dict[str, bool]]:
    """By kernel, and by the name of a form that was tried on a device: whether it was found right."""
    found: dict[str, dict[str, bool]] = {}
    for form in forms(device):
        if (verdict := load_text(_file(form, device), _key(form, device))) is not None:
            found.setdefault(form.kernel, {})[form.name] = verdict == RIGHT
    return found


def note(form: Form, device: DeviceInfo, *, right: bool) -> None:
    """Keeps a verdict, in place of the one before it."""
    store_text(_file(form, device), _key(form, device), RIGHT if right else WRONG)


def _file(form: Form, device: DeviceInfo) -> str:
    return f"verdict-{program_key(*device.identity, form.kernel, form.name)[:32]}"


def _key(form: Form, device: DeviceInfo) -> str:
    """Of the device, of its driver, and of the sources."""
    variant = kernels.variant(form.kernel)
    problem = GemmProblem.create(_SIZE, _SIZE, _SIZE, dtype=form.dtype, output=form.output)
    steps = variant.steps(problem, device, variant.complete(form.parameters))
    sources = [assemble(launch.kernel, device.language) for launch in steps.launches]
    return program_key(*device.identity, form.kernel, form.name, *sources)
