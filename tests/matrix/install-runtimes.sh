#!/bin/sh
# Installs the OpenCL runtimes that Debian and Ubuntu package, and CLBlast, where this is root; elsewhere says how. What is not
# to be had is left out: runtimes.py names what is there in the end.
set -eu

missing=
for package in ocl-icd-libopencl1 pocl-opencl-icd mesa-opencl-icd oclgrind libclblast1; do
  dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
if [ -z "$missing" ]; then
  exit 0
elif ! command -v apt-get >/dev/null; then
  echo "not installed, since there is no apt-get here:$missing" >&2
elif [ "$(id -u)" != 0 ]; then
  echo "not installed, since only root may: sudo apt-get install$missing" >&2
else
  apt-get update -qq || echo "apt-get update failed: what it knows is installed" >&2
  for package in $missing; do
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
      echo "not installed, apt-get cannot: $package" >&2
  done
fi
