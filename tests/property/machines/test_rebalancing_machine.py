"""The engine machine with moves: each moved job continues on its target or on its old node."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from controller.core.framework.interfaces import WeightedScorer
from controller.core.model.allocation import Allocation
from controller.core.model.decision.decision import Accepted, Refusal, Reply
from controller.core.model.events.attempts import JobEnded, JobPlaced
from controller.core.model.events.nominations import (
    MovePlanned,
    MoveUndone,
    PreemptionDropped,
    PreemptionPlanned,
)
from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs, policy_inputs
from controller.core.rebalance.proposals import DEFRAGMENT, DRAIN, LOAD, RebalanceRules
from controller.core.rebalance.rebalancer import STRATEGY
from controller.plugins.scorers.resource_use import SpreadScorer
from tests.engine_harness import spec
from tests.examples import examples
from tests.property.machines.node_rules import NODES
from tests.property.machines.test_preemption_machine import GUARDS, PreemptionMachine

RULES = RebalanceRules(
    mode="propose",
    kinds=(DEFRAGMENT, DRAIN, LOAD),
    max_moves=3,
    min_ratio=0.0,
    restart_s=0.0,
    load_gap=0.3,
    without_checkpoint=True,
)


class RebalancingMachine(PreemptionMachine):
    pipeline = replace(
        PreemptionMachine.pipeline,
        scorers=(WeightedScorer(SpreadScorer(), 1),),
        rebalance=RULES,
        guards=replace(GUARDS, min_runtime_s=0.0, cooldown_s=10.0, max_per_job=3),
    )

    @rule(every=st.booleans(), at_once=st.booleans())
    def rebalance(self, every: bool, at_once: bool) -> None:
        """An operator carries out a proposal. Each shown proposal can be carried out, and only once."""
        shown = self.harness.engine.rebalancer.proposals(self.harness.now)
        if every or not shown:
            self.harness.tell(policy_inputs.Rebalance("root"))
        else:
            assert isinstance(self._run(shown[-1].id), Accepted)
            assert isinstance(self._run(shown[-1].id), Refusal)
        if at_once:
            self.agents.obey(self.harness)
            self.agents_tell()
            self.agents.obey(self.harness)
            self.all_start()

    @rule()
    def all_start(self) -> None:
        """Processes start on all connected nodes."""
        for key, status in list(self.agents.alive.items()):
            if status.started_at is None and status.ended_at is None and key[0] in self.agents.up:
                begun = self.agents.alive[key] = replace(status, pid=1, started_at=self.harness.now)
                self.harness.tell(agent_inputs.AgentReported(key[0], begun))
                self.agents.obey(self.harness)

    def _run(self, proposal: str) -> Reply:
        return self.harness.tell(policy_inputs.Rebalance("root", proposal)).reply

    @rule(node=st.sampled_from(NODES), gpus=st.sampled_from([0.5, 1, 2, 3]), count=st.integers(2, 5))
    def scatter(self, node: str, gpus: float, count: int) -> None:
        """Small jobs run on all nodes. A job that needs a whole node is submitted. A node may be drained."""
        for job in list(self.harness.state.jobs):
            self.harness.tell(job_inputs.Cancel(job, "root"))
        self.agents.obey(self.harness)
        self.agents_tell()
        for name in NODES:
            self.harness.tell(node_inputs.Resume(name, "root"))
        self.fill(gpus, 0, count, 30.0, False)
        if count % 2:
            self.harness.tell(node_inputs.Drain(node, "root", "scatter"))
        else:
            self.harness.tell(job_inputs.Submit(spec(8, nodes=1, priority=0), "ada"))
            self.harness.tick()
        self.rebalance(True, count == 4)

    @rule(node=st.sampled_from(NODES), gpu=st.integers(0, 7))
    def break_a_gpu(self, node: str, gpu: int) -> None:
        """An operator cordons a GPU."""
        self.harness.tell(node_inputs.CordonGpu(node, gpu, "root", "test"))
        self.tick(0.0)
        self.harness.tell(node_inputs.ResumeGpu(node, gpu, "root"))

    @invariant()
    def who_made_room_for_a_job_did_so_for_its_start(self) -> None:
        """A job starts on the resources that are nominated for it, unless the nomination is withdrawn."""
        kept: dict[int, tuple[Allocation, ...]] = {}
        for event in self.harness.events:
            if isinstance(event, PreemptionPlanned | MovePlanned):
                assert event.job not in kept
                kept[event.job] = event.allocations
            elif isinstance(event, JobPlaced) and event.job in kept:
                assert event.allocations == kept.pop(event.job)
            elif isinstance(event, MoveUndone):
                kept.pop(event.job, None)
                if event.allocations:
                    kept[event.job] = event.allocations
            elif isinstance(event, PreemptionDropped):
                del kept[event.job]
            elif isinstance(event, JobEnded):
                kept.pop(event.job, None)
        assert set(kept) == set(self.harness.state.claims)

    @invariant()
    def only_the_less_important_are_ended_and_not_too_often(self) -> None:
        """A move counts as a preemption."""
        times: dict[int, int] = {}
        for event in self.harness.events:
            if isinstance(event, PreemptionPlanned):
                for victim in event.victims:
                    if event.strategy != STRATEGY:
                        times[victim.job] = (not victim.nodes) + times.get(victim.job, 0)
            elif isinstance(event, MovePlanned):
                times[event.job] = 1 + times.get(event.job, 0)
        most = self.pipeline.guards.max_per_job
        assert all(count <= most for count in times.values())

    @invariant()
    def no_more_are_on_the_move_than_may_be(self) -> None:
        state = self.harness.state
        moving = [job for job in state.jobs.values() if job.move is not None]
        assert all(not job.state.terminal for job in moving)
        assert sum(1 for job in moving if job.claim) <= RULES.max_moves

    def finish(self) -> None:
        """In the end no move is under way."""
        super().finish()
        assert all(job.move is None for job in self.harness.state.jobs.values())


RebalancingMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=60)
TestRebalancingMachine = RebalancingMachine.TestCase
