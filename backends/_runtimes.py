"""The folders of OpenCL runtimes: where the one of this environment is registered, where PoCL keeps what it compiles.

They are chosen through the runtimes' own environment variables, before the OpenCL loader's first use in this process.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pyopencl as cl

from gemmport.runtime import trust
from gemmport.runtime.cache import OWN_ICD, cache_folder, user_cache_folder, warn_once

log = logging.getLogger(__name__)

SYSTEM = Path("/etc/OpenCL/vendors")
"""Where the loader looks for ICD files, each of which names a runtime's library, if OCL_ICD_VENDORS says nothing else."""


@cache
def prepare() -> Mapping[str, str]:
    """Sets the variables, once per process.

    Returns:
        Runtimes that cannot be used, by their platform's alias: why, and what to do about it.
    """
    refused = choose_folder_of_pocl() if sys.platform == "linux" and _pocl_is_here() else ""
    register()
    return {"pocl": refused} if refused else {}


def register() -> None:
    """Makes the OpenCL loader find runtimes that pip installed, without the user setting a variable.

    PoCL's wheel is found by PyOpenCL's own loader. The ICD file in Intel's wheel is of no use (intel-icd-path): the loader is
    given a folder with a correct one beside the system's. It does nothing where the user chose the runtimes with
    OCL_ICD_VENDORS. Where the cache folder is of no use, the folder is a temporary one of this process. Where no folder can be
    written to, Intel's runtime is the only one: the loader takes one library without a folder, but not several.
    """
    library = Path(sysconfig.get_path("data"), "lib", "libintelocl.so")
    if sys.platform != "linux" or "OCL_ICD_VENDORS" in os.environ or not library.exists():
        return
    texts = {file.name: file.read_text(errors="replace") for file in sorted(SYSTEM.glob("*.icd"))}
    if any("libintelocl.so" in text for text in texts.values()):
        return
    name = re.sub(r"\W+", "-", sys.prefix).strip("-")
    try:
        chosen = trust.make_folder(cache_folder(), "icd", name)
        _write_texts(chosen, {**texts, OWN_ICD: f"{library}\n"})
    except OSError as error:
        log.info("the cache cannot hold the list of OpenCL runtimes, a temporary folder does: %s", error)
        try:
            chosen = trust.temporary_folder("gemmport-icd-")
            _write_texts(chosen, {**texts, OWN_ICD: f"{library}\n"})
        except OSError as reason:
            chosen = library
            if texts:
                log.warning(
                    "no folder can hold the list of OpenCL runtimes (%s): Intel's is the only one, without %s; set TMPDIR to a "
                    "folder that can be written to, or OCL_ICD_VENDORS=%s for those alone", reason, ", ".join(texts), SYSTEM
                )  # fmt: skip
    os.environ["OCL_ICD_VENDORS"] = str(chosen)


def choose_folder_of_pocl() -> str:
    """Gives PoCL a folder, through POCL_CACHE_DIR, where its own cannot be written to or is not trusted: it loads machine code
    from it. The folder is then one in gemmport's cache, or a temporary one of this process.

    Returns:
        Why PoCL cannot be used, and what to do about it; empty where it can.
    """
    own = _own_folder_of_pocl()
    try:
        trust.exclusive_folder(own)
    except OSError as error:
        reason = error
    else:
        return ""
    try:
        chosen = trust.exclusive_folder(cache_folder(), "pocl")
    except OSError as error:
        warn_once("cannot write the program cache %s: %s", cache_folder() / "pocl", error)
        try:
            chosen = trust.temporary_folder("gemmport-pocl-")
        except OSError as last:
            told = " and ".join(str(why).replace(";", ",") for why in (reason, last))
            return (
                f"PoCL is left out: it writes what it compiles to a folder and loads it from there, and has none ({told}); "
                "set POCL_CACHE_DIR or TMPDIR to a folder of your own that can be written to, or use another runtime: "
                "pip install 'gemmport[intel]'"
            )
    log.info("PoCL keeps its programs in %s: %s", chosen, reason)
    os.environ["POCL_CACHE_DIR"] = str(chosen)
    return ""


@cache
def spare_caches_of_pyopencl() -> None:
    """Has PyOpenCL do without its caches where their folder cannot be written to or is not trusted: it makes no kernel then.

    It looks at this variable of its own, which PYOPENCL_NO_CACHE sets when it is imported, whenever it would use them.
    """
    try:
        trust.exclusive_folder(user_cache_folder("pytools"))
    except OSError as error:
        log.info("PyOpenCL keeps nothing on disk: %s", error)
        cl._PYOPENCL_NO_CACHE = True


def _pocl_is_here() -> bool:
    """Whether the loader may find PoCL: from PyPI, or by an ICD file."""
    if importlib.util.find_spec("pocl_binary_distribution") is not None:
        return True
    chosen = Path(os.environ.get("OCL_ICD_VENDORS") or SYSTEM)
    return any(map(_names_pocl, chosen.glob("*.icd") if chosen.is_dir() else [chosen]))


def _names_pocl(runtime: Path) -> bool:
    """Whether an ICD file, or a library, is PoCL's."""
    try:
        return "pocl" in runtime.name or (runtime.suffix == ".icd" and "pocl" in runtime.read_text(errors="replace"))
    except OSError:
        return False


def _own_folder_of_pocl() -> Path:
    """Where PoCL keeps its programs (pocl_cache_init_topdir in lib/CL/pocl_cache.c of 3.0 to 7.1)."""
    if told := os.environ.get("POCL_CACHE_DIR"):
        return Path(told)
    caches = os.environ.get("XDG_CACHE_HOME")
    home = os.environ.get("HOME")
    above = caches or ("/tmp" if home is None else f"{home}/.cache")
    return Path(above, "pocl", "uncached" if os.environ.get("POCL_KERNEL_CACHE") == "0" else "kcache")


def _write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Makes a folder that is trusted hold these ICD files, name → text, and no others; what is right already is not written
    again.
    """
    for file in folder.glob("*.icd"):
        if file.name not in texts:
            file.unlink(missing_ok=True)  # a link, and not what it points to
    for name, text in texts.items():
        try:
            right = trust.read_file(folder / name, len(text.encode())) == text.encode()
        except OSError:  # missing, or not what was written here
            right = False
        if not right:
            trust.write_file(folder / name, text.encode())
