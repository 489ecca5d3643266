"""A browser without a window, driven over Chromium's debugging pipe: JSON and a null byte, in at descriptor 3, out at 4."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def found() -> str | None:
    """The command of an installed Chromium."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a Chromium that reaches no network.

    Attributes:
        requests: addresses that pages asked for, the pages themselves included.
        problems: what pages wrote to the console as an error, and exceptions that nothing caught.
    """

    def __init__(self, profile: Path) -> None:
        self.requests: list[str] = []
        self.problems: list[str] = []
        self._numbers = itertools.count(1)
        self._rest = b""
        (their_in, self._out), (self._in, their_out) = os.pipe(), os.pipe()
        # Away from 3 and 4, which the child's own ends become.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (their_in, their_out)]
        command = [str(found()), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   "--no-first-run", "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND",
                   "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]  # fmt: skip
        actions = [(os.POSIX_SPAWN_OPEN, output, os.devnull, os.O_WRONLY, 0) for output in (1, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, end, theirs) for end, theirs in zip(ends, (3, 4), strict=True)]
        self._process = os.posix_spawn(command[0], command, os.environ, file_actions=actions, setpgroup=0)
        for end in (their_in, their_out, *ends):
            os.close(end)
        self._session = ""
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one command of the DevTools protocol; events before it are noted."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, address: str, *, width: int = 1400, height: int = 900, dark: bool = False) -> None:
        """Loads a page into a window of this size; returns when its scripts have run."""
        phone = width < 600
        window = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **window)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")  # another fragment alone would not load the page again
        self.call("Page.navigate", url=address)
        loaded = "document.readyState === 'complete' ? done() : addEventListener('load', done)"
        self.evaluate(f"new Promise((done) => {loaded})")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        told = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in told:
            raise RuntimeError(json.dumps(told["exceptionDetails"]))
        return told["result"].get("value")

    def press(self, key: str) -> None:
        """A key goes down and up where the focus is."""
        codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        about = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(told["data"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise RuntimeError("the browser ended")
            self._rest += piece
        message, self._rest = self._rest.split(b"\0", 1)
        told: dict[str, Any] = json.loads(message)
        return told

    def _note(self, event: dict[str, Any]) -> None:
        method, told = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.problems.append(told["entry"]["text"])
