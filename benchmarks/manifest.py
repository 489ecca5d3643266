"""What each file of benchmarks/results is: its command, commit, digests, device, versions, date, and where it is quoted.

python benchmarks/manifest.py            # writes benchmarks/results/manifest.json
python benchmarks/manifest.py --check    # exit 1, and what differs, where the manifest is not what this would write

It has three sources: the files themselves; benchmarks/results/origins.yaml, for what they leave out; and all texts of the
repository that name a file. `commit` is that of the measured code. It is the commit that all comments about the file's
figures name. Where they name none or several, the manifest keeps the commit that it has for these bytes. A new file gets
today's.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import click
import yaml
from figures import ROOT, pages, sections

from gemmport.runtime.fingerprint import of_texts

FOLDER = Path("benchmarks") / "results"
MANIFEST, ORIGINS, README = "manifest.json", "origins.yaml", "README.md"

Entry = dict[str, Any]

HOST = ("gemmport", "python", "numpy", "blas", "ncu")
"""Keys of an environment that are versions of software on the host."""

_MENTION = re.compile(r"benchmarks/results/([\w{},*./-]*[\w}*])")
_BRACES = re.compile(r"\{([^{}]*)\}")


class ManifestError(Exception):
    """A file of results, or a text that names one, is not as the manifest needs it."""


def files(root: Path = ROOT) -> list[str]:
    """The files of results, as the manifest names them."""
    own = (MANIFEST, ORIGINS, README)
    found = (file.relative_to(root / FOLDER).as_posix() for file in (root / FOLDER).rglob("*") if file.is_file())
    return sorted(name for name in found if name not in own)


def manifest(root: Path = ROOT) -> dict[str, Entry]:
    """What the manifest says today: file → entry.

    Raises:
        ManifestError: a file has no origin; or a text names a missing file.
    """
    origins = yaml.safe_load((root / FOLDER / ORIGINS).read_text("utf-8"))
    named, stated = quotations(root), commits(root)
    before = recorded(root)
    found: dict[str, Entry] = {}
    for name in files(root):
        file = root / FOLDER / name
        entry = {**told(file), **_origin(name, origins, file)}
        if not entry.get("command"):
            raise ManifestError(f"{FOLDER / name} must say its command; got none; write one into {FOLDER / ORIGINS}")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        earlier = before.get(name, {})
        commit = stated.get(name) or (earlier.get("sha256") == digest and earlier["commit"])
        device = origins["devices"][name.partition("/")[0]]
        found[name] = {
            **{key: entry[key] for key in ("command", "note") if key in entry},
            "commit": commit or _head(root),
            "date": entry.get("date"),
            "device": entry.get("device", device["name"]),
            "versions": entry.get("versions", device["versions"]),
            **{key: entry[key] for key in ("launches", "call_path") if key in entry},
            "sha256": digest,
            "quoted by": named.get(name, []),
        }
    return found


def recorded(root: Path = ROOT) -> dict[str, Entry]:
    """The manifest on file; empty where there is none."""
    file = root / FOLDER / MANIFEST
    return dict(json.loads(file.read_text("utf-8"))["files"]) if file.exists() else {}


def text_of(found: Mapping[str, Entry]) -> str:
    """The manifest as it stands on file."""
    return json.dumps({"schema": 1, "files": found}, indent=1, ensure_ascii=False) + "\n"


def differences(root: Path = ROOT) -> Iterator[str]:
    """What the manifest on file says otherwise than today's, one line each.

    Raises:
        ManifestError: as `manifest`.
    """
    then, now = recorded(root), manifest(root)
    for name in sorted(then.keys() | now.keys()):
        if name not in then:
            yield f"{name} has no entry"
        elif name not in now:
            yield f"{name} has an entry, but is not there"
        else:
            for key in sorted(then[name].keys() | now[name].keys()):
                if then[name].get(key) != now[name].get(key):
                    yield f"{name}: {key} is {now[name].get(key)!r}; the manifest has {then[name].get(key)!r}"


# What a file says


def told(file: Path) -> Entry:
    """The part of an entry that the file itself tells."""
    if file.suffix == ".json":
        return _of_document(json.loads(file.read_text("utf-8")))
    if file.suffix == ".jsonl":
        with file.open(encoding="utf-8") as lines:
            return _of_document(json.loads(next(lines)))
    return {}


def _of_document(document: Mapping[str, Any]) -> Entry:
    environment = document.get("environment", {})
    found: Entry = {key: document[key] for key in ("command", "date") if key in document}
    if "date" in environment:
        found["date"] = environment["date"]
    device, runtimes = _devices(document, environment)
    if device:
        found["device"] = device
    versions = {key: environment[key] for key in HOST if key in environment}
    versions |= {key: document[key] for key in ("compiler", "ncu") if key in document}
    versions |= document.get("versions", {})
    versions |= {name: version for name, version in runtimes.items() if version}
    results = [x for x in document.get("results", ()) if isinstance(x, Mapping)]
    versions |= dict(sorted(_baselines(results)))
    if versions:
        found["versions"] = versions
    launches = {launch["digest"] for result in results for launch in result.get("launches", ())}
    if launches:
        found["launches"] = of_texts(*sorted(launches))
    paths = {result["call_path"] for result in results if "call_path" in result}
    if paths:
        found["call_path"] = " ".join(sorted(paths))
    return found


def _devices(document: Mapping[str, Any], environment: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The devices that a document describes, in words, and the versions of their runtimes."""
    described = environment.get("devices")
    if described:
        runtimes = {label: device.get("runtime", device) for label, device in described.items()}
        shown = {label: {k: v for k, v in runtime.items() if isinstance(v, str)} for label, runtime in runtimes.items()}
        return "; ".join(described), shown
    device = document.get("device", environment.get("device", ""))
    if isinstance(device, str):
        return ", driver ".join(x for x in (device, document.get("driver", "")) if x), {}
    label = f"{device['name']} ({device['backend']}, {device['platform']} {device['platform_version']})"
    return label, {label: {"driver": device["driver"]}}


def _baselines(results: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for result in results:
        baselines = result.get("baselines")
        for name, baseline in baselines.items() if isinstance(baselines, Mapping) else ():
            if baseline.get("version") and name != "numpy":
                yield name, baseline["version"]


# What origins.yaml says


def _origin(name: str, origins: Mapping[str, Any], file: Path) -> Entry:
    """The part of an entry that origins.yaml tells, with {} in the command replaced."""
    for entry in origins["files"]:
        if found := _pattern(entry["pattern"]).fullmatch(name):
            folder = name.partition("/")[0]
            device = origins["selectors"].get(folder, "")
            values = {"device": f"'{device}'" if " " in device else device, **found.groupdict()}
            if "{seconds}" in (entry.get("command") or ""):
                values["seconds"] = str(round(json.loads(file.read_text("utf-8"))["seconds"] / 5) * 5)
            rest = {key: value for key, value in entry.items() if key not in ("pattern", "environment")}
            if rest.get("command"):
                rest["command"] = rest["command"].format(**values).strip()
            if "environment" in entry:
                command = rest.get("command") or told(file)["command"]
                rest["command"] = f"{entry['environment'].format(**values)} {command}"
            return rest
    return {}


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """A pattern of origins.yaml: {name} stands for anything but a slash."""
    names = re.split(r"\{(\w+)\}", text)
    return re.compile("".join(f"(?P<{x}>[^/]+?)" if i % 2 else re.escape(x) for i, x in enumerate(names)))


# What texts say


def quotations(root: Path = ROOT) -> dict[str, list[str]]:
    """File of results → the texts that name it.

    Raises:
        ManifestError: a text names a file, or a pattern of files, that is not there.
    """
    known = files(root)
    found: dict[str, list[str]] = {}
    for text in texts(root):
        place = text.relative_to(root).as_posix()
        for mention in dict.fromkeys(_MENTION.findall(text.read_text("utf-8"))):
            for pattern in spelled_out(mention.rstrip(".")):
                if pattern in (MANIFEST, ORIGINS, README):
                    continue
                names = [name for name in known if _names(pattern, name)]
                if not names:
                    raise ManifestError(f"{place} names {FOLDER / pattern}; there is no such file")
                for name in names:
                    if place not in found.setdefault(name, []):
                        found[name].append(place)
    return found


def texts(root: Path = ROOT) -> list[Path]:
    """The texts of the repository that may name files of results: pages, code and configurations."""
    pages = [*sorted(root.glob("*.md")), *sorted((root / "docs").glob("*.md"))]
    code = [
        file
        for folder in ("backends", "benchmarks", "configs", "kernels", "src")
        for suffix in (".py", ".yaml")
        for file in sorted((root / folder).rglob(f"*{suffix}"))
        if not file.is_relative_to(root / FOLDER)
    ]
    return [*pages, *code]


def spelled_out(pattern: str) -> Iterator[str]:
    """A pattern for each choice in braces: a-{b,c} is a-b and a-c."""
    parts = _BRACES.split(pattern)
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return ("".join(chosen) for chosen in product(*choices))


def _names(pattern: str, name: str) -> bool:
    """Whether a pattern, in which * is anything but a slash, is that of a file or of a folder that it is in."""
    told = re.escape(pattern).replace(r"\*", "[^/]*")
    return re.fullmatch(rf"{told}(/.*)?", name) is not None


def commits(root: Path = ROOT) -> dict[str, str]:
    """File of results → the commit to which all comments about its figures say that they belong."""
    found: dict[str, set[str]] = {}
    for page in pages(root):
        for section in sections(page.read_text("utf-8")):
            for marker in section.markers:
                for pattern in marker.files if len(marker.commits) == 1 else ():
                    for file in root.glob(pattern):
                        found.setdefault(file.relative_to(root / FOLDER).as_posix(), set()).update(marker.commits)
    return {name: next(iter(all_)) for name, all_ in found.items() if len(all_) == 1}


def _head(root: Path) -> str | None:
    """The commit of today; None where there is no git or no history."""
    asked = ["git", "-C", str(root), "rev-parse", "--short=7", "HEAD"]
    try:
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@click.command()
@click.option("--check", is_flag=True, help="Write nothing: tell what differs, one line each.")
def main(*, check: bool) -> None:
    """Writes the manifest."""
    try:
        if check:
            found = list(differences())
            click.echo("".join(f"{line}\n" for line in found), nl=False)
            sys.exit(1 if found else 0)
        (ROOT / FOLDER / MANIFEST).write_text(text_of(manifest()), encoding="utf-8")
    except ManifestError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
