"""The machine pool of hosts with a BMC: switches hosts on for waiting jobs, and off when idle."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass

from controller.engines.contract import EngineUnavailable, Offer
from controller.engines.pools.machine_pool import (
    Machine,
    MachineList,
    MachineOrder,
    MachinePool,
    MachineShape,
    MachineState,
    NoCapacity,
    PoolOptions,
)
from controller.engines.pools.pool_engine import offer_of
from controller.engines.pools.power.wake_on_lan import send_magic_packet
from wire import trusted_paths

AT_ONCE = 16
"""The most BMCs that are asked at the same time. Some answer only after seconds, so asking them one after the
other would take too long.
"""
SOFT_TRIES = 6
"""The number of requests to shut down before the power is cut."""
log = logging.getLogger("corral.engines")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerHost(MachineShape):
    """One host: its name and resources, the address for SSH, and the address of its BMC."""

    address: str
    bmc: str
    host_key: str = ""
    rack: str = ""
    mac: str = ""
    """The Ethernet address for Wake-on-LAN packets, which are sent in addition to the request to the BMC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPoolOptions(PoolOptions):
    """The options of a pool of hosts with BMCs."""

    hosts: tuple[PowerHost, ...]
    bmc_credentials_file: str = ""
    """A file with the line `user:password`, which must be readable by the controller's user alone."""
    wake_broadcast: str = "255.255.255.255"

    def configured_offers(self) -> tuple[Offer, ...]:
        return tuple(map(offer_of_host, self.hosts))


class Bmc(ABC):
    """The requests to the BMC of one host. All methods may raise EngineUnavailable."""

    @abstractmethod
    async def is_on(self) -> bool:
        """Return whether the BMC says that the power is on."""

    @abstractmethod
    async def switch_on(self) -> None:
        """Switch the power on. A host that is on stays on."""

    @abstractmethod
    async def switch_off(self, *, soft: bool) -> None:
        """Shut the operating system down (`soft`), or cut the power."""

    async def close(self) -> None:  # noqa: B027 - some BMCs need no connection
        """Close the connection."""


class PowerPool(MachinePool):
    """The hosts of one pool.

    1. Each look asks all BMCs, AT_ONCE at a time. If a BMC does not answer, its last answer counts. If no BMC
       answers, the look fails.
    2. An order switches a host on. The same order has no further effect.
    3. The end of a machine shuts the host down, and cuts the power after SOFT_TRIES requests without effect.
    4. The records say which hosts Corral has switched on. Another host that is on becomes a node too, and is
       never switched off.

    The answers of BMCs can be late or wrong. Only a connected agent proves that a host is on, and a host
    counts as off after two answers, two intervals apart (see PoolMachine).
    """

    idempotent = True
    stores_tokens = False

    def __init__(self, options: PowerPoolOptions, bmcs: dict[str, Bmc]) -> None:
        self._options = options
        self._hosts = {host.name: host for host in options.hosts}
        self._bmcs = bmcs
        self._on: dict[str, bool] = {}
        self._soft_tries: dict[str, int] = {}
        self._limit = asyncio.Semaphore(AT_ONCE)

    async def machines(self) -> MachineList:
        failures = [each for each in await asyncio.gather(*map(self._ask, self._hosts)) if each]
        if len(failures) == len(self._hosts):
            raise EngineUnavailable(failures[0])
        known = [host for name, host in self._hosts.items() if name in self._on]
        return MachineList(len(known) == len(self._hosts), tuple(map(self._machine, known)))

    async def create(self, order: MachineOrder) -> str:
        name = order.offer.shape
        host = self._hosts.get(name)
        if host is None:
            raise NoCapacity(f"there is no host {name} in scheduler.toml")
        self._soft_tries.pop(name, None)
        if host.mac:
            send_magic_packet(host.mac, self._options.wake_broadcast)
        await self._bmcs[name].switch_on()
        return name

    async def end(self, ref: str) -> None:
        bmc = self._bmcs.get(ref)
        if bmc is None:
            raise EngineUnavailable(f"there is no host {ref} in scheduler.toml")
        tries = self._soft_tries[ref] = self._soft_tries.get(ref, 0) + 1
        await bmc.switch_off(soft=tries <= SOFT_TRIES)

    async def offers(self) -> tuple[Offer, ...]:
        return tuple(offer_of_host(host) for name, host in self._hosts.items() if self._on.get(name) is False)

    async def close(self) -> None:
        for bmc in self._bmcs.values():
            await bmc.close()

    async def _ask(self, name: str) -> str:
        """Ask one BMC, and return the reason of a failure; empty if it has answered."""
        async with self._limit:
            try:
                self._on[name] = await self._bmcs[name].is_on()
            except EngineUnavailable as error:
                log.warning("the BMC of %s does not answer: %s", name, error)
                return str(error)
        return ""

    def _machine(self, host: PowerHost) -> Machine:
        state = MachineState.RUNNING if self._on[host.name] else MachineState.ENDED
        return Machine(host.name, "", state, host.address, host.name, host.rack, host_key=host.host_key)


def offer_of_host(host: PowerHost) -> Offer:
    """Return the offer of one host."""
    return offer_of(host, host.rack, {"rack": host.rack} if host.rack else {}, 1)


def bmc_login(file: str) -> tuple[str, str]:
    """Return the user and the password in a file. Raise EngineUnavailable if it cannot be read."""
    try:
        with open(trusted_paths.open_file(file), encoding="utf-8") as opened:
            user, found, password = opened.readline().rstrip("\n").partition(":")
    except (OSError, trusted_paths.UntrustedPath) as error:
        raise EngineUnavailable(f"the login of the BMCs in {file} cannot be read: {error}") from None
    if not found:
        raise EngineUnavailable(f"the first line of {file} has not the form user:password")
    return user, password
