"""Preemption: which victims are chosen, what they lose, and that no job is stopped in vain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.forecast.forecast import forecast, fork
from controller.core.framework.interfaces import Backfill, PreemptionGuards
from controller.core.invariants import find_violations
from controller.core.model.events.attempts import JobPlaced, JobPreempted
from controller.core.model.events.nominations import PreemptionDropped, PreemptionPlanned
from controller.core.model.inputs import agent_inputs, job_inputs
from controller.core.preemption.fairshare_reclaim import pending_transfers
from controller.core.quota.queue_rules import EXEMPT_QUOTA
from controller.core.quota.quota_config import QuotaConfig
from controller.plugins.backfill.kinds import Conservative
from controller.plugins.preemption.by_priority import PressureStrategy, PriorityStrategy
from controller.plugins.quotas.local import BorrowTable, LocalQuotas, ProjectQuotaTable
from tests.engine_harness import BACKFILLS, PIPELINE, EngineHarness, spec
from wire.agent.orders import Stop
from wire.agent.reports import AttemptStatus, Checkpoint
from wire.job.gangs import Gang
from wire.job.placement.affinity import parse_term
from wire.job.placement.gpu_requirements import GpuWish, Topology
from wire.job.spec import JobSpec
from wire.names import GpuHealth, JobState, Reason

HOUR = 3600.0
BY_PRIORITY = PriorityStrategy()
UNGUARDED = PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0)


def harness_of(
    *nodes: str,
    guards: PreemptionGuards = UNGUARDED,
    priority: PriorityStrategy = BY_PRIORITY,
    **more: object,
) -> EngineHarness:
    harness = EngineHarness(replace(PIPELINE, strategies=(priority,), guards=guards, **more))
    for name in nodes or ("a",):
        harness.join(name)
    return harness


def running(harness: EngineHarness, asked: JobSpec, hours: float = 0.0) -> int:
    """A job that has started, and that much time passed since."""
    job = harness.submit(asked)
    harness.tick()
    harness.start(job)
    harness.now += hours * HOUR
    return job


def plans(harness: EngineHarness) -> list[tuple[int, list[int]]]:
    """(preemptor, victims) of every plan so far."""
    return [
        (event.job, [victim.job for victim in event.victims])
        for event in harness.events
        if isinstance(event, PreemptionPlanned)
    ]


def leave(harness: EngineHarness, job: int) -> None:
    """The agents report that the preempted job has ended."""
    harness.exit(job, None, signal=15, why="preempted")


RACKS = {"a": "r1", "b": "r1", "c": "r2", "d": "r2", "e": "r3", "f": "r3"}
# Case, topology, number of nodes, hours that the jobs on nodes a, b, c ... have run (0: not preemptible), and
# the nodes that the gang gets.
DOMAINS: list[tuple[str, Topology, int, str, str]] = [
    ("the cheapest nodes lie in two racks", Topology("rack"), 2, "1913", "cd"),
    ("one node of the cheapest rack keeps its job", Topology("rack"), 2, "1022", "cd"),
    ("no rack has two nodes", Topology("rack"), 2, "1020", ""),
    ("two racks with one node each", Topology("rack", None), 2, "1122", "ac"),
    ("two racks with two nodes each", Topology("rack", 2), 4, "119922", "abef"),
]


@pytest.mark.parametrize(
    ("topology", "nodes", "hours", "gets"), [row[1:] for row in DOMAINS], ids=[row[0] for row in DOMAINS]
)
@pytest.mark.parametrize("models", [("H100",), ("A100", "H100")], ids=["one model", "two models"])
def test_victims_for_a_gang_in_topology_domains(
    topology: Topology, nodes: int, hours: str, gets: str, models: tuple[str, ...]
) -> None:
    """With two GPU models, each rack has two more nodes of a model that loses more."""
    harness = EngineHarness(replace(PIPELINE, strategies=(BY_PRIORITY,), guards=UNGUARDED))
    begun = {}
    for number, model in enumerate(models):
        for name, each in zip(RACKS, hours, strict=False):
            where = name if number == len(models) - 1 else f"{name}-{model}"
            harness.join(where, model=model, labels={"rack": RACKS[name]})
            begun[where] = (int(each) if where == name else 50 * int(each)) * HOUR
    end = harness.now + 500 * HOUR
    for name, ago in sorted(begun.items(), key=lambda each: (-each[1], each[0])):
        harness.now = end - ago
        affinity = (parse_term(f"node in {name}"),)
        running(harness, spec(8, priority=25, affinity=affinity, preemptible=ago > 0))
    harness.now = end
    harness.submit(spec(8 * nodes, nodes=nodes, priority=75, topology=topology))
    harness.tick()
    assert "".join(sorted({node for node, _ in harness.stops()})) == gets


def test_a_job_of_lower_priority_is_preempted_and_keeps_its_queue_position() -> None:
    harness = harness_of("a")
    low = running(harness, spec(8, priority=25), hours=2)
    behind = harness.submit(spec(8, priority=25))
    high = harness.submit(spec(4, priority=75))
    assert harness.tick() == []
    assert plans(harness) == [(high, [low])]
    assert harness.stops() == [("a", low)]
    assert (harness.job(low).state, harness.job(low).reason) == (JobState.RUNNING, Reason.GRACE)
    assert (harness.job(high).state, harness.job(high).reason) == (JobState.QUEUED, Reason.PREEMPTING)
    leave(harness, low)
    assert (harness.job(low).state, harness.job(low).reason) == (JobState.QUEUED, Reason.PREEMPTED)
    assert [start.job for start in harness.tick()] == [high]
    assert harness.state.queue.ahead(low) == 0
    assert harness.state.queue.ahead(behind) == 1
    (lost,) = harness.job(low).preemptions
    assert (lost.by, lost.gpu_hours) == (f"job {high}", 16.0)
    harness.start(high)
    harness.exit(high)
    assert [(start.job, start.attempt) for start in harness.tick()] == [(low, 2)]


# A full node of 8 GPUs: jobs as (GPUs, priority, hours it has run), in the order of their start.
# Then a job of priority 75 asks for this many GPUs. The last field lists its victims.
TABLE = [
    ("the one that loses least", [(4, 25, 3), (4, 25, 1)], 4, [2]),
    ("the small old one loses less than the big young one", [(2, 25, 2), (6, 25, 1)], 2, [1]),
    ("two young ones rather than one old", [(4, 25, 9), (2, 25, 1), (2, 25, 1)], 4, [2, 3]),
    ("no victim that is not needed", [(1, 25, 1), (1, 25, 1), (6, 25, 3)], 6, [3]),
    ("all of them if needed", [(4, 25, 2), (4, 25, 1)], 8, [1, 2]),
    ("no equal", [(8, 75, 1)], 4, None),
    ("only the lower of two", [(4, 74, 5), (4, 75, 1)], 4, [1]),
    ("not if even all that may be ended are not enough", [(4, 25, 1), (4, 75, 1)], 8, None),
    ("what is free already counts", [(6, 25, 1)], 8, [1]),
]


@pytest.mark.parametrize(
    ("there", "gpus", "ended"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_victims(there: list[tuple[int, int, float]], gpus: int, ended: list[int] | None) -> None:
    harness = harness_of("a")
    begin = harness.now
    for number, (count, priority, hours) in enumerate(there):
        harness.now = begin + (10 - hours) * HOUR
        running(harness, spec(count, priority=priority, name=str(number + 1)))
    harness.now = begin + 10 * HOUR
    high = harness.submit(spec(gpus, priority=75))
    harness.tick()
    assert plans(harness) == ([] if ended is None else [(high, ended)])


def test_the_node_with_the_least_loss_is_chosen() -> None:
    harness = harness_of("a", "b", "c")
    for hours in (1, 2, 3):
        running(harness, spec(8, priority=25), hours=hours)
    running_b = harness.nodes_of(3)
    high = harness.submit(spec(8, priority=75))
    harness.tick()
    assert plans(harness) == [(high, [3])]
    assert [each.node for each in harness.job(high).claim] == running_b


def test_a_gang_gets_all_its_nodes_or_no_job_is_preempted() -> None:
    harness = harness_of("a", "b", "c")
    running(harness, spec(8, priority=25), hours=5)
    running(harness, spec(8, priority=25), hours=1)
    running(harness, spec(8, priority=75), hours=1)
    harness.submit(spec(24, nodes=3, priority=75))
    harness.tick()
    assert plans(harness) == []
    harness.tell(job_inputs.Cancel(4, "ada"))
    gang = harness.submit(spec(16, nodes=2, priority=75))
    harness.tick()
    assert plans(harness) == [(gang, [1, 2])]
    leave(harness, 1)
    assert harness.tick() == []
    leave(harness, 2)
    assert {start.job for start in harness.tick()} == {gang}


def test_a_gang_preempted_on_one_node_ends_on_all() -> None:
    harness = harness_of("a", "b")
    gang = running(harness, spec(16, nodes=2, priority=25), hours=1)
    high = harness.submit(spec(8, priority=75))
    harness.tick()
    assert sorted(harness.stops()) == [("a", gang), ("b", gang)]
    harness.exit(gang, None, node="a", signal=15, why="preempted")
    assert [start.job for start in harness.tick()] == [high]
    leave_b = harness.submit(spec(8, priority=10))
    harness.exit(gang, None, node="b", signal=15, why="preempted")
    assert harness.job(gang).state is JobState.QUEUED
    assert [start.job for start in harness.tick()] == [leave_b]


def test_freed_resources_go_only_to_the_nominated_job() -> None:
    harness = harness_of("a")
    for _ in range(2):
        running(harness, spec(4, priority=25))
    high = harness.submit(spec(8, priority=75))
    harness.tick()
    leave(harness, 1)
    passing = harness.submit(spec(1, priority=100))
    small = harness.submit(spec(1, priority=0, time_limit_s=1.0))
    assert harness.tick() == []
    leave(harness, 2)
    assert [start.job for start in harness.tick()] == [high]
    assert {harness.job(job).state for job in (passing, small)} == {JobState.QUEUED}


def test_resources_beyond_the_nomination_are_free_for_other_jobs() -> None:
    harness = harness_of("a")
    low = running(harness, spec(8, priority=25))
    high = harness.submit(spec(2, priority=75))
    harness.tick()
    other = harness.submit(spec(6, priority=50))
    leave(harness, low)
    assert sorted(start.job for start in harness.tick()) == [high, other]


def test_a_victim_that_succeeded_meanwhile_is_not_requeued() -> None:
    harness = harness_of("a")
    low = running(harness, spec(8, priority=25))
    high = harness.submit(spec(8, priority=75))
    harness.tick()
    harness.exit(low, 0)
    assert harness.job(low).state is JobState.COMPLETED
    assert [start.job for start in harness.tick()] == [high]


GUARDS = [
    ("before it has run long enough", PreemptionGuards(min_runtime_s=7_200.0), spec(8, priority=25)),
    (
        "before it has run as long as it asked for",
        PreemptionGuards(min_runtime_s=0.0),
        spec(8, min_runtime_s=7_200.0),
    ),
    ("when it does not want to", UNGUARDED, spec(8, preemptible=False)),
    ("when too many were ended within the window", PreemptionGuards(min_runtime_s=0.0, rate=1), spec(4)),
]


@pytest.mark.parametrize(("guards", "asked"), [row[1:] for row in GUARDS], ids=[row[0] for row in GUARDS])
def test_a_job_that_must_not_be_preempted_is_not(guards: PreemptionGuards, asked: JobSpec) -> None:
    harness = harness_of("a", guards=guards)
    running(harness, asked)
    if asked.gpus == 4:
        running(harness, asked)
    harness.now += HOUR
    harness.submit(spec(8, priority=75))
    harness.tick()
    assert plans(harness) == []


def test_a_job_becomes_preemptible_after_its_minimum_runtime() -> None:
    harness = harness_of("a", guards=PreemptionGuards(min_runtime_s=HOUR))
    low = running(harness, spec(8, priority=25))
    high = harness.submit(spec(8, priority=75))
    harness.tick()
    assert harness.engine.cycle.preemption.retry_at == harness.now + HOUR
    harness.now += HOUR
    harness.tick()
    assert plans(harness) == [(high, [low])]


def test_max_per_job_and_cooldown_protect_a_job() -> None:
    harness = harness_of("a", guards=PreemptionGuards(min_runtime_s=0.0, cooldown_s=HOUR, max_per_job=2))
    low = running(harness, spec(8, priority=25, min_runtime_s=0.0))
    for _ in range(3):
        high = harness.submit(spec(8, priority=75))
        harness.tick()
        if harness.job(low).stopping is None:
            harness.now += HOUR
            harness.tick()
        if harness.job(low).stopping is None:
            break
        leave(harness, low)
        harness.tick()
        harness.start(high)
        harness.exit(high)
        harness.tick()
        harness.start(low)
    assert len(harness.job(low).preemptions) == 2
    times = [each.at for each in harness.job(low).preemptions]
    assert times[1] - times[0] >= HOUR


def test_a_checkpoint_reduces_the_loss() -> None:
    harness = harness_of("a", "b")
    running(harness, spec(8, priority=25), hours=1)
    saved = running(harness, spec(8, priority=25, checkpoint_signal="USR1"), hours=4)
    job = harness.job(saved)
    harness.job(saved).checkpoint = None
    high = harness.submit(spec(8, priority=75))
    harness.tick()
    assert plans(harness) == [(high, [saved])]
    (plan,) = [event for event in harness.events if isinstance(event, PreemptionPlanned)]
    assert plan.victims[0].gpu_hours == 32.0
    (stop,) = [sent.frame for sent in harness.sent if isinstance(sent.frame, Stop)]
    assert (stop.why, stop.grace_s, stop.checkpoint_s) == ("preempted", 60.0, 60.0)
    assert plan.by == harness.now + 120.0
    assert job.stop_by == plan.by


def test_a_checkpoint_since_the_last_victim_search_reduces_the_loss() -> None:
    """The loss of each victim is cached between searches; a checkpoint changes it."""
    harness = harness_of("a", "b")
    old = running(harness, spec(8, priority=25, checkpoint_dir="/ck"), hours=8)
    running(harness, spec(8, priority=25), hours=1)
    harness.submit(spec(8, priority=25))
    harness.tick()  # a search that finds nothing to preempt
    assert plans(harness) == []
    checkpoint = Checkpoint("/ck/9", at=harness.now)
    status = AttemptStatus(old, 1, 7, 1_000.0, checkpoint=checkpoint)
    harness.tell(agent_inputs.AgentReported("a", status))
    high = harness.submit(spec(8, priority=75))
    harness.tick()
    assert plans(harness) == [(high, [old])]


def test_a_nomination_ends_with_its_node_and_its_gpu() -> None:
    for break_it in (
        lambda harness: harness.tell_drain("a"),
        lambda harness: harness.tell(agent_inputs.LinkWentDown("a", "cut")),
        lambda harness: harness.tell(agent_inputs.GpuReported("a", "GPU-a-3", GpuHealth.LOST, "xid")),
        lambda harness: harness.join("a", boot="b2", gpus=4, attempts=(AttemptStatus(1, 1, 7, 1.0),)),
    ):
        harness = harness_of("a")
        running(harness, spec(8, priority=25))
        high = harness.submit(spec(8, priority=75))
        harness.tick()
        break_it(harness)
        harness.tick()
        assert any(isinstance(event, PreemptionDropped) for event in harness.events)
        assert not harness.state.claims
        assert harness.job(high).state is JobState.QUEUED


def test_a_cancelled_nominee_frees_its_nomination() -> None:
    for ask in (job_inputs.Cancel, job_inputs.Hold):
        harness = harness_of("a")
        low = running(harness, spec(8, priority=25))
        high = harness.submit(spec(8, priority=75))
        harness.tick()
        harness.tell(ask(high, "ada"))
        leave(harness, low)
        assert [start.job for start in harness.tick()] == [low]


def test_cancelling_a_victim_ends_it_for_good() -> None:
    harness = harness_of("a")
    low = running(harness, spec(8, priority=25))
    high = harness.submit(spec(8, priority=75))
    harness.tick()
    harness.tell(job_inputs.Cancel(low, "ada"))
    harness.exit(low, None, signal=15, why="preempted")
    assert harness.job(low).state is JobState.CANCELLED
    assert [start.job for start in harness.tick()] == [high]


def test_a_preempted_job_whose_host_reboots_meanwhile_is_queued_again() -> None:
    """The preemption promised the job a requeue; losing the host does not take that away."""
    harness = harness_of("a")
    low = running(harness, spec(8, priority=25))
    harness.submit(spec(8, priority=75))
    harness.tick()
    harness.join("a", boot="b2")
    assert harness.job(low).state is JobState.QUEUED
    assert "preempted by job 2, and then lost" in harness.job(low).detail


def test_an_operator_preempts_a_job_and_may_hold_it() -> None:
    harness = EngineHarness()
    harness.join("a")
    job = running(harness, spec(8))
    harness.tell(job_inputs.Preempt(job, "root", hold=True))
    assert harness.refuse(job_inputs.Preempt(job, "root")).code == "conflict"
    assert harness.job(job).reason is Reason.GRACE
    leave(harness, job)
    assert (harness.job(job).state, harness.job(job).held) == (JobState.QUEUED, True)
    assert harness.job(job).detail == "preempted by root"
    assert harness.refuse(job_inputs.Preempt(job, "root")).code == "conflict"
    assert harness.refuse(job_inputs.Preempt(99, "root")).code == "not_found"
    harness.tell(job_inputs.Release(job, "root"))
    assert [start.attempt for start in harness.tick()] == [2]


def test_a_job_without_victims_waits() -> None:
    harness = harness_of("a", priority=PriorityStrategy(least=75, gap=50))
    running(harness, spec(8, priority=50))
    harness.submit(spec(8, priority=60))
    harness.submit(spec(8, priority=99))
    harness.tick()
    assert plans(harness) == []
    critical = harness.submit(spec(8, priority=100))
    harness.tick()
    assert plans(harness) == [(critical, [1])]


def test_the_pressure_strategy_stops_low_priority_jobs() -> None:
    harness = EngineHarness(replace(PIPELINE, strategies=(PressureStrategy(),), guards=UNGUARDED))
    harness.join("a")
    scavenger, normal = running(harness, spec(4, priority=0)), running(harness, spec(4, priority=50))
    harness.submit(spec(4, priority=10))
    harness.tick()
    assert plans(harness) == []
    slightly = harness.submit(spec(4, priority=25))
    harness.submit(spec(4, priority=100))
    harness.tick()
    assert [victims for _, victims in plans(harness)] == [[scavenger]]
    assert harness.job(normal).stopping is None
    assert harness.job(slightly).reason is not Reason.PREEMPTING  # the job of higher priority comes first


@pytest.mark.parametrize("mode", list(BACKFILLS.values()))
def test_preemption_is_the_same_under_every_backfill_mode(mode: Backfill) -> None:
    harness = harness_of("a", "b", backfill=mode)
    for _ in range(2):
        running(harness, spec(8, priority=25, time_limit_s=5 * HOUR), hours=0.5)
    waiting = harness.submit(spec(8, priority=25, time_limit_s=HOUR))
    high = [harness.submit(spec(8, priority=75, time_limit_s=HOUR)) for _ in range(2)]
    harness.tick()
    assert sorted(plans(harness)) == [(high[0], [2]), (high[1], [1])]
    leave(harness, 1)
    leave(harness, 2)
    assert sorted(start.job for start in harness.tick()) == high
    assert harness.job(waiting).state is JobState.QUEUED


def test_explain_names_the_preemptor_and_the_latest_start() -> None:
    harness = harness_of("a")
    low = running(harness, spec(8, priority=25))
    high = harness.submit(spec(8, priority=75))
    harness.tick()
    why = harness.engine.explain(harness.job(high), harness.now)
    assert why.reason is Reason.PREEMPTING
    assert why.sentence == f"starts on a as soon as job {low} has left, in 1m00s at the latest"
    assert (
        harness.engine.explain(harness.job(low), harness.now).sentence
        == f"is being stopped: preempted by job {high}"
    )
    leave(harness, low)
    assert harness.engine.explain(harness.job(high), harness.now).sentence == "starts on a in the next cycle"


def test_forecast_includes_preemptions() -> None:
    harness = harness_of("a")
    low = running(harness, spec(8, priority=25, time_limit_s=5 * HOUR), hours=1)
    urgent = job_inputs.Submit(spec(8, priority=75, time_limit_s=HOUR), "bo")
    ahead = forecast(fork(harness.engine), harness.now, [urgent])
    assert [(plan.job, plan.victims[0].job, plan.victims[0].gpu_hours) for plan in ahead.plans] == [
        (2, low, 8.0)
    ]
    assert ahead.starts[2].at == harness.now + 60.0
    assert ahead.starts[low].at == harness.now + 60.0 + HOUR
    assert plans(harness) == []


def test_preemptor_starts_on_the_planned_allocations() -> None:
    harness = harness_of("a")
    running(harness, spec(8, priority=25))
    harness.submit(spec(4, priority=75))
    harness.tick()
    leave(harness, 1)
    harness.tick()
    (plan,) = [event for event in harness.events if isinstance(event, PreemptionPlanned)]
    placed = [event for event in harness.events if isinstance(event, JobPlaced)][-1]
    assert placed.allocations == plan.allocations
    assert [type(event) for event in harness.events].count(JobPreempted) == 1


def test_the_preemptor_of_a_victim_is_recorded_although_the_victim_is_cancelled() -> None:
    harness = harness_of("a")
    low = running(harness, spec(8, priority=25))
    high = harness.submit(spec(8, priority=75))
    harness.tick()
    harness.tell(job_inputs.Cancel(low, "ada"))
    assert harness.restarted().job(low).yields_to == harness.job(low).yields_to == (high,)


def stretched(early: JobSpec | None = None) -> tuple[EngineHarness, int, int]:
    """An elastic job on half of three nodes gives up node b for a job of priority 75."""
    harness = harness_of("a", "b", "c")
    elastic = running(harness, spec(12, nodes=3, priority=10, gang=Gang(2, elastic=True)))
    for node in "abc":
        running(harness, spec(4, priority=100, affinity=(parse_term(f"node in {node}"),)))
    harness.now += HOUR
    if early is not None:
        harness.submit(early)
    high = harness.submit(spec(4, priority=75))
    harness.tick()
    assert plans(harness) == [(high, [elastic])]
    assert harness.stops() == [("b", elastic)]
    harness.exit(3)  # b has four other GPUs free now
    return harness, elastic, high


def test_nodes_given_up_by_an_elastic_job_are_kept_for_the_preemptor_when_the_whole_job_must_leave() -> None:
    harness, elastic, high = stretched()
    gang = harness.submit(spec(8, nodes=2, priority=75))
    harness.tick()
    assert plans(harness) == [(high, [elastic]), (gang, [elastic])]
    kept = {harness.job(each).claim[-1] for each in (high, gang)}
    assert {each.node for each in kept} == {"b"}
    assert len({hold.uuid for each in kept for hold in each.gpus}) == 8


@pytest.mark.parametrize("cancelled", [False, True])
def test_restart_keeps_the_preemptor_of_each_node_that_an_elastic_job_leaves(cancelled: bool) -> None:
    harness, elastic, high = stretched(early=spec(8, nodes=2, priority=75, hold=True))
    gang = high - 1
    harness.tell(job_inputs.Release(gang, "ada"))
    harness.tick()
    assert plans(harness) == [(high, [elastic]), (gang, [elastic])]
    if cancelled:
        harness.tell(job_inputs.Cancel(high, "ada"))
    left = {node.name: dict(node.leaving) for node in harness.state.nodes}
    assert left["b"] == {elastic: gang if cancelled else high}
    other = harness.restarted()
    assert {node.name: dict(node.leaving) for node in other.state.nodes} == left
    assert find_violations(other.state) == []


def test_nodes_given_up_for_two_preemptors_count_as_free_once() -> None:
    harness, elastic, _high = stretched()
    harness.submit(spec(8, nodes=2, priority=75))
    harness.tick()
    transfers = [*pending_transfers(harness.state, EXEMPT_QUOTA)]
    gone = [each for _, given, sign in transfers for each in given if sign < 0]
    assert sorted(each.node for each in gone) == ["a", "b", "c"]
    assert {job.id for job, _, sign in transfers if sign < 0} == {elastic}


def test_reservation_avoids_gpus_kept_for_a_nomination_while_victims_leave() -> None:
    harness = harness_of("a", backfill=Conservative())
    first, second = (running(harness, spec(2, priority=25)) for _ in range(2))
    running(harness, spec(2, priority=90))
    harness.now += HOUR
    high = harness.submit(spec(4, priority=75, gpu=GpuWish(numa="require")))
    harness.tick()
    assert plans(harness) == [(high, [first, second])]
    leave(harness, first)
    assert [start.job for start in harness.tick()] == [first]  # other GPUs beside it are free
    assert harness.gpus_of(first) == [6, 7]
    leave(harness, second)
    assert [start.job for start in harness.tick()] == [high]
    assert harness.gpus_of(high) == [0, 1, 2, 3]


def test_quota_that_a_nominated_job_borrows_counts_as_lent() -> None:
    """Projects p and q may use 16 GPUs together. A nominated job of p will borrow the last 4 of them."""
    projects = {"p": ProjectQuotaTable(gpus=8, borrow=BorrowTable(gpus=8)), "q": ProjectQuotaTable(gpus=8)}
    harness = harness_of("a", "b", "c", rules=QuotaConfig({}, LocalQuotas(projects=projects)))
    running(harness, spec(8, project="p", preemptible=False))
    running(harness, spec(4, project="q", preemptible=False))
    other = running(harness, spec(4, preemptible=False))
    victim = running(harness, spec(8, priority=25))
    high = harness.submit(spec(4, project="p", priority=75))
    harness.tick()
    assert plans(harness) == [(high, [victim])]
    harness.exit(other)
    late = harness.submit(spec(4, project="p"))
    assert harness.tick() == []
    assert "with all that projects may lend each other" in harness.why(late).sentence
    leave(harness, victim)
    harness.tick()
    assert len(harness.nodes_of(high)) == 1
    assert harness.nodes_of(late) == []
