"""A server with the Redfish services of several hosts, which can be slow, or say something wrong about the
power.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aiohttp import encode_basic_auth, web

LOGIN = encode_basic_auth("admin", "secret")
SYSTEM = "/redfish/v1/Systems/1"


@dataclass
class FaultHost:
    """One host. `on` is the truth, `lie` what the BMC says instead, and `slow` the number of coming answers
    that still show the state before the last change.
    """

    on: bool = False
    lie: str = ""
    slow: int = 0
    before: bool = False
    silent: bool = False
    ignores_shutdown: bool = False
    resets: list[str] = field(default_factory=list)

    @property
    def shown(self) -> str:
        if self.lie:
            return self.lie
        if self.slow:
            self.slow -= 1
            return "On" if self.before else "Off"
        return "On" if self.on else "Off"

    def reset(self, kind: str) -> None:
        self.resets.append(kind)
        self.before = self.on
        if kind == "On":
            self.on = True
        elif kind == "ForceOff" or not self.ignores_shutdown:
            self.on = False


class FaultBmcs:
    """The BMCs of all hosts, at one address with a path for each host."""

    def __init__(self, *names: str) -> None:
        self.hosts = {name: FaultHost() for name in names}
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/{host}/redfish/v1/Systems", self._systems)
        app.router.add_get("/{host}" + SYSTEM, self._system)
        app.router.add_post("/{host}" + SYSTEM + "/Actions/ComputerSystem.Reset", self._reset)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _host(self, request: web.Request) -> FaultHost:
        host = self.hosts[request.match_info["host"]]
        if request.headers.get("authorization") != LOGIN:
            raise web.HTTPUnauthorized
        if host.silent:
            raise web.HTTPServiceUnavailable
        return host

    async def _systems(self, request: web.Request) -> web.Response:
        self._host(request)
        return web.json_response({"Members": [{"@odata.id": SYSTEM}]})

    async def _system(self, request: web.Request) -> web.Response:
        return web.json_response({"PowerState": self._host(request).shown})

    async def _reset(self, request: web.Request) -> web.Response:
        self._host(request).reset((await request.json())["ResetType"])
        return web.Response(status=204)
