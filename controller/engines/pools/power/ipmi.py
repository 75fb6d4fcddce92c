"""Switches hosts on and off by IPMI, with the program ipmitool: the engine type "ipmi"."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from controller.engines.contract import EngineScope, EngineUnavailable
from controller.engines.pools.pool_engine import PoolEngine
from controller.engines.pools.power.power_pool import Bmc, PowerHost, PowerPool, PowerPoolOptions, bmc_login
from wire.text import printable

_STATUS = re.compile(r"Chassis Power is (on|off)", re.IGNORECASE)
_ADDRESS = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\])(?::(\d{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class IpmiPoolType(PowerPoolOptions):
    """The options of a pool of hosts with IPMI. The `bmc` of a host is HOST or HOST:PORT. `cipher` is the
    cipher suite of RMCP+ that the BMCs support.
    """

    name: ClassVar[str] = "ipmi"

    hosts: tuple[PowerHost, ...]
    cipher: int = 17
    ipmitool: str = "ipmitool"

    def connect(self, scope: EngineScope) -> PoolEngine:
        bmcs: dict[str, Bmc] = {host.name: IpmiBmc(host, self, scope.timeout_s / 2) for host in self.hosts}
        return PoolEngine(PowerPool(self, bmcs), self, scope)


class IpmiBmc(Bmc):
    """The BMC of one host. Each request is one run of ipmitool. Its environment has the password."""

    def __init__(self, host: PowerHost, options: IpmiPoolType, timeout_s: float) -> None:
        match = _ADDRESS.fullmatch(host.bmc)
        self._host, self._port = (match[1].strip("[]"), match[2] or "623") if match else ("", "")
        self._name = host.name
        self._options = options
        self._timeout_s = timeout_s

    async def is_on(self) -> bool:
        text = await self._run("status")
        found = _STATUS.search(text)
        if found is None:
            raise EngineUnavailable(f"ipmitool says about {self._name}: {printable(text, 200)}")
        return found[1].lower() == "on"

    async def switch_on(self) -> None:
        await self._run("on")

    async def switch_off(self, *, soft: bool) -> None:
        await self._run("soft" if soft else "off")

    async def _run(self, action: str) -> str:
        if not self._host:
            raise EngineUnavailable(f"the bmc of host {self._name} must have the form HOST or HOST:PORT")
        user, password = bmc_login(self._options.bmc_credentials_file)
        words = ("-I", "lanplus", "-H", self._host, "-p", self._port, "-U", user, "-E")
        try:
            process = await asyncio.create_subprocess_exec(
                self._options.ipmitool,
                *words,
                *("-C", str(self._options.cipher), "chassis", "power", action),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", os.defpath), "IPMI_PASSWORD": password},
            )
        except OSError as error:
            raise EngineUnavailable(f"{self._options.ipmitool} cannot be run: {error.strerror}") from None
        try:
            async with asyncio.timeout(self._timeout_s):
                output, _ = await process.communicate()
        except TimeoutError:
            raise EngineUnavailable(f"the BMC of {self._name} has not answered in time") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        text = output.decode("utf-8", "replace").strip()
        if process.returncode:
            raise EngineUnavailable(
                f"ipmitool chassis power {action} of {self._name}: {printable(text, 200)}"
            )
        return text
