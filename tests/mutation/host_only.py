"""A plugin of pytest: only tests that need no device are run, and neither devices nor libraries are looked for.

mutmut forks, and runtimes do not live through that (gemmport.backends._fork).
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    import absences  # noqa: PLC0415  # the tests' folder is known from here on
    import tested  # noqa: PLC0415

    tested.devices = lambda config: []  # type: ignore[assignment]
    absences.THINGS = ()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from devices_only import FIXTURES  # noqa: PLC0415

    dropped = [item for item in items if FIXTURES.intersection(getattr(item, "fixturenames", ()))]
    items[:] = [item for item in items if item not in dropped]
    config.hook.pytest_deselected(items=dropped)
