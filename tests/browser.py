"""A headless Chromium, driven over its own protocol by the websocket client of tornado."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from pathlib import Path
from urllib.request import urlopen

from tornado.websocket import websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
PATIENCE = 60
"""Seconds after which a browser that should have answered hangs."""


def find_browser():
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page; `complaints` are the errors and warnings of its console and its log."""

    def __init__(self, folder):
        command = [find_browser(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, **quiet)
        self._loop = asyncio.new_event_loop()
        self.complaints, self._number = [], 0
        try:
            self._socket = self._loop.run_until_complete(self._connect(Path(folder)))
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    async def _connect(self, folder):
        port, begin = folder / "DevToolsActivePort", time.monotonic()
        while not (port.exists() and port.read_text().count("\n")):
            assert self._process.poll() is None, "the browser ended"
            assert time.monotonic() - begin < PATIENCE, "the browser does not start"
            await asyncio.sleep(0.05)
        number = port.read_text().splitlines()[0]
        with urlopen(f"http://127.0.0.1:{number}/json") as pages:
            found = next(p for p in json.load(pages) if p["type"] == "page")
        return await websocket_connect(found["webSocketDebuggerUrl"], max_message_size=2**27)

    def call(self, method, **parameters):
        """Send a command; return its result."""
        return self._loop.run_until_complete(self._call(method, parameters))

    async def _call(self, method, parameters, event=None):
        self._number += 1
        number = self._number
        await self._socket.write_message(json.dumps({"id": number, "method": method, "params": parameters}))
        result, seen = None, event is None
        while result is None or not seen:
            waiting = asyncio.ensure_future(self._socket.read_message())
            text = await asyncio.wait_for(waiting, PATIENCE)
            message = json.loads(text)
            self._note(message)
            seen = seen or message.get("method") == event
            if message.get("id") == number:
                assert "error" not in message, message
                result = message["result"]
        return result

    def _note(self, message):
        method, about = message.get("method"), message.get("params", {})
        if method == "Log.entryAdded":
            self.complaints.append(about["entry"]["text"])
        elif method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(about))
        elif method == "Network.requestWillBeSent":
            url = about["request"]["url"]
            if not url.startswith(("file:", "about:", "data:")):
                self.complaints.append(f"asked for {url}")

    def open(self, path, *, width=1000, height=900, scheme="light", media=""):
        """Show a file as a screen of that width, in light or dark, would."""
        self.complaints.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        where = {"url": Path(path).absolute().as_uri()}
        self._loop.run_until_complete(self._call("Page.navigate", where, "Page.loadEventFired"))

    def ask(self, script):
        """Return the value of an expression of JavaScript."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def close(self):
        """End the browser."""
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._loop.close()
