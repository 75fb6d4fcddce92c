"""All machines of one pool: their records on disk, and what the looks at the pool have shown."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import asyncssh

from controller.engines.contract import Offer
from controller.engines.driver.record_files import RecordDirectory
from controller.engines.pools.machine_pool import Machine, MachineList, MachineState
from controller.engines.pools.machine_records import MachineRecord, PoolMachine, Stage
from controller.nodes.ssh.known_hosts import key_line

MOST_ENDED = 2_000
"""The most records of ended machines that are kept."""
KEPT_S = 2 * 86_400.0
"""Seconds for which the record of an ended machine is kept, for the money of the day and for machines that
appear late.
"""
log = logging.getLogger("corral.engines")


@dataclass(slots=True)
class UnknownMachine:
    """A machine with a token of this cluster and without a record of this controller. `looks` looks in a row
    have shown it, the first one at `since`.
    """

    machine: Machine
    looks: int
    since: float


class Fleet:
    """The machines of one pool by token.

    Comparison with a look (`compare`)
    1. A machine belongs to a record with its token. In a pool that stores no tokens, a machine belongs to the
       live record with its ref.
    2. If several machines have one token, the record keeps the machine that it names, and the others are in
       `surplus`. A machine whose record has ended is in `surplus` too.
    3. A machine with a token of this cluster and without a record is in `unknown`. In a pool that stores no
       tokens, a machine without a record that runs is in `foreign`, because an administrator switched it on.
    4. A live record without a machine is absent. In a pool that stores no tokens, a machine that is off
       counts as absent, because the answers of BMCs can be wrong.

    Invariant: a record is on disk before its machine is ordered, and before the machine is ended.
    """

    def __init__(
        self, files: RecordDirectory[MachineRecord], prefix: str, *, stores_tokens: bool, host_keys: bool
    ) -> None:
        self.prefix = prefix
        self.surplus: list[Machine] = []
        self.unknown: dict[str, UnknownMachine] = {}
        self.foreign: dict[str, Machine] = {}
        self._files = files
        self._stores_tokens = stores_tokens
        self._host_keys = host_keys
        self._machines = {record.token: PoolMachine(record) for record in files.load()}

    def __iter__(self) -> Iterator[PoolMachine]:
        return iter(list(self._machines.values()))

    @property
    def live(self) -> list[PoolMachine]:
        """The machines that are wanted or may exist."""
        return [each for each in self if each.record.ended_at is None]

    @property
    def unanswered(self) -> list[PoolMachine]:
        """The machines that are wanted or ordered and whose agents have not connected yet."""
        return [each for each in self if each.record.stage in (Stage.WANTED, Stage.BOOTING)]

    def foreign_name(self, record: MachineRecord) -> str:
        """Return the pool's name of the node on a machine."""
        return record.token.removeprefix(self.prefix) if self._stores_tokens else record.ref

    def by_name(self, name: str) -> PoolMachine | None:
        """Return the live machine whose node has this name in the pool; None if there is none."""
        return next((each for each in self.live if self.foreign_name(each.record) == name), None)

    def spent(self, begin: float, end: float, project: str | None = None) -> float:
        """Return the money for all machines between two times, or for the machines of one project."""
        return sum(
            each.record.cost(begin, end)
            for each in self._machines.values()
            if project is None or each.record.project == project
        )

    async def want(self, offer: Offer, project: str, now: float) -> PoolMachine:
        """Record durably that a machine is wanted, and return the machine."""
        secret = public = ""
        if self._host_keys:
            key = asyncssh.generate_private_key("ssh-ed25519")
            secret, public = key.export_private_key().decode(), key_line(key)
        record = MachineRecord(
            f"{self.prefix}m{secrets.token_hex(5)}",
            offer.shape,
            now,
            offer.zone,
            offer.price_per_hour,
            project,
            dict(offer.facts.labels),
            offer.ready_in_s,
            public,
            secret,
            ref="" if self._stores_tokens else offer.shape,
        )
        machine = PoolMachine(record)
        await self.save(machine)
        self._machines[record.token] = machine
        return machine

    async def adopt(self, found: Machine, labels: dict[str, str], price: float, now: float) -> None:
        """Make a record for a machine that another controller of this cluster has ordered."""
        log.warning("machine %s had no record here; the cluster has its node, so it gets a record", found.ref)
        record = MachineRecord(
            found.token,
            found.shape,
            now,
            found.zone,
            price,
            labels=labels,
            host_key=found.host_key,
            tried=True,
            ref=found.ref,
            asked_at=now,
        )
        machine = self._machines[record.token] = PoolMachine(record, listed=found)
        self.unknown.pop(found.ref, None)
        await self.save(machine)

    async def save(self, machine: PoolMachine) -> None:
        """Write the record of a machine durably."""
        await asyncio.to_thread(self._files.save, machine.record.token, machine.record)

    async def forget_old(self, now: float) -> None:
        """Delete the records of machines that ended more than KEPT_S ago, and the oldest records beyond
        MOST_ENDED.
        """
        ended = [each.record for each in self if each.record.ended_at is not None and each.record.cleared]
        ended.sort(key=lambda record: record.ended_at or 0.0)
        surplus = max(0, len(ended) - MOST_ENDED)
        for index, record in enumerate(ended):
            if index < surplus or now - (record.ended_at or 0.0) > KEPT_S:
                del self._machines[record.token]
                await asyncio.to_thread(self._files.delete, record.token)

    def compare(self, listing: MachineList, began: float, now: float) -> list[PoolMachine]:
        """Compare a look that began at `began` with the records. Return the machines whose records have
        changed.
        """
        changed, matched = [], set()
        self.surplus, self.foreign = [], {}
        unknown: dict[str, UnknownMachine] = {}
        for found in listing.machines:
            machine = self._machine_of(found)
            if machine is None:
                if not self._stores_tokens:
                    if found.state is MachineState.RUNNING:
                        self.foreign[found.ref] = found
                elif found.state is not MachineState.ENDED:
                    before = self.unknown.get(found.ref, UnknownMachine(found, 0, now))
                    unknown[found.ref] = UnknownMachine(found, before.looks + 1, before.since)
                continue
            record = machine.record
            doubled = record.token in matched or (record.ref and record.ref != found.ref)
            if record.ended_at is not None or (doubled and self._stores_tokens):
                if found.state is not MachineState.ENDED:
                    self.surplus.append(found)
                continue
            if not record.tried or (found.state is MachineState.ENDED and not self._stores_tokens):
                continue
            matched.add(record.token)
            if machine.present(found, now):
                changed.append(machine)
        if listing.complete:
            self.unknown = unknown
            for machine in self.live:
                record = machine.record
                asked = record.asked_at or record.wanted_at
                if record.tried and record.token not in matched and began >= asked:
                    machine.absent(began)
        else:
            self.unknown.update(unknown)
        return changed

    def _machine_of(self, found: Machine) -> PoolMachine | None:
        if self._stores_tokens:
            return self._machines.get(found.token)
        return next((each for each in self.live if each.record.ref == found.ref), None)
