"""The command line, as tests run it."""

from __future__ import annotations

import sys

import pytest

from gemmport import cli


@pytest.fixture
def gemmport_command(monkeypatch, capfd, best_backend):
    """Runs a command line on the best device; gives (exit status, standard output, standard error)."""
    monkeypatch.setenv("GEMMPORT_BACKEND", best_backend.device.backend)
    monkeypatch.setenv("GEMMPORT_DEVICE", best_backend.device.selector)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gemmport", *map(str, arguments)])
        capfd.readouterr()
        status = cli._run_command()
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err + captured.out
        return status, captured.out, captured.err

    return run
