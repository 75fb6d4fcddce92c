"""A machine pool in a plain file: programs of the site list, start and end machines.

Name the file in scheduler.toml, and make an engine of this type:

    [plugins]
    files = ["command_pool.py"]

    [engines.cloud]
    type = "command"
    list = ["/etc/corral/list-machines"]
    create = ["/etc/corral/create-machine"]
    end = ["/etc/corral/end-machine"]
    shapes = [{ name = "large", cpus = 16, memory = "60G", price = 1.2 }]

`list` prints one JSON object for each machine that bears a token of this cluster:

    {"ref": "vm-1", "token": "corral-0f3a9c112233-m5ab01", "state": "running", "address": "10.0.0.7"}

The keys `shape`, `zone`, `host_key` (the public SSH host key) and `notice_at` (seconds since 1970) are
optional. The states are starting, running and ended. `create` gets the token, the shape and the zone as
arguments, stores the token with the machine, such as in a tag, and prints the machine's `ref`. The exit code
75 says that there is no capacity at present. `end` gets the `ref`. The programs get the first part of all
tokens of this cluster in CORRAL_TOKENS. Any other exit code than 0 is a failure with an unknown effect.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from typing import ClassVar

from controller.engines.contract import EngineScope, EngineUnavailable, Offer
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
from controller.engines.pools.pool_engine import PoolEngine, offer_of

NO_CAPACITY = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPoolType(PoolOptions):
    """The options of the pool: its programs with their first arguments, and the shapes of machines."""

    name: ClassVar[str] = "command"

    list: tuple[str, ...]
    create: tuple[str, ...]
    end: tuple[str, ...]
    shapes: tuple[MachineShape, ...]
    zones: tuple[str, ...] = ("",)

    def configured_offers(self) -> tuple[Offer, ...]:
        return tuple(offer_of(shape, zone, {"zone": zone}) for zone in self.zones for shape in self.shapes)

    def connect(self, scope: EngineScope) -> PoolEngine:
        return PoolEngine(CommandPool(self, scope.tag_prefix), self, scope)


class CommandPool(MachinePool):
    """Runs the programs of the site."""

    def __init__(self, options: CommandPoolType, prefix: str) -> None:
        self._options = options
        self._prefix = prefix

    async def machines(self) -> MachineList:
        lines = (await self._run(*self._options.list)).splitlines()
        try:
            return MachineList(True, tuple(self._machine(json.loads(line)) for line in lines if line.strip()))
        except (ValueError, KeyError, TypeError) as error:
            raise EngineUnavailable(
                f"the output of {self._options.list[0]} cannot be read: {error}"
            ) from None

    async def create(self, order: MachineOrder) -> str:
        offer = order.offer
        return (await self._run(*self._options.create, order.token, offer.shape, offer.zone)).strip()

    async def end(self, ref: str) -> None:
        await self._run(*self._options.end, ref)

    async def offers(self) -> tuple[Offer, ...]:
        return self._options.configured_offers()

    def _machine(self, found: dict[str, str]) -> Machine:
        notice = found.get("notice_at")
        return Machine(
            found["ref"],
            found["token"],
            MachineState(found["state"]),
            found.get("address", ""),
            found.get("shape", ""),
            found.get("zone", ""),
            None if notice is None else float(notice),
            found.get("host_key", ""),
        )

    async def _run(self, *words: str) -> str:
        environment = {**os.environ, "CORRAL_TOKENS": self._prefix}
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe, env=environment)
        except OSError as error:
            raise EngineUnavailable(f"{words[0]} cannot be run: {error.strerror}") from None
        try:
            output, errors = await process.communicate()
        finally:
            if process.returncode is None:  # the time limit of the request is over
                process.kill()
        text = errors.decode("utf-8", "replace").strip()[-300:]
        if process.returncode == NO_CAPACITY:
            raise NoCapacity(text or "no capacity")
        if process.returncode:
            raise EngineUnavailable(f"{words[0]} ended with exit code {process.returncode}: {text}")
        return output.decode("utf-8", "replace")
