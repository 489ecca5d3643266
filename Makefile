# make run: a verified product on the CPU, from nothing. make test: the tests, in minutes; make test-all: all that is promised, on
# every runtime that is here. make inspect: what is inside a kernel, compiled by CUDA without a GPU. make bench-check: whether the
# CPU runtimes are as fast as on file. None needs root. make matrix: every kernel on every runtime, of which root installs
# Debian's, too. make mutation: whether the tests notice what is changed in the modules that judge results.

PYTHON ?= python3
VENV := .venv
# PyPI's runtime of Intel's, which compiles for every x86-64 processor (PyPI's PoCL does not know those that came after it), so that
# the command does the same on every machine; make run DEVICE= takes the best device there is.
DEVICE ?= intel
# What is installed, rather than what each target needs: EXTRAS=dev serves all.
EXTRAS ?=
RUN_OPTIONS ?=
TEST_OPTIONS ?=
# Tests that stand together share programs: a worker takes them from where it stands, and from others in the end.
PYTEST := $(VENV)/bin/pytest --dist worksteal --durations=20
CORES := $(shell $(PYTHON) -c 'import os; print(min(os.cpu_count() or 1, 4))')
# One kernel, or two to be set side by side.
KERNEL ?= register_tiled
INSPECT_OPTIONS ?= --arch sm_90
MATRIX_OPTIONS ?=
# Names of modules, as in tests/mutation/checkers.py, or --all; what changed since the record otherwise.
MUTATION_OPTIONS ?=
# The runtimes that must have verified cells in the end.
MATRIX_RUNTIMES ?= 1
# Images of containers often set it. Hundreds of processes that the tests start would each compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-all inspect bench-check matrix mutation lint clean

run: $(VENV)/.installed-$(if $(EXTRAS),$(EXTRAS),intel)
	$(VENV)/bin/gemmport run --backend opencl $(if $(DEVICE),--device "$(DEVICE)") $(RUN_OPTIONS)

# Which tests run when: tests/tiers.py.
test: $(VENV)/.installed-$(if $(EXTRAS),$(EXTRAS),test,pocl,intel)
	$(PYTEST) -n $(CORES) $(TEST_OPTIONS)

# One worker more: here some tests wait, for a time limit or for a process.
test-all: $(VENV)/.installed-$(if $(EXTRAS),$(EXTRAS),test,pocl,intel)
	$(PYTEST) -n $$(($(CORES) + 1)) --all $(TEST_OPTIONS)

inspect: $(VENV)/.installed-$(if $(EXTRAS),$(EXTRAS),inspect)
	$(VENV)/bin/gemmport inspect $(KERNEL) $(INSPECT_OPTIONS)

# Two minutes on a machine with nothing else to do: docs/cpu.md, "Measuring".
bench-check: $(VENV)/.installed-$(if $(EXTRAS),$(EXTRAS),pocl,intel)
	$(VENV)/bin/python benchmarks/check.py

# Starts anew each time; gemmport matrix --output build/matrix.jsonl goes on where one was interrupted.
matrix: $(VENV)/.installed-$(if $(EXTRAS),$(EXTRAS),pocl,intel)
	tests/matrix/install-runtimes.sh
	$(VENV)/bin/python tests/runtimes.py
	mkdir -p build
	rm -f build/matrix.jsonl build/matrix.html build/matrix.xml
	RUSTICL_ENABLE=llvmpipe $(VENV)/bin/gemmport matrix $(MATRIX_OPTIONS) \
		--output build/matrix.jsonl --html build/matrix.html --junit build/matrix.xml
	$(VENV)/bin/python tests/runtimes.py build/matrix.jsonl --at-least $(MATRIX_RUNTIMES)

# Needs no device. Ends with what survived, and with an error where that is too much: docs/verification.md.
mutation: $(VENV)/.installed-$(if $(EXTRAS),$(EXTRAS),mutation)
	$(VENV)/bin/python tests/mutation/run.py $(MUTATION_OPTIONS)

# Types are checked over the installed package: mypy does not look through an editable one.
lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	rm -rf $(VENV)/typed build
	$(VENV)/bin/pip install --quiet --no-deps --target $(VENV)/typed .
	cd $(VENV) && MYPYPATH=$(CURDIR)/$(VENV)/typed bin/mypy --config-file $(CURDIR)/pyproject.toml -p gemmport

$(VENV)/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "gemmport needs Python 3.10 or newer: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV) || { echo "On Debian and Ubuntu: apt install python3-venv" >&2; rm -rf $(VENV); exit 1; }

$(VENV)/.installed-%: pyproject.toml setup.py backends/_launching.c src/gemmport/execution/_views.c src/gemmport/runtime/_copying.c | $(VENV)/bin/pip
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch '$@'

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
