"""A headless Chromium, driven over its debugging pipe: what the page's tests need of a browser, and no library."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, final

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The browser reads from its file 3 and writes to its file 4, whatever numbers the pipes have here.
LAUNCH = """import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])"""
PATIENCE = 40.0  # seconds for any one answer


def find_browser() -> str | None:
    """The browser's command: BOUGH_BROWSER, or whichever is installed."""
    return os.environ.get("BOUGH_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


@final
class Browser:
    """One browser with one page. Errors of the page, and what it writes to its console, are kept in `errors`."""

    def __init__(self, command: str, profile: Path, width: int = 1200, height: int = 900) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._next, self._session, self._rest = 0, None, b""
        from_us, self._to = os.pipe()
        self._from, to_us = os.pipe()
        flags = [
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(from_us), str(to_us), command, *flags],
            pass_fds=(from_us, to_us),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(from_us)
        os.close(to_us)
        os.set_blocking(self._from, False)
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
            self.resize(width, height)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        os.killpg(self._process.pid, signal.SIGKILL)  # the group that was started here
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **parameters: Any) -> Any:
        """Ask and wait for the answer; what else is said meanwhile is sorted."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            for heard in self._heard():
                if heard.get("id") == self._next:
                    if "error" in heard:
                        raise RuntimeError(f"{method}: {heard['error']}")
                    return heard["result"]
                self._sort(heard)
            time.sleep(0.002)
        raise TimeoutError(f"no answer to {method}")

    def _heard(self) -> list[dict[str, Any]]:
        try:
            self._rest += os.read(self._from, 1 << 20)
        except BlockingIOError:
            return []
        *whole, self._rest = self._rest.split(b"\0")
        return [json.loads(message) for message in whole]

    def _sort(self, event: dict[str, Any]) -> None:
        name, about = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.errors.append(str(details.get("exception", {}).get("description", details.get("text"))))
        elif name == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.errors.append(str(about["args"]))
        elif name == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(about["entry"]["text"])
        elif name == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif name == "Page.javascriptDialogOpening":
            self.errors.append(f"dialog: {about['message']}")

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file and wait until it is there."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=path.resolve().as_uri() + fragment)
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "an error"))
        return answer["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + PATIENCE
        while not self.run(script):
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {script}")
            time.sleep(0.02)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A pointer event: mouseMoved, mousePressed, mouseReleased, mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float, count: int = 1) -> None:
        """Press and let go."""
        self.mouse("mouseMoved", x, y)
        for k in range(1, count + 1):
            self.mouse("mousePressed", x, y, button="left", clickCount=k)
            self.mouse("mouseReleased", x, y, button="left", clickCount=k)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press at one place and let go at another."""
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, button="left", clickCount=1)
        for k in range(1, 5):
            at = [a + (b - a) * k / 4 for a, b in zip(start, end, strict=True)]
            self.mouse("mouseMoved", *at, button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", clickCount=1)

    def key(self, name: str) -> None:
        """Press a key such as Enter or ArrowDown."""
        codes = {"Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39, "Tab": 9}
        about: dict[str, Any] = {"key": name, "windowsVirtualKeyCode": codes.get(name, 0)}
        typed = {"text": "\r"} if name == "Enter" else {}  # without it a button is not pressed
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def resize(self, width: int, height: int) -> None:
        """The size of the window."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, *, on: bool = True) -> None:
        """Prefer a dark page."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """What is to be seen, as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
