"""Looks after GPUs: what agents tell of them becomes their health, and a reason for the jobs on them."""

from __future__ import annotations

from collections.abc import Callable

from controller.core import events, health, inputs
from controller.core.effects import Effect, SendToNode
from controller.core.events import Allocation, Event
from controller.core.health import Action, Care, Condition
from controller.core.inputs import DONE, Refusal, Reply
from controller.core.nodes import Node
from controller.core.state import State
from wire.frames import CheckGpu, GpuFacts, ResetGpu
from wire.words import GpuHealth, TroubleKind


class Doctor:
    """Decides on troubles, looks and orders of operators; the agents keep the time between looks."""

    def __init__(
        self, state: State, care: Care, record: Callable[[Event], None], order: Callable[[Effect], None]
    ) -> None:
        self._state = state
        self._care = care
        self._record = record
        self._order = order

    # --- what agents tell ---

    def troubled(self, given: inputs.GpuTroubled, now: float) -> Reply:
        """Something is wrong with a GPU."""
        node, gpu = self._find(given.node, given.uuid)
        if node is None or gpu is None:
            return DONE
        if given.kind is TroubleKind.XID and given.xid is not None:
            action, means = self._care.action(given.xid)
            why = f"Xid {given.xid}: {means}"
        else:
            action, why = Action.SUSPECT, given.why
        own = action is Action.BLAME
        if own or (action is not Action.IGNORE and given.kind in (TroubleKind.XID, TroubleKind.LOST)):
            self._tell_jobs(node, gpu, why, own, now)
        if own or action is Action.IGNORE:
            return DONE
        old = node.condition(gpu)
        if given.kind is TroubleKind.LOST:
            new = health.lose(old, why, now, self._care)
        else:
            new = health.fall(old, action, why, now, self._care)
        self._change(node, gpu, old, new, now)
        return DONE

    def looked(self, given: inputs.GpuLooked, now: float) -> Reply:
        """The look at a sick GPU that was ordered."""
        node, gpu = self._find(given.node, given.uuid)
        if node is not None and gpu is not None:
            old = node.condition(gpu)
            self._change(node, gpu, old, health.look(old, given.ok, given.why, now, self._care), now)
        return DONE

    def was_reset(self, given: inputs.GpuWasReset, now: float) -> Reply:
        """The reset that was ordered: looks are what it has to pass now."""
        node, gpu = self._find(given.node, given.uuid)
        if node is not None and gpu is not None:
            old = node.condition(gpu)
            if given.ok and old.needs == "reset":
                self._change(node, gpu, old, health.restore(old, now), now)
            elif not given.ok:
                self._change(node, gpu, old, health.unreset(old, given.why, now, self._care), now)
        return DONE

    def freed(self, node: Node, allocation: Allocation, now: float) -> None:
        """A job has left GPUs: one of them may have waited to be reset."""
        held = {hold.uuid for hold in allocation.gpus}
        for gpu in node.facts.gpus if held & node.health.keys() else ():
            if gpu.uuid in held:
                self._reset_later(node, gpu, node.condition(gpu), now)

    def reported(self, given: inputs.GpuReported, now: float) -> Reply:
        """Somebody else's judgement stands as it is; what is known already is no news."""
        node, gpu = self._find(given.node, given.uuid)
        if node is not None and gpu is not None:
            old = node.condition(gpu)
            parts = given.health, given.why, given.needs, given.falls, given.good
            if parts != (old.health, old.why, old.needs, old.falls, old.good):
                self._change(node, gpu, old, Condition(*parts, now, given.due), now, given.by)
        return DONE

    def joined(self, node: Node, before: dict[str, GpuFacts], rebooted: bool, now: float) -> None:
        """An agent said hello: orders to look may have been lost, and a boot is what some GPUs waited for."""
        there = {gpu.uuid for gpu in node.facts.gpus}
        for uuid, gone in before.items():
            if uuid not in there:
                why = "the host does not have it any more"
                self._tell_jobs(node, gone, why, False, now)
                old = node.condition(gone)
                self._change(node, gone, old, health.lose(old, why, now, self._care), now)
        for gpu in node.facts.gpus:
            old = node.condition(gpu)
            if rebooted and old.needs in ("reset", "reboot"):
                self._change(node, gpu, old, health.restore(old, now), now)
            else:
                self._look_later(node, gpu, old, now)
                self._reset_later(node, gpu, old, now)

    # --- what operators ask ---

    def cordon(self, given: inputs.CordonGpu, now: float) -> Reply:
        """Take one GPU out of the pool."""
        node, gpu, refusal = self._named(given.node, given.gpu)
        if node is None or gpu is None:
            return refusal
        why = given.why or f"cordoned by {given.by}"
        old = node.condition(gpu)
        self._change(node, gpu, old, health.cordon(old, why, now), now, given.by)
        return DONE

    def resume(self, given: inputs.ResumeGpu, now: float) -> Reply:
        """Vouch for a GPU: it is looked at once more, and then takes work."""
        node, gpu, refusal = self._named(given.node, given.gpu)
        if node is None or gpu is None:
            return refusal
        old = node.condition(gpu)
        if old.well:
            return Refusal("conflict", f"GPU {given.gpu} of node {given.node} takes work already", "gpu")
        new = health.restore(old, now)
        self._change(node, gpu, old, health.vouched(new, self._care), now, given.by)
        return DONE

    # --- both ---

    def _find(self, name: str, uuid: str) -> tuple[Node | None, GpuFacts | None]:
        node = self._state.nodes.get(name)
        found = None if node is None else next((gpu for gpu in node.facts.gpus if gpu.uuid == uuid), None)
        return node, found

    def _named(self, name: str, index: int) -> tuple[Node | None, GpuFacts | None, Refusal]:
        node = self._state.nodes.get(name)
        if node is None:
            message = f"there is no node {name!r}"
            return None, None, Refusal("not_found", message, "node", "'corral nodes' shows what there is.")
        found = next((gpu for gpu in node.facts.gpus if gpu.index == index), None)
        message = f"node {name} has no GPU {index}"
        return node, found, Refusal("not_found", message, "gpu", f"'corral gpus {name}' shows what there is.")

    def _change(
        self, node: Node, gpu: GpuFacts, old: Condition, new: Condition, now: float, by: str = ""
    ) -> None:
        if new != old:
            self._record(
                events.GpuHealthRecorded(
                    node.name, now, gpu.uuid, new.health, new.why, new.needs, new.falls, new.good, new.due, by
                )
            )
            self._look_later(node, gpu, new, now)
            self._reset_later(node, gpu, new, now)

    def _look_later(self, node: Node, gpu: GpuFacts, seen: Condition, now: float) -> None:
        there = any(each.uuid == gpu.uuid for each in node.facts.gpus)
        if there and not (seen.well or seen.needs):
            self._order(SendToNode(node.name, CheckGpu(gpu.uuid, max(0.0, seen.due - now))))

    def _reset_later(self, node: Node, gpu: GpuFacts, seen: Condition, now: float) -> None:
        """Not while somebody is on it: what shares it would be lost."""
        if seen.needs != "reset" or not self._care.reset or gpu.mig:
            return
        there = any(each.uuid == gpu.uuid for each in node.facts.gpus)
        held = any(hold.uuid == gpu.uuid for each in node.held.values() for hold in each.gpus)
        if there and not held:
            wait = max(0.0, seen.due - now)
            self._order(SendToNode(node.name, ResetGpu(gpu.uuid, self._care.reset, wait)))

    def _tell_jobs(self, node: Node, gpu: GpuFacts, why: str, own: bool, now: float) -> None:
        """Whoever fails on this GPU from here on knows why."""
        fault = f"GPU {gpu.index} of {node.name}: {why}"
        for job, allocation in node.held.items():
            if any(hold.uuid == gpu.uuid for hold in allocation.gpus):
                attempt = self._state.jobs[job].attempt
                self._record(events.GpuFaultNoted(job, now, attempt, node.name, fault, own))


def sick(condition: Condition) -> str:
    """Why it takes no work, and what it waits for, for people."""
    waits = {
        "reset": "needs a reset when nobody is on it; after one by hand 'corral nodes resume NODE:GPU'",
        "reboot": "needs a reboot",
        "resume": "until it is resumed",
    }.get(condition.needs, "")
    parts = [condition.why, waits]
    if condition.health is GpuHealth.PROBING:
        parts[1] = f"getting well, {condition.good} looks passed"
    return "; ".join(part for part in parts if part)
