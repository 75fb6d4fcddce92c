"""The engine machine with preemption: no job is preempted in vain, or without end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from controller.core.framework.interfaces import PreemptionGuards
from controller.core.model.decision.decision import Accepted
from controller.core.model.events.attempts import JobEnded, JobPlaced
from controller.core.model.events.nominations import PreemptionDropped, PreemptionPlanned
from controller.core.model.events.queued import JobEdited, JobQueued, PriorityInherited
from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs
from controller.plugins.preemption.by_priority import PriorityStrategy
from controller.plugins.preemption.reclaim_strategies import FairShareStrategy
from tests.engine_harness import PIPELINE, spec
from tests.examples import examples
from tests.property.machines.node_rules import NODES
from tests.property.machines.test_engine_machine import EngineMachine
from wire.job.gangs import Gang
from wire.job.start_conditions import Dependency, Until
from wire.names import JobState

GUARDS = PreemptionGuards(min_runtime_s=20.0, max_per_job=2, cooldown_s=30.0, rate=10, window_s=200.0)


class PreemptionMachine(EngineMachine):
    pipeline = replace(PIPELINE, strategies=(PriorityStrategy(gap=20),), guards=GUARDS)

    @rule(
        gpus=st.sampled_from([0.5, 1, 2, 4, 8, 16]),
        priority=st.sampled_from([0, 20, 40]),
        count=st.integers(1, 6),
        minutes=st.sampled_from([0.0, 25.0, 60.0]),
        elastic=st.booleans(),
    )
    def fill(self, gpus: float, priority: int, count: int, minutes: float, elastic: bool) -> None:
        """Jobs of low priority are submitted, start if they can, and run for a while."""
        nodes = 2 if gpus == 16 else None
        gang = Gang(1, elastic=True) if elastic and nodes else Gang()
        for _ in range(count):
            self.harness.tell(job_inputs.Submit(spec(gpus, nodes=nodes, priority=priority, gang=gang), "bo"))
        self.tick(0.0)
        for key, status in list(self.agents.alive.items()):
            if status.started_at is None and status.ended_at is None and key[0] in self.agents.up:
                begun = self.agents.alive[key] = replace(status, pid=1, started_at=self.harness.now)
                self.harness.tell(agent_inputs.AgentReported(key[0], begun))
                self.agents.obey(self.harness)
        self.harness.now += minutes

    @rule(gpus=st.sampled_from([0.5, 1, 4, 8, 16, 24]), priority=st.sampled_from([50, 75, 100]))
    def hurry(self, gpus: float, priority: int) -> None:
        """A job of high priority is submitted."""
        nodes = int(gpus) // 8 if gpus > 8 else None
        self.harness.tell(job_inputs.Submit(spec(gpus, nodes=nodes, priority=priority), "ada"))
        self.harness.tick()
        if priority < 100:  # otherwise the agents report later
            self.agents.obey(self.harness)

    @rule(gpus=st.sampled_from([1, 8]), priority=st.sampled_from([0, 20]), late=st.booleans())
    def stretch(self, gpus: int, priority: int, late: bool) -> None:
        """An elastic job is submitted when all others have ended, and runs for a while. Then an urgent job is
        submitted.
        """
        for job in list(self.harness.state.jobs):
            self.harness.tell(job_inputs.Cancel(job, "root"))
        self.agents.obey(self.harness)
        for name in NODES:
            if name in self.harness.state.nodes.by_name:
                self.harness.tell(node_inputs.Resume(name, "root"))
        self.agents_tell()
        asked = spec(3 * gpus, nodes=3, priority=priority, gang=Gang(1, elastic=True))
        if late:  # it starts on fewer nodes, and grows when nobody waits
            self.harness.tell(node_inputs.Drain(NODES[-1], "root", "late"))
            self.harness.tell(job_inputs.Submit(asked, "bo"))
            self.fill(0.5, 0, 1, 0.0, False)
            self.harness.tell(node_inputs.Resume(NODES[-1], "root"))
            self.tick(1.0)
        else:
            self.harness.tell(job_inputs.Submit(asked, "bo"))
        self.fill(8, 0, 1, 60.0, True)
        self.hurry(8, 75)
        self.agents_tell()

    @precondition(lambda self: any(job.unended for job in self.harness.state.jobs.values()))
    @rule(data=st.data(), priority=st.sampled_from([50, 75, 100]), urgent=st.booleans())
    def depend(self, data: st.DataObject, priority: int, urgent: bool) -> None:
        """A job of high priority waits for a running job, and may be cancelled after another job has been
        submitted.
        """
        running = [job.id for job in self.harness.state.jobs.values() if job.unended]
        job = data.draw(st.sampled_from(sorted(running)))
        after = (Dependency(Until.OK, self.harness.job(job).label),)
        reply = self.harness.tell(job_inputs.Submit(spec(1, priority=priority, after=after), "ada")).reply
        self.hurry(8, 75)
        if urgent and isinstance(reply, Accepted):  # A quota of 0 refuses the job.
            self.harness.tell(job_inputs.Cancel(reply.jobs[0], "root"))
        self.tick(1.0)

    @rule()
    def agents_tell(self) -> None:
        """The agents of connected nodes report which attempts have ended."""
        for key, status in list(self.agents.alive.items()):
            if status.ended_at is not None and key[0] in self.agents.up:
                self.harness.tell(agent_inputs.AgentReported(key[0], status))
                self.agents.obey(self.harness)
        self.tick(1.0)

    @precondition(lambda self: self.harness.state.jobs)
    @rule(data=st.data(), hold=st.booleans())
    def preempt(self, data: st.DataObject, hold: bool) -> None:
        """An operator preempts a job."""
        job = data.draw(st.sampled_from(sorted(self.harness.state.jobs)))
        self.harness.tell(job_inputs.Preempt(job, "root", hold))
        self.agents.obey(self.harness)

    @invariant()
    def who_made_room_for_a_job_did_so_for_its_start(self) -> None:
        """After a preemption plan the job starts on the planned nodes, unless an outside event withdraws the
        nomination.
        """
        planned: dict[int, PreemptionPlanned] = {}
        for event in self.harness.events:
            if isinstance(event, PreemptionPlanned):
                assert event.job not in planned
                planned[event.job] = event
            elif isinstance(event, JobPlaced) and event.job in planned:
                assert event.allocations == planned.pop(event.job).allocations
            elif isinstance(event, PreemptionDropped):
                # "the": the quota of a user has been lowered since the plan.
                assert event.why.split()[0] in ("cancelled", "held", "node", "a", "given", "the")
                del planned[event.job]
            elif isinstance(event, JobEnded):
                assert event.job not in planned
        moving = {job.id for job in self.harness.state.jobs.values() if job.move is not None}
        assert set(planned) - moving == set(self.harness.state.claims) - moving

    @invariant()
    def only_the_less_important_are_ended_and_not_too_often(self) -> None:
        times: dict[int, int] = {}
        priorities: dict[int, int] = {}
        inherited: dict[int, int] = {}
        recent: list[float] = []
        for event in self.harness.events:
            if isinstance(event, JobQueued | JobEdited):
                priorities[event.job] = event.spec.priority
            elif isinstance(event, PriorityInherited):
                inherited[event.job] = event.priority
            elif isinstance(event, PreemptionPlanned):
                priority = priorities[event.job]
                assert event.victims
                for victim in event.victims:
                    standing = max(priorities[victim.job], inherited.get(victim.job, 0))
                    assert self.may(standing, priority)
                    times[victim.job] = (not victim.nodes) + times.get(victim.job, 0)
                    recent.append(event.at)
        assert all(count <= GUARDS.max_per_job for count in times.values())
        for at in recent:
            assert sum(at - GUARDS.window_s < other <= at for other in recent) <= GUARDS.rate

    def may(self, victim: int, asker: int) -> bool:
        """May a job of one priority be ended for one of the other?"""
        return victim <= asker - 20

    def finish(self) -> None:
        """In the end no nomination is left, and all jobs have run."""
        super().finish()
        assert not self.harness.state.claims
        assert all(job.state is not JobState.PREEMPTED for job in self.harness.state.jobs.values())


PreemptionMachine.TestCase.settings = settings(max_examples=examples(90), stateful_step_count=60)
TestPreemptionMachine = PreemptionMachine.TestCase


class FairMachine(PreemptionMachine):
    """Preemption between users by fair share, with any priorities."""

    pipeline = replace(PIPELINE, strategies=(FairShareStrategy(threshold=1.0),), guards=GUARDS)

    def may(self, _victim: int, _asker: int) -> bool:
        return True

    @invariant()
    def nobody_is_ended_for_themselves(self) -> None:
        for event in self.harness.events:
            if isinstance(event, PreemptionPlanned):
                asker = self.harness.job(event.job).user
                assert all(self.harness.job(victim.job).user != asker for victim in event.victims)


FairMachine.TestCase.settings = settings(max_examples=examples(45), stateful_step_count=60)
TestFairMachine = FairMachine.TestCase
