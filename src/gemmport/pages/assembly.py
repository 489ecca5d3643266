"""One HTML file that opens without a network: a page's own parts, what all pages share, and its data.

A page of a package is page.html, page.css and page.js beside its module. Its style stands behind base.css, its script behind
base.js.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib.resources import files
from string import Template


def assembled(package: str, texts: Mapping[str, str], data: object) -> str:
    """The page of a package.

    Nothing in it is loaded from elsewhere, and by its policy a browser runs no script but its own, whatever a device's name
    holds.

    Args:
        texts: HTML for the placeholders of page.html, but "policy", "style", "script" and "data".
        data: what the page's script reads: plain, for JSON.
    """
    style = _part("gemmport.pages", "base.css") + _part(package, "page.css")
    script = _part("gemmport.pages", "base.js") + _part(package, "page.js")
    policy = {"default-src": "'none'", "style-src": _digest(style), "script-src": _digest(script), "base-uri": "'none'"}
    return Template(_part(package, "page.html")).substitute(
        texts,
        policy="; ".join(f"{name} {source}" for name, source in policy.items()),
        style=style,
        script=script,
        data=_json(data),
    )


def escape(text: str) -> str:
    """Text for HTML. What UTF-8 cannot hold, half a surrogate pair, becomes a question mark."""
    return html.escape(text.encode("utf-8", "replace").decode())


def _part(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """The source of a Content-Security-Policy that allows this text alone (CSP level 3, hash-source)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(data: object) -> str:
    """JSON in ASCII without "<", so that no parser of HTML finds markup in it."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
