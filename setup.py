"""Builds the two modules in C that make a call of a prepared product cheap, and on Linux that which has threads copy together;
all else is in pyproject.toml.

Where there is no compiler, or GEMMPORT_PURE=1 is set, they are left out, and the same is done in Python.
"""

import os
import platform
import sys

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

MODULES = {
    "gemmport.backends._launching": "backends/_launching.c",
    "gemmport.execution._views": "src/gemmport/execution/_views.c",
    **({"gemmport.runtime._copying": "src/gemmport/runtime/_copying.c"} if sys.platform == "linux" else {}),
}
"""They need the stable interface of Python 3.11."""

WANTED = os.environ.get("GEMMPORT_PURE", "0") in ("", "0") and sys.version_info >= (3, 11)


class Wheel(bdist_wheel):
    """A wheel for Python from 3.11 on, and Linux with glibc from 2.17 on, of which the modules use `strlen`, `memcpy`,
    `syscall` and `sched_yield`.
    """

    def finalize_options(self):
        if WANTED:
            self.py_limited_api = "cp311"
            if platform.libc_ver()[0] == "glibc" and platform.machine() == "x86_64":
                self.plat_name = "manylinux_2_17_x86_64"
        super().finalize_options()


setup(
    ext_modules=[
        Extension(name, [source], py_limited_api=True, optional=True) for name, source in MODULES.items() if WANTED
    ],
    cmdclass={"bdist_wheel": Wheel},
)
