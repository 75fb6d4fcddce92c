"""Takes each machine of a pool through its stages: order, drain, end, and removal of its node."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from controller.core.cluster.node import Node
from controller.engines.contract import Offer
from controller.engines.driver.request_runner import RequestRunner
from controller.engines.pools.back_off import BackOff
from controller.engines.pools.budget import Budget
from controller.engines.pools.fleet import Fleet
from controller.engines.pools.machine_pool import (
    MachineOrder,
    MachinePool,
    MachineState,
    NoCapacity,
    PoolOptions,
)
from controller.engines.pools.machine_records import PoolMachine, Stage
from wire.names import COST_LABEL

LOOKS_BEFORE_END = 2
"""The number of looks that must show a machine without a record before the machine is ended."""
UNKNOWN_S = 30.0
"""Seconds for which a machine without a record must be listed before it is ended. This is longer than the
lease of a leading controller, which may still write the record.
"""
RETRY_S = 2.0
NOTICE_MARGIN_S = 5.0
"""Seconds before an announced interruption at which the node must be empty."""
log = logging.getLogger("corral.engines")


@dataclass(frozen=True, slots=True)
class PoolNodes:
    """The functions of the controller with which a pool reads and changes its nodes."""

    name: Callable[[str], str]
    """Return Corral's name of a node, from the pool's name of it."""
    node: Callable[[str], Node | None]
    drain_by: Callable[[str, str, float], Awaitable[None]]
    """Drain a node for a reason, so that it is empty at the given time."""
    declare_lost: Callable[[str], Awaitable[None]]
    """Record all jobs on a disconnected node as lost."""
    remove: Callable[[str], Awaitable[bool]]
    """Remove a node. The result is False if a job holds resources on the node."""
    drain_prefix: str
    """The first words of the reason of all drains by this pool."""


class Keeper:
    """Takes the machines of one pool through their stages. One round (`round`), after each look:

    1. WANTED: write `tried` into the record, then order the machine. A lost answer is no failure: the next
       looks show whether the machine exists. A pool that is idempotent is asked again with the same token.
    2. BOOTING: the machine has joined when its node is connected. If it has not joined after `join_s`, it is
       ended, and orders of its shape in its zone pause.
    3. JOINED: the machine leaves when it was idle for `idle_s`, when a cap is reached, or when the pool has
       announced an interruption. Before an interruption, its jobs get a stop order in time for their
       checkpoints.
    4. LEAVING: when the drain is in force and no job holds resources on the node, write `ending` into the
       record. If an administrator has drained the node, the machine stays.
    5. ENDING: remove the node, then ask the pool to end the machine, until a look shows the end.
    6. ENDED: record the jobs of a vanished machine as lost, and remove its node.
    7. End machines that have a token of this cluster and that no record needs: further machines with one
       token, machines that appear after their record has ended, and machines without a record, after two
       looks and UNKNOWN_S. A machine without a record whose node is in the cluster is adopted, because a
       former controller has ordered it.

    Invariant: every step is on disk before the request that follows from it, so a controller that is killed
    at any moment leaves no machine behind and orders none twice.
    """

    def __init__(
        self,
        engine: str,
        pool: MachinePool,
        options: PoolOptions,
        fleet: Fleet,
        budget: Budget,
        back_off: BackOff,
        nodes: PoolNodes,
        runner: RequestRunner,
        interval_s: float,
        now: Callable[[], float],
    ) -> None:
        self.ended_unknown = 0
        """How many machines that no record needs (step 7) were ended since the controller's start."""
        self.ordered = 0
        """How many machines were ordered since the controller's start."""
        self._engine = engine
        self._pool = pool
        self._options = options
        self._fleet = fleet
        self._budget = budget
        self._back_off = back_off
        self._nodes = nodes
        self._runner = runner
        self._interval_s = interval_s
        self._now = now

    async def round(self, offers: dict[tuple[str, str], Offer]) -> None:
        """Do the next step of each machine. `offers` has the present offers by shape and zone."""
        for machine in self._fleet:
            if self._runner.is_busy(machine.record.token):
                continue
            await self._conclude(machine)
            match machine.record.stage:
                case Stage.WANTED | Stage.BOOTING:
                    await self._start(machine, offers)
                case Stage.JOINED:
                    await self._watch(machine)
                case Stage.LEAVING:
                    await self._leave(machine)
                case Stage.ENDING:
                    await self._end(machine)
                case Stage.ENDED:
                    await self._clear(machine)
        await self._sweep()
        await self._fleet.forget_old(self._now())

    def node_of(self, machine: PoolMachine) -> Node | None:
        """Return the node on a machine; None if it is not in the cluster."""
        name = self._fleet.foreign_name(machine.record)
        return self._nodes.node(self._nodes.name(name)) if name else None

    # --- the stages ---

    async def _conclude(self, machine: PoolMachine) -> None:
        """Record the end of a machine that the pool lists as ended, or no longer lists, unless its agent is
        connected.
        """
        if not machine.live:
            return
        node, listed = self.node_of(machine), machine.listed
        if node is not None and node.up:
            return
        now = self._now()
        if listed is not None and listed.state is MachineState.ENDED:
            why = "the pool has ended the machine"
        elif machine.gone(self._interval_s, now):
            why = "the pool does not list the machine"
        else:
            return
        if machine.record.stage in (Stage.WANTED, Stage.BOOTING):
            self._back_off.fail(machine.record.shape, machine.record.zone, why, now)
        machine.finish(why, now)
        await self._fleet.save(machine)
        log.info("engine %s: %s has ended: %s", self._engine, machine.record.token, machine.record.why)

    async def _start(self, machine: PoolMachine, offers: dict[tuple[str, str], Offer]) -> None:
        record, now = machine.record, self._now()
        node = self.node_of(machine)
        if record.tried and node is not None and node.up:
            await self._change(machine, joined_at=now)
            self._back_off.succeed(record.shape, record.zone)
            return
        if record.tried and now - (record.asked_at or record.wanted_at) >= self._options.join_s:
            why = f"its agent has not connected within {self._options.join_s:g} s"
            self._back_off.fail(record.shape, record.zone, why, now)
            await self._change(machine, ending=why)
            return
        powered = not self._pool.stores_tokens
        unanswered = record.asked_at is None
        may_repeat = (
            not record.tried or powered or (self._pool.idempotent and machine.absences >= LOOKS_BEFORE_END)
        )
        if not unanswered or not may_repeat or now < machine.retry_at:
            return
        offer = offers.get((record.shape, record.zone))
        if offer is None and not record.tried:
            machine.finish("the pool no longer offers this machine", now)
            await self._fleet.save(machine)
        elif offer is not None:
            machine.retry_at = now + RETRY_S
            self._run(machine, self._order(machine, offer))

    async def _order(self, machine: PoolMachine, offer: Offer) -> None:
        record = machine.record
        if not record.tried:
            await self._change(machine, tried=True)
        self.ordered += 1
        order = MachineOrder(record.token, offer, record.secret)
        try:
            ref = await self._runner.answer(self._pool.create(order))
        except NoCapacity as refused:
            now = self._now()
            self._back_off.fail(record.shape, record.zone, str(refused), now)
            machine.finish(f"no capacity: {refused}", now)
            await self._fleet.save(machine)
            return
        machine.absences = 0
        if machine.record.asked_at is None:
            await self._change(machine, ref=ref, asked_at=self._now(), secret="")

    async def _watch(self, machine: PoolMachine) -> None:
        """Let a machine leave if the pool will interrupt it, if it was idle for too long, or if a cap is
        reached. End it if its agent is disconnected and no job is on it.
        """
        record, now, node = machine.record, self._now(), self.node_of(machine)
        if node is None:
            # An operator has removed the node, so no job can use the machine.
            machine.unused_since = machine.unused_since or now
            if now - machine.unused_since >= self._options.idle_s:
                await self._change(machine, ending="its node was removed")
            return
        by_admin = node.drained and not node.why.startswith(self._nodes.drain_prefix)
        listed = machine.listed
        if listed is not None and listed.notice_at is not None and not by_admin:
            why = "the pool will interrupt the machine"
            empty_by = max(now + 1.0, listed.notice_at - NOTICE_MARGIN_S)
            await self._nodes.drain_by(node.name, f"{self._nodes.drain_prefix}{why}", empty_by)
            await self._change(machine, leaving=why)
            return
        if node.held or node.claims or by_admin:
            machine.unused_since = None
        elif machine.unused_since is None:
            machine.unused_since = now
        if by_admin:
            return
        cap = self._budget.exceeded(record.project, now)
        unused_s = 0.0 if machine.unused_since is None else now - machine.unused_since
        if cap:
            await self._change(machine, leaving=cap)
        elif node.up and unused_s >= self._options.idle_s:
            await self._change(machine, leaving=f"the machine was idle for {self._options.idle_s:g} s")
        elif not node.up and unused_s >= max(self._options.idle_s, self._options.join_s):
            await self._change(machine, ending="its agent is disconnected, and no job is on it")

    async def _leave(self, machine: PoolMachine) -> None:
        """End a machine when its node is drained and empty. The machine stays if an administrator has drained
        its node, or if it was to leave because it was idle and a job has started there before the drain.
        """
        node = self.node_of(machine)
        if node is None:
            await self._change(machine, ending=machine.record.leaving)
        elif node.drained and not node.why.startswith(self._nodes.drain_prefix):
            machine.unused_since = None
            await self._change(machine, leaving="")
        elif node.held or node.claims:
            if machine.record.leaving.startswith("the machine was idle"):
                machine.unused_since = None
                await self._change(machine, leaving="")
        elif node.drained or not node.up:
            await self._change(machine, ending=machine.record.leaving)

    async def _end(self, machine: PoolMachine) -> None:
        """Remove the node of a machine, and then ask the pool to end the machine."""
        node, now = self.node_of(machine), self._now()
        if node is not None and not await self._nodes.remove(node.name):
            return
        if machine.record.tried and machine.record.ref and now >= machine.retry_at:
            machine.retry_at = now + max(RETRY_S, self._interval_s)
            self._run(machine, self._runner.answer(self._pool.end(machine.record.ref)))

    async def _clear(self, machine: PoolMachine) -> None:
        """Record the jobs of a machine that has ended as lost, and remove its node."""
        if machine.record.cleared:
            return
        node = self.node_of(machine)
        shared = any(
            self._fleet.foreign_name(each.record) == self._fleet.foreign_name(machine.record)
            for each in self._fleet.live
        )
        if node is not None and not shared:
            if node.up:
                return
            if node.held:
                await self._nodes.declare_lost(node.name)
            if not await self._nodes.remove(node.name):
                return
        await self._change(machine, cleared=True)

    async def _sweep(self) -> None:
        """End the machines that no record needs, or adopt them (step 7)."""
        for found in self._fleet.surplus:
            self._end_unknown(found.ref, f"{found.token} has another machine or has ended")
        for each in list(self._fleet.unknown.values()):
            found = each.machine
            if not found.token.startswith(self._fleet.prefix):
                continue
            name = self._nodes.name(found.token.removeprefix(self._fleet.prefix))
            node = self._nodes.node(name)
            if node is not None and each.looks >= LOOKS_BEFORE_END:
                labels = node.effective_labels
                price = float(labels.get(COST_LABEL, "0") or 0)
                await self._fleet.adopt(found, dict(node.labels), price, self._now())
            elif each.looks >= LOOKS_BEFORE_END and self._now() - each.since >= UNKNOWN_S:
                self._end_unknown(found.ref, "no record names it")

    def _end_unknown(self, ref: str, why: str) -> None:
        async def end() -> None:
            log.warning("engine %s: ending machine %s, because %s", self._engine, ref, why)
            await self._runner.answer(self._pool.end(ref))
            self.ended_unknown += 1

        self._runner.run(f"machine {ref}", end())

    # --- records and requests ---

    async def _change(self, machine: PoolMachine, **facts: Any) -> None:
        """Change the record of a machine, and write it durably."""
        machine.record = replace(machine.record, **facts)
        await self._fleet.save(machine)

    def _run(self, machine: PoolMachine, work: Coroutine[Any, Any, None]) -> None:
        def failed(why: str) -> None:
            machine.problem = why
            log.warning("engine %s: %s: %s", self._engine, machine.record.token, why)

        self._runner.run(machine.record.token, work, failed)
