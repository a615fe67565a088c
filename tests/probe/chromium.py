"""A headless Chromium that a test drives over its DevTools protocol, with real clicks and keys."""

import base64
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pydantic import JsonValue, TypeAdapter
from websockets.sync.client import connect
from websockets.sync.connection import Connection

START_SECONDS = 60.0
WAIT_SECONDS = 30.0
POLL_SECONDS = 0.2
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
]
_MESSAGE = TypeAdapter(dict[str, JsonValue])

FIND = """
(() => {
  const wanted = %s, scope = %s, number = %s;
  const shown = (e) => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0; };
  const all = [...document.querySelectorAll(scope)].filter(shown);
  const said = (e) => (e.innerText || e.value || e.getAttribute('aria-label') || '').trim();
  const found = all.filter((e) => wanted === null || said(e) === wanted).at(number);
  if (!found) return null;
  found.scrollIntoView({block: 'center'});
  const r = found.getBoundingClientRect();
  return [r.x + r.width / 2, r.y + r.height / 2];
})()
"""
"""The middle of one of the elements of a selector with just this text."""


class Page:
    """One tab."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._number = 0

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **metrics)

    def evaluate(self, script: str) -> JsonValue:
        """The value of an expression."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        result = answer["result"]
        assert isinstance(result, dict)
        assert "exceptionDetails" not in answer, answer
        return result.get("value")

    @property
    def text(self) -> str:
        """What the page says now."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def wait_for(self, *texts: str, seconds: float = WAIT_SECONDS) -> str:
        """Until the page says all of them; returns what it says."""
        deadline = time.monotonic() + seconds
        while not all(text in self.text for text in texts):
            missing = [text for text in texts if text not in self.text]
            assert time.monotonic() < deadline, f"the page does not say {missing}, but\n{self.text}"
            time.sleep(POLL_SECONDS)
        return self.text

    def click(
        self, text: str | None = None, selector: str = "*", number: int = -1, seconds: float = WAIT_SECONDS
    ) -> None:
        """The last, which is the innermost, or another of the elements that say just `text`, once it is there."""
        deadline = time.monotonic() + seconds
        script = FIND % (json.dumps(text), json.dumps(selector), number)
        before, place = None, self.evaluate(script)
        while place is None or place != before:
            # What moves, as a form does that opens, would be missed.
            assert time.monotonic() < deadline, f"nothing to click says {text!r} ({selector}) in\n{self.text}"
            time.sleep(POLL_SECONDS)
            before, place = place, self.evaluate(script)
        assert isinstance(place, list)
        x, y = place
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = "none" if kind == "mouseMoved" else "left"
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self._call("Input.insertText", text=text)

    def picture(self, file: Path) -> None:
        """What the window shows, as PNG."""
        file.write_bytes(base64.b64decode(str(self._call("Page.captureScreenshot", format="png")["data"])))

    def _call(self, method: str, **parameters: JsonValue) -> dict[str, JsonValue]:
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = _MESSAGE.validate_json(self._connection.recv(timeout=WAIT_SECONDS))
            if message.get("id") == self._number:
                assert "error" not in message, message
                result = message["result"]
                assert isinstance(result, dict)
                return result


@contextmanager
def chromium(folder: Path) -> Generator[Page]:
    """A tab of a browser whose profile is in `folder`; it ends with its processes."""
    program = shutil.which("chromium")
    assert program is not None, "install Debian's chromium"
    command = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
    with (folder / "chromium.log").open("wb") as log:
        browser = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        with connect(_tab(folder, browser), max_size=None, proxy=None) as connection:
            yield Page(connection)
    finally:
        browser.send_signal(signal.SIGTERM)
        browser.wait(10)


def _tab(folder: Path, browser: subprocess.Popen[bytes]) -> str:
    """The address of the first tab."""
    from urllib.request import urlopen

    deadline = time.monotonic() + START_SECONDS
    port_file = folder / "DevToolsActivePort"
    while not port_file.exists() or not port_file.read_text():
        assert browser.poll() is None, (folder / "chromium.log").read_text()
        assert time.monotonic() < deadline, (folder / "chromium.log").read_text()
        time.sleep(POLL_SECONDS)
    port = port_file.read_text().split()[0]
    with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
        tabs = json.load(answer)
    return next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
