#!/usr/bin/env bash
# What a person with a fresh machine gets: the README's two commands in a clean clone of HEAD, with an empty home, without the
# OpenCL runtimes, simulators, BLAS libraries and browsers that this machine has, and without its settings.
#
#     tests/newcomer.sh [TEST_OPTIONS]
#
# Where COMPILED names a folder, the tests keep there what they compile: what runs afterwards need not compile it again.
# Hiding takes root and unshare (a mount namespace); without them it says so and runs with what is there. Changes nothing outside
# of a temporary folder.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet "$(git -C "$(dirname "$0")" rev-parse --show-toplevel)" "$work/project"

hide() {
  local path
  for path in "$@"; do
    if [ -d "$path" ]; then
      mount -t tmpfs none "$path"
    elif [ -e "$path" ]; then
      mount --bind /dev/null "$path"
    fi
  done
}

hide_what_was_installed() {
  local name
  hide /etc/OpenCL/vendors
  for name in oclgrind oclgrind-kernel clinfo chromium chromium-browser google-chrome llvm-objdump objdump; do
    if command -v "$name" >/dev/null; then
      hide "$(command -v "$name")"
    fi
  done
  mapfile -t libraries < <(ldconfig -p | sed -n 's/.* => \(.*lib\(clblast\|clBLAS\|OpenCL\|pocl\)[^ ]*\)$/\1/p' | sort -u)
  hide "${libraries[@]}"
}

run_both() {
  local name
  for name in $(compgen -e | grep -E '^(GEMMPORT|OCL|POCL|RUSTICL|MESA|PYOPENCL|CUDA|TESTS|EXTRAS|VIRTUAL_ENV|PYTHON)' || true); do
    unset "$name"
  done
  # pip finds its packages as before: its settings are the machine's, not the project's.
  if [ -f "$HOME/.config/pip/pip.conf" ]; then
    export PIP_CONFIG_FILE=${PIP_CONFIG_FILE:-$HOME/.config/pip/pip.conf}
  elif [ -f "$HOME/.pip/pip.conf" ]; then
    export PIP_CONFIG_FILE=${PIP_CONFIG_FILE:-$HOME/.pip/pip.conf}
  fi
  mkdir "$WORK/home"
  export HOME=$WORK/home XDG_CACHE_HOME=$WORK/home/.cache XDG_CONFIG_HOME=$WORK/home/.config
  cd "$WORK/project"
  SECONDS=0
  make run
  echo "newcomer: make run took $SECONDS s"
  SECONDS=0
  make test TEST_OPTIONS="$TEST_OPTIONS" ${COMPILED:+TESTS_CACHE_DIR="$COMPILED"}
  echo "newcomer: make test took $SECONDS s"
}

export WORK=$work TEST_OPTIONS=${1:-}
if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
  export -f hide hide_what_was_installed run_both
  unshare --mount bash -euo pipefail -c 'hide_what_was_installed; run_both'
else
  echo "newcomer: without root and unshare nothing is hidden: what this machine has installed takes part"
  run_both
fi
