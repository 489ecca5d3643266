"""A plugin of pytest: only tests that need no device are run, and neither devices nor libraries are looked for.

mutmut forks, and runtimes do not live through that (gemmport.backends._fork).
"""

from __future__ import annotations

import pytest

_NEED_A_DEVICE = {"backend", "best_backend", "fresh_backend"}


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    import absences  # noqa: PLC0415  # the tests' folder is known from here on
    import tested  # noqa: PLC0415

    tested.devices = lambda config: []  # type: ignore[assignment]
    absences.THINGS = ()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    dropped = [item for item in items if _NEED_A_DEVICE.intersection(getattr(item, "fixturenames", ()))]
    items[:] = [item for item in items if item not in dropped]
    config.hook.pytest_deselected(items=dropped)
