"""Replays of a journal. A replay under another configuration equals a run under this configuration from the
beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import starmap
from pathlib import Path

import pytest

from controller.config import Config
from controller.core.engine import Engine
from controller.core.framework.interfaces import PreemptionGuards, WeightedScorer
from controller.core.lifecycle.node_loss import NodeLossPolicy
from controller.core.model.decision.decision import Decision
from controller.core.model.events.attempts import JobPlaced, JobPreempted, JobRequeued
from controller.core.model.events.event import Event
from controller.core.model.events.nominations import (
    MovePlanned,
    MoveUndone,
    PreemptionPlanned,
    RebalancePlanned,
)
from controller.core.model.events.queued import GateOpened, JobQueued
from controller.core.model.events.tenants import ShareSet
from controller.core.model.inputs import (
    agent_inputs,
    controller_inputs,
    job_inputs,
    node_inputs,
    policy_inputs,
)
from controller.core.model.inputs.input import Input
from controller.core.rebalance.proposals import RebalanceRules
from controller.core.state.state import State
from controller.plugins.preemption.by_priority import PriorityStrategy
from controller.plugins.scorers.resource_use import SpreadScorer
from controller.registry import build_pipeline
from controller.sim.cluster import Cluster, nodes_of
from controller.sim.generate import WorkloadRequest, generate
from controller.sim.generate.jobs import GeneratedJob
from controller.sim.replay.history import Mark, history_of
from controller.sim.replay.outcome import ReplayTask, recorded, replay_policy, wait_changes
from controller.sim.replay.replayer import Replay
from controller.sim.run import policy_of
from controller.sim.simulation import Simulation
from controller.sim.trace_job import TraceJob
from tests.engine_harness import EngineHarness, default_pipeline, spec
from wire.agent.reports import AttemptStatus, Checkpoint
from wire.cluster.quota import Limits, Quota
from wire.job.placement.affinity import Effect, Taint
from wire.job.start_conditions import OnNodeLost, Restart, RestartWhen
from wire.names import GpuHealth, JobState, Reason

CLUSTER = nodes_of(4, 8, 64, 512 * 1024, "H100")


def lived(policy: str, jobs: int = 150, seed: int = 1, cluster: Cluster = CLUSTER) -> list[Event]:
    """The journal of a simulated week."""
    pipeline = build_pipeline(policy_of(policy, Config()).config)
    journal: list[Event] = []
    simulation = Simulation(Engine(pipeline, State(pipeline.order)), journal.append)
    for name, facts in cluster.nodes.items():
        simulation.add_node(name, facts)
    simulation.add_work(
        starmap(work_of, enumerate(generate(WorkloadRequest(cluster, seed, 8, jobs, None, 1.3)).rows))
    )
    simulation.run()
    return journal


def work_of(number: int, row: GeneratedJob) -> TraceJob:
    """Return jobs, some with a begin time, and some that are restarted after a failure."""
    asked = spec(
        row.gpus,
        nodes=row.nodes if row.nodes > 1 else None,
        cpu_milli=row.cpu * 1_000,
        time_limit_s=float(row.estimate),
        begin_at=row.submit + 3_600.0 if number % 5 == 0 else None,
        restart=Restart(RestartWhen.ON_FAILURE, limit=2, delay_s=90.0) if number % 2 else Restart(),
    )
    return TraceJob(number, row.submit, asked, row.duration, row.user, row.code)


def relived(journal: Sequence[Event], policy: str) -> list[Event]:
    again: list[Event] = []
    Replay(
        history_of(journal), build_pipeline(policy_of(policy, Config()).config), observe=again.append
    ).run()
    return again


def starts(journal: Sequence[Event]) -> list[JobPlaced]:
    return [event for event in journal if isinstance(event, JobPlaced)]


# --- the same and another configuration ---


@pytest.mark.parametrize("policy", ["fcfs", "easy", "easy-sjbf", "aggressive", "conservative", "greedy"])
def test_replay_under_the_same_policy_gives_the_same_events(policy: str) -> None:
    journal = lived(policy)
    assert relived(journal, policy) == journal


PROFILES = """
[profiles.left]
users = {users}
nodes = ["n1", "n2", "n3"]
order = "fifo"
backfill = "{left}"
[profiles.right]
nodes = ["n2", "n3", "n4"]
backfill = "{right}"
"""


@pytest.mark.parametrize(("left", "right"), [("easy", "easy-sjbf"), ("none", "easy"), ("greedy", "easy")])
def test_replay_with_profiles_on_shared_nodes_gives_the_same_events(
    tmp_path: Path, left: str, right: str
) -> None:
    rows = generate(WorkloadRequest(CLUSTER, 1, 8, 150, None, 1.3)).rows
    users = sorted({row.user for row in rows})[::2]
    path = tmp_path / "profiles.toml"
    path.write_text(PROFILES.format(users=users, left=left, right=right))
    journal = lived(str(path))
    assert relived(journal, str(path)) == journal
    assert {event.profile for event in starts(journal)} == {"left", "right"}
    assert {event.profile for event in starts(relived(journal, "easy"))} == {""}


@pytest.mark.parametrize("was", ["fcfs", "greedy"])
@pytest.mark.parametrize("now", ["fcfs", "sjf", "easy", "easy-sjbf", "greedy"])
def test_replay_under_another_policy_equals_a_run_under_it(was: str, now: str) -> None:
    """The journal has the run time of each job, which is the same under any policy."""
    journal = lived(was)
    replayed, until = lived(now), journal[-1].at
    assert starts(relived(journal, now)) == [event for event in starts(replayed) if event.at <= until]


def test_policies_differ_on_the_replayed_jobs() -> None:
    """The policies start some jobs at different times, so the tests above can fail."""
    journals = [lived(policy) for policy in ("fcfs", "sjf", "easy", "greedy")]
    assert len({tuple(starts(journal)) for journal in journals}) == 4
    assert all({JobRequeued, GateOpened} <= {*map(type, journal)} for journal in journals)


# --- operators and nodes ---


class Story(EngineHarness):
    """A harness whose clock advances with every input."""

    def tell(self, given: Input) -> Decision:
        self.now += 10
        decision = super().tell(given)
        if not isinstance(given, controller_inputs.Tick):
            self.now += 0.001
            super().tell(controller_inputs.Tick())
        return decision

    def report(self, node: str, job: int, **more: object) -> None:
        status = AttemptStatus(job, self.job(job).attempt, pid=job, started_at=self.now, **more)  # type: ignore[arg-type]
        self.tell(agent_inputs.AgentReported(node, status))


def test_replay_repeats_node_and_operator_inputs() -> None:
    story = Story(default_pipeline())
    story.tell(node_inputs.AddNode("a", {"rack": "1"}))
    story.tell(node_inputs.AddNode("c", by="root"))
    story.tell(node_inputs.RemoveNode("c", "root"))
    story.tell(policy_inputs.SetQuota("user", "eve", Quota(Limits(gpus=8)), "root"))
    story.tell(policy_inputs.SetQuota("user", "eve", Quota(Limits(running=8)), "root"))
    story.tell(policy_inputs.UnsetQuota("user", "eve", "root"))
    story.join("a")
    story.join("b")
    lost, cancelled, never_joined, ended = (story.submit(spec(4)) for _ in range(4))
    assert [story.nodes_of(job) for job in (lost, cancelled, never_joined, ended)] == [
        ["a"],
        ["a"],
        ["b"],
        ["b"],
    ]
    for job in (lost, cancelled, ended):
        story.report(story.nodes_of(job)[0], job)
    story.tell(node_inputs.Drain("a", "root", "a fan"))
    waiting, gang = story.submit(spec(8, hold=True)), story.submit(spec(16, nodes=2))
    story.tell(job_inputs.Hold(gang, "ada"))
    story.tell(job_inputs.Release(waiting, "ada"))
    story.tell(job_inputs.Cancel(waiting, "ada"))
    story.tell(agent_inputs.LinkWentDown("b", "silent for 30s"))
    story.join("b", (AttemptStatus(ended, 1, ended, 1_000.0, story.now, 0),))
    story.join("b", boot="b2")
    story.join("a", (AttemptStatus(cancelled, 1, cancelled, 1_000.0),))
    story.tell(agent_inputs.GpuReported("b", "GPU-b-3", GpuHealth.LOST, "Xid 79"))
    story.tell(node_inputs.Resume("a", "root"))
    story.tell(job_inputs.Cancel(cancelled, "eve"))
    story.report("a", cancelled, ended_at=story.now, signal=15, why="cancelled")
    told = {
        job: (story.job(job).state, story.job(job).reason) for job in (lost, never_joined, ended, waiting)
    }
    assert told == {
        lost: (JobState.FAILED, Reason.NODE_LOST),
        never_joined: (JobState.FAILED, Reason.NODE_LOST),
        ended: (JobState.COMPLETED, Reason.NONE),
        waiting: (JobState.CANCELLED, Reason.USER),
    }
    again: list[Event] = []
    Replay(history_of(story.events), story.pipeline, observe=again.append).run()
    assert again == story.events


def test_replay_repeats_node_loss() -> None:
    losses = NodeLossPolicy(OnNodeLost.REQUEUE, lease_s=300.0, margin_s=30.0, down_after_s=60.0)
    story = Story(replace(default_pipeline(), losses=losses))
    story.join("a")
    story.join("b")
    short = story.submit(spec(8, grace_s=10.0))
    waits = story.submit(spec(8, on_node_lost=OnNodeLost.WAIT))
    for job, node in ((short, "a"), (waits, "b")):
        story.report(node, job)
    story.tell(agent_inputs.LinkWentDown("b", "silent for 30s"))
    story.tell(agent_inputs.LinkWentDown("a", "silent for 30s"))
    for node, silent_s in (("b", 60.5), ("a", 60.5), ("a", 340.5)):
        story.now = story.state.nodes.by_name[node].since + silent_s - 10
        story.tell(agent_inputs.NodeSilent(node, silent_s))
    assert story.job(short).state is JobState.QUEUED
    story.tell(node_inputs.MarkNode("a", "root", {"rack": "2"}, {"broken:NoSchedule": "yes"}))
    story.tell(node_inputs.DeclareLost("b", "root"))
    assert story.job(waits).reason is Reason.NODE_LOST
    story.tell(node_inputs.AddNode("c", taints=(Taint("new", Effect.NO_SCHEDULE),)))
    again: list[Event] = []
    Replay(history_of(story.events), story.pipeline, observe=again.append).run()
    assert again == story.events


def test_replay_repeats_preemptions_and_operator_preemptions() -> None:
    guards = PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0)
    story = Story(replace(default_pipeline(), strategies=(PriorityStrategy(),), guards=guards))
    story.join("a")
    story.tell(policy_inputs.SetShare("ml", 3.0, "root"))
    low, asked, held = (story.submit(spec(2, priority=25)) for _ in range(3))
    for job in (low, asked, held):
        story.report("a", job)
    story.tell(job_inputs.Preempt(asked, "root"))
    story.tell(job_inputs.Preempt(held, "root", hold=True))
    for job in (asked, held):
        saved = Checkpoint("/saved", at=story.now - 5)
        story.report("a", job, ended_at=story.now, signal=15, why="preempted", checkpoint=saved)
    high = story.submit(spec(8, priority=75))
    for job in (low, asked):
        story.report("a", job, ended_at=story.now, signal=15, why="preempted")
    assert story.job(high).state is JobState.SCHEDULED
    patient = story.submit(spec(8, priority=80))  # no job is preempted for jobs of its own priority
    story.tell(job_inputs.Hold(patient, "ada"))
    story.tell(job_inputs.Hold(patient, "root"))
    kinds = {*map(type, story.events)}
    assert {ShareSet, PreemptionPlanned, JobPreempted} <= kinds
    again: list[Event] = []
    Replay(history_of(story.events), story.pipeline, observe=again.append).run()
    assert again == story.events
    # Without preemption no other job is stopped, and the victims keep running.
    fewer: list[Event] = []
    Replay(history_of(story.events), default_pipeline(), observe=fewer.append).run()
    stopped = {event.job for event in fewer if isinstance(event, JobPreempted)}
    assert stopped == {asked, held}


def test_replay_repeats_moves_and_failed_moves() -> None:
    rules = RebalanceRules(mode="propose", restart_s=0.0)
    guards = PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0)
    spread = (WeightedScorer(SpreadScorer(), 1),)
    story = Story(replace(default_pipeline(), rebalance=rules, guards=guards, scorers=spread))
    for node in ("a", "b"):
        story.join(node)
    jobs = [story.submit(spec(2, checkpoint_signal="USR1")) for _ in range(2)]
    for job in jobs:
        story.report(*story.nodes_of(job), job)
    big = story.submit(spec(8, nodes=1))

    def leave(moved: int) -> None:
        story.report(*story.nodes_of(moved), moved, ended_at=story.now, signal=15, why="preempted")
        story.report(*story.nodes_of(moved), moved)

    story.tell(policy_inputs.Rebalance("root"))
    [moved] = [job for job in jobs if story.job(job).move is not None]
    [target] = story.job(moved).claim
    story.tell_drain(target.node)
    leave(moved)
    assert story.job(moved).moves[0].undone
    story.tell(node_inputs.Resume(target.node, "root"))
    story.tell(policy_inputs.Rebalance("corral"))
    [moved] = [job for job in jobs if story.job(job).move is not None]
    leave(moved)
    assert story.job(moved).moves[-1].done_at is not None
    assert story.job(big).members
    kinds = {*map(type, story.events)}
    assert {RebalancePlanned, MovePlanned, MoveUndone} <= kinds
    again: list[Event] = []
    Replay(history_of(story.events), story.pipeline, observe=again.append).run()
    assert again == story.events
    # Without moves, the moved jobs keep running.
    fewer: list[Event] = []
    Replay(history_of(story.events), default_pipeline(), observe=fewer.append).run()
    assert not any(isinstance(event, JobPreempted) for event in fewer)


def test_replay_cancels_a_job_at_its_recorded_time_wherever_it_starts() -> None:
    """Under `shortest` the job would have started at once, and held its GPUs until it was cancelled."""
    story = Story(default_pipeline())
    story.join("a")
    first = story.submit(spec(8, time_limit_s=7_200))
    story.report("a", first)
    behind = story.submit(spec(8, time_limit_s=3_600))
    wanted = story.submit(spec(8, time_limit_s=60))
    story.report("a", first, ended_at=story.now, code=0)
    story.report("a", behind)
    story.now += 1_000
    story.tell(job_inputs.Cancel(behind, "ada"))
    story.report("a", behind, ended_at=story.now, signal=15, why="cancelled")
    story.report("a", wanted, ended_at=story.now, code=0)
    outcome = replay_policy(ReplayTask(policy_of("sjf", Config()), history_of(story.events)))
    then, now = history_of(story.events).records.by_job, outcome.records.by_job
    assert now[wanted].start_s == then[behind].start_s
    assert now[behind].start_s == now[wanted].end_s
    assert (now[behind].end_s, now[behind].state) == (then[behind].end_s, JobState.CANCELLED)
    gains = {change.job: change.gain_s for change in wait_changes(history_of(story.events), outcome)}
    assert gains[wanted] > 1_000
    assert gains[behind] < 0


def test_replay_of_a_quiet_journal_runs_its_cycles() -> None:
    """Nothing started, so the record shows no cycle; under another configuration one would have."""
    story = Story(default_pipeline())
    story.join("a")
    story.submit(spec(8))
    steps = history_of([*story.events, JobQueued(2, story.now + 100, spec(1), "ada")]).steps
    assert [step.what for step in steps][-1] is Mark.CYCLE


def test_replay_gives_the_same_figures_every_time() -> None:
    journal = lived("easy")
    history = history_of(journal)
    outcome = replay_policy(ReplayTask(policy_of("easy", Config()), history))
    assert outcome.column == recorded(history)
    assert outcome.as_recorded == outcome.placements == len(starts(journal))
    assert [*wait_changes(history, outcome)] == []
