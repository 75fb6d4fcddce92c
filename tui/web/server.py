"""The web server of corral web: the page, its static files, and one terminal UI process for each tab."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from aiohttp import web

from tui.web.links import SignInLinks
from tui.web.session import DRIVER, BrowserSession

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
TABS: Final = 16
MESSAGE: Final = 1 << 20
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "font-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""HTTP headers of every answer. With them, no page of another site can frame, read or script the terminal UI,
and the page loads nothing from other hosts. Inline styles are allowed, because xterm.js needs them.
"""
_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer:
    """Serves the terminal UI on a loopback address.

    For each request:
    1. Refuse it (403) if its Host header is no loopback name. Otherwise a page of another site, whose name
       an attacker resolves to 127.0.0.1, could send requests as the same site (DNS rebinding).
    2. `GET /?token=…`: exchange the token for a cookie (class SignInLinks), and redirect to `/`.
    3. Refuse any other request (403) that has no cookie of this server.
    4. `/` is the page, `/static/…` the terminal for browsers (xterm.js) of the package textual-serve, and
       `/ws` the WebSocket of one tab. The WebSocket needs an Origin header of this server, because browsers
       also send cookies with WebSockets of other sites.

    `show_link` is called with the first link and True, and with the next link and False after each use of a
    link.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        show_link: Callable[[str, bool], None],
    ) -> None:
        self._command, self._show_link = command, show_link
        unwanted = ("TMUX", "COLUMNS", "LINES", "ROWS")
        self._environment = {
            **{name: value for name, value in environment.items() if name not in unwanted},
            "TEXTUAL_DRIVER": DRIVER,
            "TEXTUAL_COLOR_SYSTEM": "truecolor",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
        }
        self._links = SignInLinks()
        self._tabs: set[web.WebSocketResponse] = set()
        self._address = ""
        self._cookie = ""

    async def serve(self, host: str, port: int) -> None:
        """Serve until SIGINT, SIGTERM or SIGHUP arrives, then close all tabs and end their processes. Raise
        OSError if the port is in use.
        """
        application = web.Application(middlewares=[self._check])
        application.router.add_get("/", self._page)
        application.router.add_get("/ws", self._tab)
        for name in ("page.css", "page.js"):
            application.router.add_get(f"/{name}", self._own_file)
        application.router.add_static("/static", str(resources.files("textual_serve") / "static"))
        application.on_shutdown.append(self._close_tabs)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            number = runner.addresses[0][1]
            self._cookie = f"corral_web_{number}"
            self._address = f"http://{f'[{host}]' if ':' in host else host}:{number}"
            self._show_link(self._link(), True)
            await _stop_signal()
        finally:
            await runner.cleanup()

    def _link(self) -> str:
        return f"{self._address}/?token={self._links.token}"

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if _host_name(request.headers.get("Host", "")) not in LOOPBACK:
            return _refusal("Use the address 127.0.0.1 or localhost.")
        if request.path == "/" and "token" in request.query:
            return self._sign_in(request.query["token"])
        if not self._links.known(request.cookies.get(self._cookie, "")):
            return _refusal("Open the last link that corral web shows.")
        response = await handler(request)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _sign_in(self, token: str) -> web.Response:
        cookie = self._links.redeem(token)
        if cookie is None:
            return _refusal(
                "This link is wrong or was used before. Open the last link that corral web shows."
            )
        self._show_link(self._link(), False)
        response = web.Response(status=303, headers={**HEADERS, "Location": "/"})
        response.set_cookie(self._cookie, cookie, httponly=True, samesite="Lax")
        return response

    async def _page(self, request: web.Request) -> web.StreamResponse:
        size = request.query.get("fontsize", "")
        text = _file("page.html").replace("@SIZE@", size if size.isdecimal() else "15")
        return web.Response(
            text=text.replace("@SOCKET@", f"ws://{request.headers['Host']}/ws"), content_type="text/html"
        )

    async def _own_file(self, request: web.Request) -> web.StreamResponse:
        name = request.path.removeprefix("/")
        return web.Response(text=_file(name), content_type=_TYPES[Path(name).suffix])

    async def _tab(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Origin", "") != f"http://{request.headers['Host']}":
            return _refusal("A page of another site must not open the terminal UI.")
        if len(self._tabs) >= TABS:
            return web.Response(status=503, text=f"At most {TABS} tabs can be open. Close another tab.\n")
        socket = web.WebSocketResponse(heartbeat=15, max_msg_size=MESSAGE)
        self._tabs.add(socket)
        try:
            await socket.prepare(request)
            sizes = [request.query.get(side, "") for side in ("width", "height")]
            width, height = (int(size) if size.isdecimal() else 80 for size in sizes)
            await BrowserSession(self._command, self._environment, socket).run(width, height)
        finally:
            self._tabs.discard(socket)
        return socket

    async def _close_tabs(self, _application: web.Application) -> None:
        await asyncio.gather(*(socket.close() for socket in list(self._tabs)))


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port: `localhost` of `localhost:7071`, `::1` of
    `[::1]:7071`.
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _refusal(what: str) -> web.Response:
    return web.Response(status=403, text=f"403: {what}\n", headers=HEADERS)


def _file(name: str) -> str:
    return resources.files("tui.web").joinpath(name).read_text(encoding="utf-8")


async def _stop_signal() -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
