"""A campaign that has no time."""

from __future__ import annotations

import pytest

import gemmport as gp
from test_fuzz import command


@pytest.mark.processes
def test_where_no_problem_was_judged_in_time_the_status_is_not_0(best_backend: gp.Backend) -> None:
    done = command(best_backend.device, "--seconds", 0.01)
    assert done.returncode == 1, done.stderr
    assert "none was judged: give more --seconds" in done.stdout
