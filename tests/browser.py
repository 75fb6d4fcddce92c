"""A real browser without a window: Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse

from tests.limits import PATIENCE_S

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
MISSING = "Chromium is not installed (Debian: apt install chromium)"
TERMINAL = """
Object.defineProperty(Object.prototype, "terminal", {
  configurable: true,
  set(made) {
    window.shownTerminal = made;
    Object.defineProperty(this, "terminal", { value: made, writable: true });
  },
});
"""
"""Keeps the terminal of a page that textual.js makes, because its screen is a picture without text."""
SCREEN = """
(() => {
  const buffer = window.shownTerminal?.buffer.active;
  if (!buffer) return document.body?.innerText ?? "";
  const lines = [];
  for (let at = 0; at < window.shownTerminal.rows; at++)
    lines.push(buffer.getLine(buffer.viewportY + at)?.translateToString(true) ?? "");
  return [...lines, document.body.innerText].join("\\n");
})()
"""


class Tab:
    """One page of the browser."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser, self._target, self._session = browser, target, session
        self.requests: list[str] = []
        """The addresses that the page has requested."""

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol for this page."""
        return await self._browser.ask(method, parameters, self._session)

    async def go(self, address: str) -> None:
        """Open an address in this page."""
        await self.ask("Page.navigate", url=address)

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = await self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        return answer["result"].get("value")

    async def see(self, *texts: str) -> str:
        """Wait until the terminal of the page, or the page, shows all of these texts."""
        shown = ""

        async def visible() -> bool:
            nonlocal shown
            shown = await self.run(SCREEN) or ""
            return all(text in shown for text in texts)

        await until(visible, lambda: f"{texts} in\n{shown}")
        return shown

    async def press(self, key: str) -> None:
        """Press a key that is one character."""
        await self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def picture(self) -> bytes:
        """The page as PNG."""
        answer = await self.ask("Page.captureScreenshot", format="png")
        return base64.b64decode(answer["data"])

    async def close(self) -> None:
        """Close the page, as a user closes a tab."""
        await self._browser.ask("Target.closeTarget", {"targetId": self._target})


class Browser:
    """A running Chromium."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}

    async def read(self) -> None:
        """Take answers and events, until the browser ends."""
        async for message in self._socket:
            answer = json.loads(message.data)
            if answer.get("method") in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                sent = answer["params"]
                self._tabs[answer["sessionId"]].requests.append(
                    sent["url"] if "url" in sent else sent["request"]["url"]
                )
            waiting = self._waiting.pop(answer.get("id", 0), None)
            if waiting is not None:
                waiting.set_result(answer)

    async def ask(self, method: str, parameters: dict[str, Any], session: str = "") -> dict[str, Any]:
        """Send a command, and wait for its answer."""
        self._last += 1
        waiting = self._waiting[self._last] = asyncio.get_running_loop().create_future()
        of = {"sessionId": session} if session else {}
        await self._socket.send_json({"id": self._last, "method": method, "params": parameters, **of})
        async with asyncio.timeout(PATIENCE_S):
            answer = await waiting
        assert "error" not in answer, (method, answer["error"])
        found: dict[str, Any] = answer["result"]
        return found

    async def tab(self, width: int = 1200, height: int = 800) -> Tab:
        """An empty page of this size in a browser profile of its own: it shares no cookies with others."""
        context = (await self.ask("Target.createBrowserContext", {}))["browserContextId"]
        blank = {"url": "about:blank", "browserContextId": context}
        target = (await self.ask("Target.createTarget", blank))["targetId"]
        attached = await self.ask("Target.attachToTarget", {"targetId": target, "flatten": True})
        tab = self._tabs[attached["sessionId"]] = Tab(self, target, attached["sessionId"])
        await tab.ask("Page.enable")
        await tab.ask("Network.enable")
        await tab.ask("Page.addScriptToEvaluateOnNewDocument", source=TERMINAL)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await tab.ask("Emulation.setDeviceMetricsOverride", **size)
        return tab


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser for the time of a test, with no profile of the user."""
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update"),
            *("--no-proxy-server", "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        port = Path(profile, "DevToolsActivePort")
        try:

            async def ready() -> bool:
                return port.exists() and len(port.read_text().split()) == 2

            await until(ready, lambda: f"Chromium is ready, exit code {process.returncode}")
            number, path = port.read_text().split()
            async with (
                ClientSession() as session,
                session.ws_connect(f"ws://127.0.0.1:{number}{path}", max_msg_size=0) as socket,
            ):
                browser = Browser(socket)
                reading = asyncio.create_task(browser.read())
                try:
                    yield browser
                    await browser.ask("Browser.close", {})
                finally:
                    reading.cancel()
        finally:
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
                await process.wait()


async def until(condition: Callable[[], Any], what: Callable[[], str]) -> None:
    """Ask for an asynchronous condition until it is true."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"never: {what()}") from None
