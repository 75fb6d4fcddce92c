"""Changes the recorded health of GPUs after reports of agents and commands of operators."""

from __future__ import annotations

from collections.abc import Callable

from controller.core.cluster.gpus import gpu_health
from controller.core.cluster.gpus.gpu_health import GpuCondition, GpuHealthPolicy, HealthAction
from controller.core.cluster.node import Node
from controller.core.model.allocation import Allocation
from controller.core.model.decision.decision import DONE, Refusal, Reply
from controller.core.model.decision.effects import Effect, SendToNode
from controller.core.model.events.attempts import GpuFaultNoted
from controller.core.model.events.event import Event
from controller.core.model.events.nodes import GpuHealthRecorded
from controller.core.model.inputs import agent_inputs, node_inputs
from controller.core.state.state import State
from wire.agent.orders import CheckGpu, ResetGpu
from wire.agent.reports import GpuFacts
from wire.names import GpuHealth, TroubleKind
from wire.text import counted

_RECORDED_FOR_JOBS = (TroubleKind.XID, TroubleKind.LOST, TroubleKind.ECC_UNCORRECTED)
"""The GPU faults that can make a job on the GPU fail. These faults are recorded for the jobs on the GPU."""

_LIMITED = frozenset((TroubleKind.XID, *gpu_health.READING_ACTIONS))
"""The kinds of GPU faults to which the limit `most_out` applies: while too many GPUs of a model are out of
service, such a fault takes no further GPU out of service.
"""


class GpuHealthHandler:
    """Handles reports and commands about the health of GPUs.

    1. An agent reports a fault (`on_fault`). The policy decides if the GPU goes out of service. The GPU stays
       in service if too many GPUs of its model are out of service (`GpuHealthPolicy.most_out`). A fault that
       can make jobs fail is stored with the jobs on the GPU. If such a job fails, the fault is shown as the
       reason.
    2. Some seconds after a GPU went out of service, the agent is ordered to check the GPU. After enough
       passed checks (`on_check`) the GPU is in service again. After a failed check the GPU stays out of
       service.
    3. A GPU that needs a reset is reset (`on_reset`) when no job holds any part of the GPU, because a reset
       would end all jobs on it.
    4. Operators can take GPUs out of service and bring them back (`cordon`, `resume`).

    Invariant: for a GPU out of service that needs no reset, reboot or resume, the agent has exactly one
    pending order to check the GPU. The order is sent again when the agent connects, because the agent may
    have lost the order. The rules for changes of health are in cluster/gpus/gpu_health.py.
    """

    def __init__(
        self,
        state: State,
        health_policy: GpuHealthPolicy,
        record: Callable[[Event], None],
        order: Callable[[Effect], None],
    ) -> None:
        self._state = state
        self._policy = health_policy
        self._record = record
        self._order = order

    # --- reports of agents ---

    def on_fault(self, given: agent_inputs.GpuTroubled, now: float) -> Reply:
        """Handle a fault of a GPU that an agent reports. Take the GPU out of service if the policy requires
        this. Store a fault that can make jobs fail with the jobs on the GPU.
        """
        node, gpu = self._find(given.node, given.uuid)
        if node is None or gpu is None:
            return DONE
        if given.kind is TroubleKind.XID and given.xid is not None:
            action, means = self._policy.action(given.xid)
            why = f"Xid {given.xid}: {means}"
        else:
            action, why = self._policy.rule(given.kind), given.why
        own = action is HealthAction.BLAME
        if own or (action is not HealthAction.IGNORE and given.kind in _RECORDED_FOR_JOBS):
            self._note_fault_for_jobs(node, gpu, why, own, now)
        if own or action is HealthAction.IGNORE:
            return DONE
        old = node.condition(gpu)
        if given.kind is TroubleKind.LOST:
            new = gpu_health.after_driver_loss(old, why, now, self._policy)
        elif given.kind is TroubleKind.UNCLEAN:
            new = gpu_health.occupy(old, why, now, self._policy)
        else:
            new = gpu_health.after_fault(old, action, why, now, self._policy)
            # The limit `most_out` does not apply to GPUs that certainly cannot run jobs: lost GPUs, and GPUs
            # whose driver does not answer.
            limited = given.kind in _LIMITED and old.ok and new.health is not GpuHealth.LOST
            if limited and (limit := self._limit_reached(gpu)):
                new = gpu_health.left_in_service(old, f"{why}; it stays in service, because {limit}", now)
        self._change(node, gpu, old, new, now)
        return DONE

    def on_check(self, given: agent_inputs.GpuChecked, now: float) -> Reply:
        """Handle the result of an ordered check of a GPU that is out of service."""
        node, gpu = self._find(given.node, given.uuid)
        if node is not None and gpu is not None:
            old = node.condition(gpu)
            if given.lasts and not given.ok:
                new = gpu_health.still_waits(old, given.why, now, self._policy)
            else:
                new = gpu_health.after_check(old, given.ok, given.why, now, self._policy)
            self._change(node, gpu, old, new, now)
        return DONE

    def on_offqueue_end(self, name: str, uuid: str, now: float) -> None:
        """If the GPU waits for a check, order the check now, because the last off-queue process (a process of
        no job) on the GPU has ended.
        """
        node, gpu = self._find(name, uuid)
        if node is not None and gpu is not None:
            old = node.condition(gpu)
            self._change(node, gpu, old, gpu_health.check_now(old, now), now)

    def on_reset(self, given: agent_inputs.GpuWasReset, now: float) -> Reply:
        """Handle the result of a reset that was ordered. After a successful reset, the GPU must still pass
        checks before it takes jobs.
        """
        node, gpu = self._find(given.node, given.uuid)
        if node is not None and gpu is not None:
            old = node.condition(gpu)
            if given.ok and old.needs == "reset":
                self._change(node, gpu, old, gpu_health.probing(old, now), now)
            elif not given.ok:
                self._change(
                    node, gpu, old, gpu_health.after_failed_reset(old, given.why, now, self._policy), now
                )
        return DONE

    def on_gpus_freed(self, node: Node, allocation: Allocation, now: float) -> None:
        """Order the resets that had to wait until a job released the GPUs of `allocation`, because a GPU
        cannot be reset while a job holds it.
        """
        held = {hold.uuid for hold in allocation.gpus}
        for gpu in node.facts.gpus if held & node.health.keys() else ():
            if gpu.uuid in held:
                self._order_reset(node, gpu, node.condition(gpu), now)

    def on_report(self, given: agent_inputs.GpuReported, now: float) -> Reply:
        """Set the health of a GPU to the health in a replayed journal. Do nothing if the GPU already has this
        health.
        """
        node, gpu = self._find(given.node, given.uuid)
        if node is not None and gpu is not None:
            old = node.condition(gpu)
            parts = given.health, given.why, given.needs, given.falls, given.good
            if parts != (old.health, old.why, old.needs, old.falls, old.good):
                self._change(node, gpu, old, GpuCondition(*parts, now, given.due), now, given.by)
        return DONE

    def on_agent_hello(self, node: Node, before: dict[str, GpuFacts], rebooted: bool, now: float) -> None:
        """Update the GPUs of a node from the report that its agent sends when it connects. Compare the
        reported GPUs with the recorded GPUs, and send check and reset orders again.

        If the host was rebooted, no GPU needs a reset or a reboot any more.
        """
        there = {gpu.uuid for gpu in node.facts.gpus}
        for uuid, gone in before.items():
            if uuid not in there:
                why = "the host does not have it any more"
                self._note_fault_for_jobs(node, gone, why, False, now)
                old = node.condition(gone)
                self._change(node, gone, old, gpu_health.after_driver_loss(old, why, now, self._policy), now)
        for gpu in node.facts.gpus:
            old = node.condition(gpu)
            if rebooted and old.needs in ("reset", "reboot"):
                self._change(node, gpu, old, gpu_health.probing(old, now), now)
            else:
                self._order_check(node, gpu, old, now)
                self._order_reset(node, gpu, old, now)

    # --- commands of operators ---

    def cordon(self, given: node_inputs.CordonGpu, now: float) -> Reply:
        node, gpu, refusal = self._named(given.node, given.gpu)
        if node is None or gpu is None:
            return refusal
        why = given.why or f"cordoned by {given.by}"
        old = node.condition(gpu)
        self._change(node, gpu, old, gpu_health.cordoned(old, why, now), now, given.by)
        return DONE

    def resume(self, given: node_inputs.ResumeGpu, now: float) -> Reply:
        """Return a GPU to service for an operator. The GPU must first pass one more check."""
        node, gpu, refusal = self._named(given.node, given.gpu)
        if node is None or gpu is None:
            return refusal
        old = node.condition(gpu)
        if old.ok:
            return Refusal("conflict", f"GPU {given.gpu} of node {given.node} is in service already", "gpu")
        new = gpu_health.probing(old, now)
        self._change(node, gpu, old, gpu_health.resumed_by_operator(new, self._policy), now, given.by)
        return DONE

    # --- helpers for reports and commands ---

    def _limit_reached(self, gpu: GpuFacts) -> str:
        """Return the reason why no further GPU of the model of `gpu` is taken out of service: too many are
        out of service already. Return an empty text if there is no such reason. GPUs that an operator has
        cordoned do not count as out of service.

        A rule that is too strict, or an error in a driver, reports many GPUs as faulty at the same time.
        Without the limit, no GPU would be left for jobs.
        """
        if self._policy.most_out >= 1:
            return ""
        alike = [
            node.condition(each)
            for node in self._state.nodes
            for each in node.facts.gpus
            if each.model == gpu.model
        ]
        out = sum(not each.ok and each.needs != "resume" for each in alike)
        if out < max(1, int(self._policy.most_out * len(alike))):
            return ""
        return f"{out} of {counted(len(alike), 'GPU')} of this model are out of service ([gpus] most_out)"

    def _find(self, name: str, uuid: str) -> tuple[Node | None, GpuFacts | None]:
        node = self._state.nodes.get(name)
        found = None if node is None else next((gpu for gpu in node.facts.gpus if gpu.uuid == uuid), None)
        return node, found

    def _named(self, name: str, index: int) -> tuple[Node | None, GpuFacts | None, Refusal]:
        node = self._state.nodes.get(name)
        if node is None:
            message = f"there is no node {name!r}"
            return None, None, Refusal("not_found", message, "node", "'corral nodes' lists all nodes.")
        found = next((gpu for gpu in node.facts.gpus if gpu.index == index), None)
        message = f"node {name} has no GPU {index}"
        return node, found, Refusal("not_found", message, "gpu", f"'corral gpus {name}' lists its GPUs.")

    def _change(
        self, node: Node, gpu: GpuFacts, old: GpuCondition, new: GpuCondition, now: float, by: str = ""
    ) -> None:
        if new != old:
            self._record(
                GpuHealthRecorded(
                    node.name,
                    now,
                    gpu.uuid,
                    new.health,
                    new.why,
                    new.needs,
                    new.falls,
                    new.good,
                    new.due,
                    by,
                )
            )
            self._order_check(node, gpu, new, now)
            self._order_reset(node, gpu, new, now)

    def _order_check(self, node: Node, gpu: GpuFacts, seen: GpuCondition, now: float) -> None:
        there = any(each.uuid == gpu.uuid for each in node.facts.gpus)
        if there and not (seen.ok or seen.needs):
            self._order(SendToNode(node.name, CheckGpu(gpu.uuid, max(0.0, seen.due - now))))

    def _order_reset(self, node: Node, gpu: GpuFacts, seen: GpuCondition, now: float) -> None:
        """Order a reset of the GPU if it needs a reset and a reset command is configured. Order no reset
        while a job holds a part of the GPU, because the reset would end the job. Order no reset of a GPU in
        MIG mode.
        """
        if seen.needs != "reset" or not self._policy.reset or gpu.mig:
            return
        there = any(each.uuid == gpu.uuid for each in node.facts.gpus)
        held = any(hold.uuid == gpu.uuid for each in node.held.values() for hold in each.gpus)
        if there and not held:
            wait = max(0.0, seen.due - now)
            self._order(SendToNode(node.name, ResetGpu(gpu.uuid, self._policy.reset, wait)))

    def _note_fault_for_jobs(self, node: Node, gpu: GpuFacts, why: str, own: bool, now: float) -> None:
        """Record the fault for each job that holds a part of the GPU. If the job then fails, the fault is
        shown as the reason.

        `own` is True if the job caused the fault itself.
        """
        fault = f"GPU {gpu.number} of {node.name}: {why}"
        for job, allocation in node.held.items():
            if any(hold.uuid == gpu.uuid for hold in allocation.gpus):
                attempt = self._state.jobs[job].attempt
                self._record(GpuFaultNoted(job, now, attempt, node.name, fault, own))


def out_of_service_text(condition: GpuCondition) -> str:
    """Return a sentence that says why the GPU is out of service and what has to happen next."""
    waits = {
        "reset": "needs a reset when no job is on it; if reset by hand, run 'corral nodes resume NODE:GPU'",
        "reboot": "needs a reboot",
        "resume": "until it is resumed",
    }.get(condition.needs, "")
    parts = [condition.why, waits]
    if condition.health is GpuHealth.PROBING:
        parts[1] = f"probing: {counted(condition.good, 'check')} passed"
    return "; ".join(part for part in parts if part)
