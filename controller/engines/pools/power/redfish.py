"""Switches hosts on and off by Redfish: the engine type "redfish"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import aiohttp

from controller.engines.contract import EngineScope, EngineUnavailable
from controller.engines.pools.pool_engine import PoolEngine
from controller.engines.pools.power.power_pool import Bmc, PowerHost, PowerPool, PowerPoolOptions, bmc_login
from wire.text import printable

ROOT = "/redfish/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedfishHost(PowerHost):
    """A host whose BMC supports Redfish. `bmc` is its URL, `system` the path of the system; the default is
    the first one. `fingerprint` is the SHA-256 of the BMC's certificate in hexadecimal digits; without it,
    the certificate must be signed by an authority that the controller's machine knows.
    """

    system: str = ""
    fingerprint: str = ""

    def __post_init__(self) -> None:
        # A dataclass with slots is a new class, so super() without arguments does not find it.
        super(RedfishHost, self).__post_init__()
        if not self.bmc.startswith(("http://", "https://")):
            raise ValueError("bmc must be a URL such as https://10.0.0.1")
        if self.fingerprint and len(bytes.fromhex(self.fingerprint)) != 32:
            raise ValueError("fingerprint must have 64 hexadecimal digits")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedfishPoolType(PowerPoolOptions):
    """The options of a pool of hosts with Redfish."""

    name: ClassVar[str] = "redfish"

    hosts: tuple[RedfishHost, ...]

    def connect(self, scope: EngineScope) -> PoolEngine:
        bmcs: dict[str, Bmc] = {
            host.name: RedfishBmc(host, self.bmc_credentials_file, scope.timeout_s / 2) for host in self.hosts
        }
        return PoolEngine(PowerPool(self, bmcs), self, scope)


class RedfishBmc(Bmc):
    """The Redfish service of one host, with basic authentication."""

    def __init__(self, host: RedfishHost, credentials_file: str, timeout_s: float) -> None:
        self._host = host
        self._credentials_file = credentials_file
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._system = host.system
        self._session: aiohttp.ClientSession | None = None

    async def is_on(self) -> bool:
        state = str((await self._ask("GET", await self._path())).get("PowerState", ""))
        if state not in ("On", "Off", "PoweringOn", "PoweringOff", "Paused"):
            raise EngineUnavailable(f"{self._host.bmc} says that its power is {printable(state, 40)!r}")
        return state in ("On", "PoweringOff", "Paused")

    async def switch_on(self) -> None:
        await self._reset("On")

    async def switch_off(self, *, soft: bool) -> None:
        await self._reset("GracefulShutdown" if soft else "ForceOff")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _reset(self, kind: str) -> None:
        path = f"{await self._path()}/Actions/ComputerSystem.Reset"
        await self._ask("POST", path, {"ResetType": kind})

    async def _path(self) -> str:
        """Return the path of the option `system`, or else of the first system that the BMC lists."""
        if not self._system:
            members = (await self._ask("GET", f"{ROOT}/Systems")).get("Members") or [{}]
            path = members[0].get("@odata.id", "") if isinstance(members[0], dict) else ""
            if not isinstance(path, str) or not path.startswith(ROOT):
                raise EngineUnavailable(f"{self._host.bmc} lists no system")
            self._system = path.rstrip("/")
        return self._system

    async def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        headers = {}
        if self._credentials_file:
            headers["Authorization"] = aiohttp.encode_basic_auth(*bmc_login(self._credentials_file))
        finger = self._host.fingerprint
        checked: Any = {"ssl": aiohttp.Fingerprint(bytes.fromhex(finger))} if finger else {}
        url = self._host.bmc.rstrip("/") + path
        try:
            async with self._session.request(
                method, url, json=body, headers=headers, allow_redirects=False, **checked
            ) as answer:
                if answer.status >= 300:
                    raise EngineUnavailable(f"{url} answers with status {answer.status}")
                if answer.status == 204 or method == "POST":
                    return {}
                found = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise EngineUnavailable(f"{url} cannot be reached: {error or type(error).__name__}") from None
        return found if isinstance(found, dict) else {}
