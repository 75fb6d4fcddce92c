"""The interface of a machine pool: a service that starts and ends machines, such as a cloud or the BMCs of
hosts.

A pool type is an engine type (`corral.engine`) whose method `connect` returns a PoolEngine with a
MachinePool. examples/command_pool.py is a complete pool.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from controller.engines.contract import Offer
from wire.cluster.hosts import checked_memory


class MachineState(enum.Enum):
    """The state of a machine in the answer of machines()."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    """The machine is terminated or switched off."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine in the answer of machines(). `ref` is the pool's name of the machine, and `token` the token
    of the order that started the machine; empty if the pool cannot store tokens.

    `address` is where SSH reaches the machine, and `host_key` its public SSH host key, if the pool knows the
    key. The pool will interrupt the machine at `notice_at`; None if the pool has announced no interruption.
    """

    ref: str
    token: str
    state: MachineState
    address: str = ""
    shape: str = ""
    zone: str = ""
    notice_at: float | None = None
    host_key: str = ""


@dataclass(frozen=True, slots=True)
class MachineList:
    """The answer of machines(). `complete` is True only if no machine with a token of this cluster is
    missing.
    """

    complete: bool
    machines: tuple[Machine, ...]


@dataclass(frozen=True, slots=True)
class MachineOrder:
    """The order for one machine. `token` names the machine, and no other order has the same token.

    `host_key` is the private SSH host key that the machine must use, in the format of OpenSSH; empty for a
    pool with `makes_host_keys` False.
    """

    token: str
    offer: Offer
    host_key: str = ""


class NoCapacity(Exception):
    """Raised by create() if the pool cannot start such a machine at present. Nothing was started. Corral
    pauses orders of this shape in this zone.
    """


class MachinePool(ABC):
    """A connected machine pool. All methods may raise EngineUnavailable.

    Invariant: a method changes only machines that this cluster has ordered.
    """

    idempotent: ClassVar[bool] = False
    """True if a second create() with the same token starts no second machine."""
    stores_tokens: ClassVar[bool] = True
    """False for machines without tags, such as hosts with a BMC. Only Corral's records then say which
    machines Corral has started.
    """
    makes_host_keys: ClassVar[bool] = False
    """True if create() gives the machine the SSH host key of the order."""

    @abstractmethod
    async def machines(self) -> MachineList:
        """Return all machines with a token of this cluster, with as few requests as possible. A pool that
        stores no tokens returns all its machines.
        """

    @abstractmethod
    async def create(self, order: MachineOrder) -> str:
        """Start a machine, and return its `ref`. Raise NoCapacity if this is not possible at present."""

    @abstractmethod
    async def end(self, ref: str) -> None:
        """Terminate a machine or switch it off. A machine that does not exist is no error."""

    @abstractmethod
    async def offers(self) -> tuple[Offer, ...]:
        """Return the machines that could be started: a shape in a zone, with price and boot time."""

    async def close(self) -> None:  # noqa: B027 - some pools hold no connection
        """Close the connections to the pool. Machines continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The options of [engines.NAME] that all pools have. A pool type inherits them.

    The controller refuses a job that can never run. Jobs that could run on the machines in
    `configured_offers()` are accepted.
    """

    most: int = 10
    """The most machines at the same time."""
    idle_s: float = 600.0
    """Seconds without a job after which a machine is ended."""
    join_s: float = 900.0
    """Seconds from the order of a machine until its agent must have connected. Otherwise the machine is
    ended.
    """
    most_unanswered: int = 3
    """The most machines that are ordered and whose agents have not connected yet."""
    back_off_s: float = 60.0
    """Seconds of the first pause after a shape was not available in a zone. The pause doubles, up to an
    hour.
    """
    demand_s: float = 15.0
    """Seconds between two searches for waiting jobs that would start on a new machine."""
    forecast_s: float = 10.0
    """The most seconds that one of these searches may take."""
    wait_price: float = 0.0
    """The price of one hour of waiting for a machine to boot. A high value prefers machines that boot fast, a
    low value cheap machines.
    """
    daily_cap: float | None = None
    """The most money for one day (UTC). None: no limit."""
    project_caps: Mapping[str, float] = field(default_factory=dict)
    """The most money for the machines of a project on one day (UTC), by project."""
    user: str = "root"
    port: int = 22
    identity: str = ""
    python: str = ""
    spool: str = ""
    gpus: str = "auto"
    run_as_self: bool = False

    def __post_init__(self) -> None:
        if self.most < 1 or self.most_unanswered < 1:
            raise ValueError("most and most_unanswered must be at least 1")
        caps = (self.daily_cap or 0.0, *self.project_caps.values())
        times = (self.idle_s, self.join_s, self.back_off_s, self.demand_s, self.forecast_s)
        if min(*caps, *times, self.wait_price) < 0:
            raise ValueError("times, caps and wait_price must be at least 0")

    def configured_offers(self) -> tuple[Offer, ...]:
        """Return all machines that the pool could ever start, from the options alone."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineShape:
    """A kind of machine, with its price per hour and the seconds until its agent connects."""

    name: str
    cpus: int
    memory: str
    price: float
    gpus: int = 0
    gpu_model: str = ""
    gpu_memory: str = ""
    boot_s: float = 180.0

    def __post_init__(self) -> None:
        checked_memory(self.memory)
        if self.gpus:
            checked_memory(self.gpu_memory)
        if self.cpus < 1 or self.gpus < 0 or self.price < 0 or self.boot_s < 0:
            raise ValueError("cpus must be at least 1, and gpus, price and boot_s at least 0")
