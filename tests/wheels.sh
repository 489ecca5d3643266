#!/usr/bin/env bash
# Builds both wheels of the last commit, that for Python's stable interface and the pure one, and tests calls with the pure one alone.
# .venv must have what tests need; make puts it there.
set -euo pipefail
cd "$(dirname "$0")/.."

built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
git clone --quiet . "$built/source"
GEMMPORT_PURE=1 .venv/bin/pip wheel --quiet --no-deps --wheel-dir "$built" "$built/source"
rm -rf "$built/source/build"
.venv/bin/pip wheel --quiet --no-deps --wheel-dir "$built" "$built/source"
ls "$built"/gemmport-*-cp311-abi3-*.whl "$built"/gemmport-*-py3-none-any.whl

.venv/bin/pip install --quiet --no-deps --target "$built/pure" "$built"/gemmport-*-py3-none-any.whl
packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# Without `site` nothing is read of the installation that .venv has of this folder, and of its modules in C.
PYTHONPATH=$built/pure:$packages .venv/bin/python -S - "$@" <<'PYTHON'
import sys

import pytest
from gemmport.backends import _scripts
from gemmport.execution import adapters

if _scripts.launching is not None or adapters.in_c is not None:
    sys.exit("the pure wheel has modules in C")
sys.exit(pytest.main(["tests/execution/test_repeated.py", "tests/execution/test_launches.py", "-q", *sys.argv[1:]]))
PYTHON
