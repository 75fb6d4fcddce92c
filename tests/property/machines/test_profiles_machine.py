"""Two profiles with shared nodes: in thousands of steps, no reservation is broken."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.core.forecast.forecast import fork
from controller.core.framework.interfaces import Backfill, PreemptionGuards
from controller.core.framework.profiles import Profile
from controller.core.model.decision.decision import Refusal
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.inputs import controller_inputs, job_inputs, node_inputs
from controller.core.pipeline.pipeline import Pipeline
from controller.plugins.backfill.kinds import Aggressive, Conservative, Easy, EasySjbf, Greedy, NoBackfill
from controller.plugins.orders.fixed import FifoOrder
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import EngineHarness, spec
from tests.examples import examples
from tests.property.machines.node_rules import NODES
from tests.property.machines.test_engine_machine import PIPELINE, EngineMachine
from wire.job.placement.affinity import parse_term
from wire.names import JobState

LEFT, RIGHT = (parse_term("node in a,b"),), (parse_term("node in b,c"),)
GUARDS = PreemptionGuards(min_runtime_s=20.0, max_per_job=2, cooldown_s=30.0, rate=10, window_s=200.0)


class SharedMachine(EngineMachine):
    """The random steps of the engine machine on a cluster with two profiles, one of which preempts."""

    pipeline = replace(
        PIPELINE,
        profiles=(
            Profile(
                "left",
                replace(PIPELINE, strategies=(PriorityStrategy(gap=20),), guards=GUARDS),
                nodes=LEFT,
                users=("ada",),
            ),
            Profile("right", replace(PIPELINE, backfill=Conservative()), nodes=RIGHT, users=("bo",)),
            Profile("default", PIPELINE),
        ),
    )

    @rule(
        gpus=st.sampled_from([1, 4, 8, 16]),
        user=st.sampled_from(["ada", "bo", "eve"]),
        priority=st.sampled_from([0, 50, 100]),
        limit=st.sampled_from([None, 20, 60, 200]),
        profile=st.sampled_from([None, None, "default", "left", "right", "none"]),
    )
    def submit_to(
        self, gpus: int, user: str, priority: int, limit: float | None, profile: str | None
    ) -> None:
        """Submit a job to a profile. The submit is refused if the profile does not admit the job."""
        asked = spec(gpus, priority=priority, time_limit_s=limit, profile=profile)
        reply = self.harness.tell(job_inputs.Submit(asked, user)).reply
        allowed = {"ada": ("left",), "bo": ("right",)}.get(user, ())
        refused = isinstance(reply, Refusal) and reply.where == "profile"
        assert refused == (profile not in (None, "default", *allowed))

    @precondition(lambda self: self.harness.state.jobs)
    @rule(data=st.data(), profile=st.sampled_from([None, "default", "left"]))
    def move(self, data: st.DataObject, profile: str | None) -> None:
        job = data.draw(st.sampled_from(sorted(self.harness.state.jobs)))
        self.harness.tell(job_inputs.Edit(job, "ada", {"profile": profile}))
        self.agents.obey(self.harness)

    @invariant()
    def jobs_are_on_the_nodes_of_their_profiles(self) -> None:
        """Each job is on nodes of its profile, by the node labels at the time of its placement."""
        for event in self.harness.events[self.seen :]:
            if isinstance(event, JobPlaced):
                nodes = {"left": {"a", "b"}, "right": {"b", "c"}}.get(event.profile, {"a", "b", "c"})
                assert {each.node for each in event.allocations} <= nodes
                assert event.profile == self.harness.job(event.job).profile

    @invariant()
    def waiting_jobs_are_in_the_queue_of_their_profile(self) -> None:
        for name, queue in self.harness.state.queues.items():
            assert all(self.harness.job(job).profile == name for lane in queue for _, job in lane)

    def finish(self) -> None:
        """No job is left, except jobs submitted without nodes that are too wide for their profile."""
        for name in NODES:
            self.hello(name)
            self.harness.tell(node_inputs.MarkNode(name, "root", {"disk": "nvme"}, {}))
        for job in list(self.harness.state.live()):
            if self.harness.engine.profile_cycles.of(job).placer.shape(job.ask) is None:
                assert job.state is JobState.QUEUED
                self.harness.tell(job_inputs.Cancel(job.id, "root"))
        super().finish()


SharedMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=50)
TestShared = SharedMachine.TestCase


class PromiseMachine(RuleBasedStateMachine):
    """Jobs in the order of arrival, on hosts that stay up. No reservation may ever move to a later time."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = EngineHarness()
        self.promised: dict[int, float] = {}
        self.seen = 0

    @initialize(
        left=st.sampled_from([Easy(), NoBackfill(), EasySjbf(), Aggressive(max_delay_s=100.0)]),
        right=st.sampled_from([Easy(), Conservative(), Greedy()]),
        nodes=st.sampled_from(["ab", "abc", "abcd"]),
    )
    def begin(self, left: Backfill, right: Backfill, nodes: str) -> None:
        def policy(mode: Backfill) -> Pipeline:
            return replace(PIPELINE, order=FifoOrder(), backfill=mode)

        profiles = (
            Profile("left", policy(left), nodes=LEFT, users=("ada",)),
            Profile("right", policy(right), nodes=RIGHT, users=("bo",)),
            Profile("default", policy(Easy())),
        )
        self.harness = EngineHarness(replace(PIPELINE, profiles=profiles))
        for name in nodes:
            self.harness.join(name, gpus=4, numa_nodes=2, island=2)

    @rule(
        gpus=st.sampled_from([0, 0.5, 1, 2, 3, 4, 8]),
        cpus=st.sampled_from([1, 20, 60]),
        user=st.sampled_from(["ada", "bo", "eve"]),
        limit=st.sampled_from([10, 30, 45, 100, 250, None]),
    )
    def submit(self, gpus: float, cpus: int, user: str, limit: float | None) -> None:
        nodes = 2 if gpus == 8 else None
        asked = spec(gpus, nodes=nodes, cpu_milli=cpus * 1_000, time_limit_s=limit)
        self.harness.tell(job_inputs.Submit(asked, user))

    @rule(step=st.sampled_from([0.0, 1.0, 15.0, 60.0]))
    def time_passes(self, step: float) -> None:
        """Every job ends at its limit, and a pass follows at once."""
        until = self.harness.now + step
        while True:
            following = min((end for end, _ in self.harness.state.releases), default=until + 1)
            self.harness.now = min(max(following, self.harness.now), until)
            for job in [job for end, job in self.harness.state.releases if end <= self.harness.now]:
                self.harness.exit(job)
            self.pass_by()
            if following > until:
                return

    @precondition(lambda self: self.harness.state.releases)
    @rule(data=st.data())
    def ends_early(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(job for _, job in self.harness.state.releases)))
        self.harness.exit(job)
        self.pass_by()

    @precondition(lambda self: len(self.harness.state.queue))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        waiting = sorted(job for lane in self.harness.state.queue for _, job in lane)
        self.harness.tell(job_inputs.Cancel(data.draw(st.sampled_from(waiting)), "ada"))
        self.pass_by()

    def pass_by(self) -> None:
        """Run one pass. Each job with a reservation starts by its reserved time, or keeps the reservation."""
        self.harness.tick()
        now, cycles = self.harness.now, self.harness.engine.profile_cycles.cycles
        for event in self.harness.events[self.seen :]:
            if isinstance(event, JobPlaced):
                assert now <= self.promised.get(event.job, now)
        self.seen = len(self.harness.events)
        told = {
            job: promise.starts_at
            for each in cycles.values()
            for job, promise in each.reservations.by_job.items()
        }
        for job, at in self.promised.items():
            found = self.harness.job(job)
            if not found.state.terminal and not found.running:
                assert told.get(job, at + 1) <= at
        self.promised = told

    @rule()
    def a_copy_goes_on_from_the_same_promises(self) -> None:
        """A copy of the engine has the same reservations and decides as the original does."""
        ahead = fork(self.harness.engine).handle(controller_inputs.Tick(), self.harness.now).events
        assert self.harness.tell(controller_inputs.Tick()).events == ahead
        self.pass_by()

    @invariant()
    def whoever_stands_first_is_told_why(self) -> None:
        """No job waits for a reservation that does not exist."""
        for lane in self.harness.state.queue:
            for _, job in lane:
                assert self.harness.why(job).sentence


PromiseMachine.TestCase.settings = settings(max_examples=examples(225), stateful_step_count=40)
TestPromises = PromiseMachine.TestCase
