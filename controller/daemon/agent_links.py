"""The connections to the agents, and the reports of agents that the controller keeps in memory but not in the
journal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from controller.core.fairshare.offqueue_usage import offqueue_inputs
from controller.core.lifecycle.failure_classes import classified
from controller.core.lifecycle.node_loss import is_overdue
from controller.core.model.decision.effects import SendToNode
from controller.core.model.inputs import agent_inputs
from controller.core.model.inputs.input import Input
from controller.core.model.job import Job
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.state import State
from controller.daemon.shared_store import StrayAttempts
from controller.nodes.duplicate_gpus import GpuOwners
from controller.nodes.link import LinkLost, NodeLink
from controller.nodes.step_relay import StepRelay
from controller.watchers.gpu_readings import GpuHealthWatch
from controller.watchers.idle_gpus import IdleGpuWatch
from controller.watchers.running_steps import RunningSteps
from controller.watchers.running_usage import RunningUsage
from wire.agent.frames import AgentFrame
from wire.agent.reports import (
    GpuChecked,
    GpuProcess,
    GpuProcesses,
    GpuReport,
    GpuReset,
    GpuSample,
    GpuTrouble,
    HealthReport,
    Hello,
    Report,
)
from wire.agent.steps import StepsReport

SILENCE_CHECK_S = 1.0


class AgentLinks:
    """The connections to the agents, and the reports of agents that the controller keeps in memory but not in
    the journal.

    1. `open` connects to an agent. Every frame (message) from the agent is passed to `on_frame`.
    2. A hello (the first message of an agent), a report of an attempt, a GPU problem and a lost connection
       become inputs for the engine.
    3. The latest GPU measurements, GPU processes and resource usage of running attempts are kept here for
       each node. If the measurements show an idle GPU or a GPU problem, the engine gets an input.
    4. A node is silent from the time its connection is lost until the next hello of its agent. While a node
       is silent, a timer checks every second whether the node has been silent for long enough to be marked
       down, or for its jobs to count as lost (`NodeSilent`).

    The time for which a node is silent is measured with the monotonic clock. After a restart of the
    controller, this time counts from the restart, because the time of an agent's last report is not stored.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        state: Callable[[], State],
        now: Callable[[], float],
        tell: Callable[[Input], None],
        publish: Callable[[str], None],
        lost_entry: Callable[[str], str] = lambda _remembered: "",
        strays: StrayAttempts | None = None,
    ) -> None:
        self.links: dict[str, NodeLink] = {}
        self.readings: dict[str, dict[str, GpuSample]] = {}
        """The latest measurements of each GPU, by node name and GPU UUID."""
        self.processes: dict[str, tuple[GpuProcess, ...]] = {}
        self.idle_gpus = IdleGpuWatch(pipeline.idling, self._running_jobs, tell)
        self.gpu_health = GpuHealthWatch(pipeline.health_policy, self._gpus_of_jobs, tell)
        self.running_usage = RunningUsage()
        self.running_steps = RunningSteps(lambda job: state().jobs.get(job))
        self.step_relay = StepRelay(lambda job: state().jobs.get(job), self.links)
        self._pipeline = pipeline
        self._state = state
        self._now = now
        self._tell = tell
        self._publish = publish
        self._lost_entry = lost_entry
        self._strays = strays or StrayAttempts(state)
        self._silent_since: dict[str, float] = {}
        self._silence_timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._gpu_owners = GpuOwners(
            {node.name: [gpu.uuid for gpu in node.facts.gpus] for node in state().nodes}
        )

    def start(self) -> None:
        """Start to watch for idle GPUs, GPU problems and silent nodes (nodes without a connection).

        Every node counts as silent until its agent has sent a hello.
        """
        for node in self._state().nodes:
            self._begin_silence(node.name)
        self.idle_gpus.open(self._now)
        self.gpu_health.open(self._now)

    def reconfigure(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.idle_gpus.reconfigure(pipeline.idling, self._now)
        self.gpu_health.reconfigure(pipeline.health_policy)

    def stop(self) -> None:
        """Stop watching for idle GPUs, GPU problems and silent nodes. The connections stay open until
        close()."""
        self._stopping = True
        if self._silence_timer is not None:
            self._silence_timer.cancel()
        self.idle_gpus.close()
        self.gpu_health.close()

    async def close(self) -> None:
        """Close all connections. The jobs on the nodes continue."""
        await asyncio.gather(*(link.close() for link in self.links.values()))

    def open(self, link: NodeLink) -> None:
        """Connect to the agent of a node. The link connects again whenever the connection is lost."""
        self.links[link.name] = link
        link.open(self.on_frame)

    async def close_link(self, name: str) -> None:
        """Close the connection to a node that is removed or gets another connection. Delete the reports of
        the node's agent from memory."""
        if name in self.links:
            self._begin_silence(name)
        link = self.links.pop(name, None)
        self.readings.pop(name, None)
        self.processes.pop(name, None)
        self.running_usage.forget(name)
        if link is not None:
            await link.close()

    async def remove_node(self, name: str) -> None:
        """Close the connection to the agent of a removed node, and delete all data about the node from
        memory."""
        await self.close_link(name)
        self._silent_since.pop(name, None)
        self._gpu_owners.release(name)

    def send(self, order: SendToNode) -> None:
        """Send an order, such as to start an attempt, to the agent of its node.

        If the agent is not connected, the order is dropped. The engine makes the order again when the agent
        has connected and sent its hello.
        """
        link = self.links.get(order.node)
        if link is not None:
            link.send(order.frame)

    async def reconnect_all(self, later: str = "", later_s: float = 0.0, why: str = "") -> None:
        """Close and reopen the connections to all agents, so that each agent sends a hello and all its
        reports again.

        If `later` names a node, connect this node only after `later_s` seconds, and record `why` as the
        reason of its disconnection.
        """
        for link in self.links.values():
            await link.close()
            if link.name != later:
                link.open(self.on_frame)
        if later in self.links:
            self._begin_silence(later)
            self._tell(agent_inputs.LinkWentDown(later, why))
            asyncio.get_running_loop().call_later(later_s, self._reopen, self.links[later])

    async def disconnect_all(self) -> None:
        """Close the connections to all agents. reconnect_all() opens them again."""
        await asyncio.gather(*(link.close() for link in self.links.values()))

    def _reopen(self, link: NodeLink) -> None:
        # Open the link only if the node was not removed and got no other link while the timer ran.
        if self.links.get(link.name) is link and not self._stopping:
            link.open(self.on_frame)

    def on_frame(self, node: str, frame: AgentFrame | LinkLost) -> str:
        """Handle a frame (message) from an agent. Return the reason if the agent must be disconnected, "" if
        it may stay connected.
        """
        match frame:
            case Report(status):
                self._strays.ended(node, status)
                self._tell(agent_inputs.AgentReported(node, classified(status, self._pipeline.failures)))
            case Hello():
                problem = self._lost_entry(frame.journal) if frame.journal else ""
                problem = problem or self._gpu_owners.claim(node, [gpu.uuid for gpu in frame.facts.gpus])
                if problem:
                    return problem
                self._silent_since.pop(node, None)
                self.idle_gpus.forget(node)
                self.gpu_health.forget(node)
                self._strays.saw(node, frame.attempts)
                attempts = tuple(classified(each, self._pipeline.failures) for each in frame.attempts)
                self._tell(agent_inputs.AgentSaidHello(node, replace(frame, attempts=attempts)))
            case LinkLost(why):
                self._begin_silence(node)
                self.idle_gpus.forget(node)
                self.step_relay.forget(node)
                self._tell(agent_inputs.LinkWentDown(node, why))
            case GpuTrouble(uuid, kind, why, xid):
                self._tell(agent_inputs.GpuTroubled(node, uuid, kind, why, xid))
            case GpuChecked(uuid, ok, why, occupied):
                # Count the check as failed if the measurements still show the problem for which the GPU was
                # cordoned, even if the agent finds the GPU good.
                lasting = self.gpu_health.lasting(node, uuid, self._now()) if ok else ""
                self._tell(
                    agent_inputs.GpuChecked(
                        node, uuid, ok and not lasting, why or lasting, occupied or bool(lasting)
                    )
                )
            case GpuReset(uuid, ok, why):
                self._tell(agent_inputs.GpuWasReset(node, uuid, ok, why))
            case HealthReport(job, attempt, healthy, why):
                self._tell(agent_inputs.HealthReported(job, attempt, healthy, why, node))
            case GpuReport(samples, uses):
                self.running_usage.report(node, uses)
                if samples:
                    latest = self.readings.setdefault(node, {})
                    latest.update((sample.uuid, sample) for sample in samples)
                    self.idle_gpus.read(node, samples, self._now())
                    self.gpu_health.read(node, samples, self._now())
                    self._publish(node)
            case GpuProcesses(processes):
                self.processes[node] = processes
                self.gpu_health.processes(node, processes, self._now())
                for given in offqueue_inputs(node, processes, self._state().offqueue):
                    self._tell(given)
                self._publish(node)
            case StepsReport():
                self.running_steps.report(node, frame)
            case _:
                self.step_relay.take(node, frame)
        return ""

    def _begin_silence(self, node: str) -> None:
        self._silent_since.setdefault(node, time.monotonic())
        if self._silence_timer is None and not self._stopping:
            self._check_silence()

    def _check_silence(self) -> None:
        now, state = time.monotonic(), self._state()
        for name, since in self._silent_since.items():
            node = state.nodes.get(name)
            if node is not None and is_overdue(state, node, self._pipeline.losses, now - since):
                self._tell(agent_inputs.NodeSilent(name, now - since))
        loop = asyncio.get_running_loop()
        again = loop.call_later(SILENCE_CHECK_S, self._check_silence) if self._silent_since else None
        self._silence_timer = again

    def _gpus_of_jobs(self, name: str) -> set[str]:
        node = self._state().nodes.get(name)
        held = node.held.values() if node is not None else ()
        return {gpu.uuid for allocation in held for gpu in allocation.gpus}

    def _running_jobs(self) -> Iterable[Job]:
        state = self._state()
        return [state.jobs[job] for _, job in state.releases]
