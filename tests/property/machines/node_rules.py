"""The steps of the state machines about nodes, links and GPUs, and the attempts that the hosts really run."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.core.model.decision.decision import Accepted, Decision
from controller.core.model.inputs import agent_inputs, node_inputs
from controller.core.model.inputs.input import Input
from controller.core.pipeline.pipeline import Pipeline
from tests.engine_harness import EngineHarness
from wire.agent.orders import CheckGpu, Go, Note, ResetGpu, Settle, Start, Stop
from wire.agent.reports import AttemptStatus
from wire.cluster.hosts import HostSpec
from wire.names import TroubleKind

NODES = ("a", "b", "c")


class Agents:
    """The attempts that hosts really run; the controller's state may differ."""

    def __init__(self) -> None:
        self.alive: dict[tuple[str, int, int], AttemptStatus] = {}
        self.up: set[str] = set()

    def obey(self, harness: EngineHarness) -> None:
        """Carry out the orders sent so far. Orders to disconnected nodes are lost."""
        for sent in harness.sent:
            frame = sent.frame
            if sent.node not in self.up or isinstance(frame, CheckGpu | ResetGpu | Note):
                continue
            key = (sent.node, frame.job, frame.attempt)
            if isinstance(frame, Start):
                self.alive.setdefault(key, AttemptStatus(frame.job, frame.attempt))
            elif isinstance(frame, Go):
                continue  # the test starts it
            elif isinstance(frame, Stop):
                old = self.alive.get(key)
                if old is None or old.ended_at is None:
                    self.alive[key] = AttemptStatus(
                        frame.job, frame.attempt, ended_at=harness.now, signal=15, why=frame.why
                    )
            elif isinstance(frame, Settle):
                self.alive.pop(key, None)
        harness.sent.clear()


class NodeRules(RuleBasedStateMachine):
    """A cluster of three nodes: links, leases, reboots, drains, taints and GPU faults."""

    pipeline: Pipeline
    harness_type = EngineHarness

    def __init__(self) -> None:
        super().__init__()
        self.harness = self.harness_type(self.pipeline)
        self.agents = Agents()
        self.seen = 0
        self.given: list[tuple[Input, float]] = []
        tell = self.harness.tell

        def remember(given: Input) -> Decision:
            self.given.append((given, self.harness.now))
            return tell(given)

        self.harness.tell = remember  # type: ignore[method-assign]

    @initialize()
    def join_all(self) -> None:
        for name in NODES:
            self.hello(name)

    @rule(name=st.sampled_from(NODES))
    def hello(self, name: str) -> None:
        """The link of a node comes up. The hello of its agent has all attempts of the host."""
        if self.harness.state.nodes.get(name) is None:
            self.harness.tell(node_inputs.AddNode(name, {}, HostSpec(f"{name}.cluster"), "root"))
        self.agents.up.add(name)
        told = tuple(status for (node, _, _), status in self.agents.alive.items() if node == name)
        self.harness.join(name, attempts=told)
        self.agents.obey(self.harness)

    @rule(name=st.sampled_from(NODES))
    def lose_link(self, name: str) -> None:
        self.agents.up.discard(name)
        self.harness.tell(agent_inputs.LinkWentDown(name, "cut"))

    @rule(name=st.sampled_from(NODES))
    def remove(self, name: str) -> None:
        """The node is removed if no job needs it; later reports of its agent are ignored."""
        before = self.harness.state.nodes.get(name)
        held = [job for job in self.harness.state.jobs.values() if job.running and name in job.members]
        decision = self.harness.tell(node_inputs.RemoveNode(name, "root"))
        assert isinstance(decision.reply, Accepted) == (before is not None and not held)
        if isinstance(decision.reply, Accepted):
            self.agents.up.discard(name)
            self.harness.join(name)
            assert self.harness.state.nodes.get(name) is None

    @precondition(lambda self: len(self.agents.up) < len(NODES))
    @rule(data=st.data())
    def lease_runs_out(self, data: st.DataObject) -> None:
        """A silent host ends its jobs with a lease. Then the silence is long enough for the controller to
        declare them lost.
        """
        name = data.draw(st.sampled_from(sorted({*NODES} - self.agents.up)))
        for key, status in self.agents.alive.items():
            leased = self.harness.job(status.job).spec.lease_s is not None
            if key[0] == name and status.ended_at is None and leased:
                self.agents.alive[key] = replace(
                    status, ended_at=self.harness.now, signal=15, why="node_lost: lease"
                )
        self.harness.tell(agent_inputs.NodeSilent(name, 1e6))

    @precondition(lambda self: len(self.agents.up) < len(NODES))
    @rule(data=st.data())
    def declare_lost(self, data: st.DataObject) -> None:
        """An operator has switched the host off and declares it lost."""
        name = data.draw(st.sampled_from(sorted({*NODES} - self.agents.up)))
        for key in [key for key in self.agents.alive if key[0] == name]:
            del self.agents.alive[key]
        self.harness.tell(node_inputs.DeclareLost(name, "root"))
        self.agents.obey(self.harness)

    @invariant()
    def no_job_runs_twice_at_once(self) -> None:
        """No job has two running processes, also on unreachable hosts."""
        attempts: dict[int, set[int]] = {}
        for (_, job, attempt), status in self.agents.alive.items():
            if status.started_at is not None and status.ended_at is None:
                attempts.setdefault(job, set()).add(attempt)
        assert all(len(each) == 1 for each in attempts.values())

    @rule(name=st.sampled_from(NODES))
    def reboot(self, name: str) -> None:
        """A host reboots: all its processes end."""
        for key in [key for key in self.agents.alive if key[0] == name]:
            del self.agents.alive[key]
        self.hello(name)

    @rule(name=st.sampled_from(NODES), drain=st.booleans(), within=st.sampled_from([None, 30.0, 3_600.0]))
    def drain(self, name: str, drain: bool, within: float | None) -> None:
        by = None if within is None else self.harness.now + within
        self.harness.tell(
            node_inputs.Drain(name, "root", "why", by) if drain else node_inputs.Resume(name, "root")
        )

    @rule(
        name=st.sampled_from(NODES),
        taint=st.sampled_from(["broken:NoExecute", "gpu:NoSchedule", "old:PreferNoSchedule"]),
        value=st.sampled_from(["", "x", None, None]),
        disk=st.sampled_from(["nvme", None]),
    )
    def mark(self, name: str, taint: str, value: str | None, disk: str | None) -> None:
        """An operator sets a label and a taint, or removes them. Jobs that do not tolerate NoExecute are
        ended.
        """
        self.harness.tell(node_inputs.MarkNode(name, "root", {"disk": disk}, {taint: value}))
        self.agents.obey(self.harness)

    @rule(
        name=st.sampled_from(NODES),
        index=st.integers(0, 7),
        kind=st.sampled_from(TroubleKind),
        xid=st.sampled_from([13, 43, 48, 79, 94, 119, 999]),
    )
    def gpu_falls_ill(self, name: str, index: int, kind: TroubleKind, xid: int) -> None:
        self.harness.tell(agent_inputs.GpuTroubled(name, f"GPU-{name}-{index}", kind, "told", xid))

    @rule(name=st.sampled_from(NODES), index=st.integers(0, 8), ok=st.booleans())
    def gpu_is_looked_at(self, name: str, index: int, ok: bool) -> None:
        """Asked for or not."""
        self.harness.tell(agent_inputs.GpuChecked(name, f"GPU-{name}-{index}", ok, "seen"))

    @rule(name=st.sampled_from(NODES), index=st.integers(0, 8), cordon=st.booleans())
    def gpu_is_cordoned(self, name: str, index: int, cordon: bool) -> None:
        given = (
            node_inputs.CordonGpu(name, index, "root")
            if cordon
            else node_inputs.ResumeGpu(name, index, "root")
        )
        self.harness.tell(given)

    @rule(name=st.sampled_from(NODES), index=st.integers(0, 8), ok=st.booleans())
    def gpu_was_reset(self, name: str, index: int, ok: bool) -> None:
        """Asked for or not."""
        self.harness.tell(agent_inputs.GpuWasReset(name, f"GPU-{name}-{index}", ok, "" if ok else "busy"))

    @rule(job=st.integers(1, 12), attempt=st.integers(1, 3), idle=st.booleans())
    def gpus_idle(self, job: int, attempt: int, idle: bool) -> None:
        """An agent reports idle or busy GPUs. The attempt may have ended, and the job may not exist."""
        since = self.harness.now - 1.0
        told = agent_inputs.GpusIdle(job, attempt, since) if idle else agent_inputs.GpusBusy(job, attempt)
        self.harness.tell(told)
        self.agents.obey(self.harness)

    @rule(
        name=st.sampled_from(NODES),
        index=st.integers(0, 8),
        user=st.sampled_from(["eve", "ada"]),
        comes=st.booleans(),
    )
    def stranger(self, name: str, index: int, user: str, comes: bool) -> None:
        """A process outside the queue begins or ends."""
        where = name, f"GPU-{name}-{index}", user
        self.harness.tell(
            agent_inputs.OffQueueProcessSeen(*where, 7, "python")
            if comes
            else agent_inputs.OffQueueProcessGone(*where)
        )

    @invariant()
    def the_ledger_knows_only_nodes_that_are_heard_of(self) -> None:
        for node, _, _ in self.harness.state.offqueue.open:
            assert self.harness.state.nodes.by_name[node].up

    @invariant()
    def every_live_attempt_is_on_record(self) -> None:
        """A reachable host runs only current attempts, or attempts with a stop order."""
        for (node, job_id, attempt), status in self.agents.alive.items():
            if node in self.agents.up and status.ended_at is None and status.started_at is not None:
                job = self.harness.job(job_id)
                assert job.attempt == attempt
                assert node in job.members
