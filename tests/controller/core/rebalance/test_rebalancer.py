"""Rebalancing: which jobs move, where to, at what cost, and that no job is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.framework.interfaces import PreemptionGuards, WeightedScorer
from controller.core.invariants import find_violations
from controller.core.model.decision.decision import Accepted
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.events.nominations import (
    MovePlanned,
    MoveUndone,
    PreemptionDropped,
    PreemptionPlanned,
    RebalancePlanned,
)
from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs, policy_inputs
from controller.core.quota.quota_config import NO_QUOTAS, QuotaConfig
from controller.core.rebalance.proposals import DEFRAGMENT, DRAIN, LOAD, Proposal, RebalanceRules
from controller.core.state.job_and_node_rows import job_row
from controller.core.state.note_rows import all_notes
from controller.plugins.backfill.kinds import Greedy
from controller.plugins.pickers.share_pickers import SpreadPicker as Roomiest
from controller.plugins.scorers.resource_use import SpreadScorer
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.orders import Stop
from wire.agent.reports import AttemptStatus, Checkpoint
from wire.job.placement.gpu_requirements import GpuWish
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

HOUR = 3600.0
UNGUARDED = PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0)
PROPOSE = RebalanceRules(mode="propose", restart_s=0.0, min_ratio=1.0)
SPREADING = replace(PIPELINE, scorers=(WeightedScorer(SpreadScorer(), 1),))


def harness_of(
    *nodes: str,
    rules: RebalanceRules = PROPOSE,
    guards: PreemptionGuards = UNGUARDED,
    limits: QuotaConfig = NO_QUOTAS,
    **more: Any,
) -> EngineHarness:
    harness = EngineHarness(replace(SPREADING, rebalance=rules, guards=guards, rules=limits, **more))
    for name in nodes:
        harness.join(name)
    return harness


def saving(gpus: float, **more: Any) -> JobSpec:
    return spec(gpus, **{"checkpoint_signal": "USR1", **more})


def running(harness: EngineHarness, asked: JobSpec, hours: float = 0.0) -> int:
    """A job that has started, and that much time passed since."""
    job = harness.submit(asked)
    harness.tick()
    assert harness.job(job).members, "it found no place"
    harness.start(job)
    harness.now += hours * HOUR
    return job


def proposals(harness: EngineHarness) -> list[Proposal]:
    return harness.engine.rebalancer.proposals(harness.now)


def moves(proposal: Proposal) -> list[tuple[int, list[str], list[str]]]:
    """(job, from, to) of every move."""
    return [
        (move.job, [each.node for each in move.origin], [each.node for each in move.target])
        for move in proposal.moves
    ]


def run(harness: EngineHarness, proposal: str = "") -> tuple[int, ...]:
    reply = harness.tell(policy_inputs.Rebalance("root", proposal)).reply
    assert isinstance(reply, Accepted), reply
    return reply.jobs


def leave(harness: EngineHarness, job: int, saved: str = "") -> None:
    """The agents report the end of the moved job, with its checkpoint."""
    checkpoint = Checkpoint(saved, at=harness.now) if saved else None
    harness.exit(job, None, signal=15, why="preempted", checkpoint=checkpoint)


def fragmented(**more: Any) -> tuple[EngineHarness, int, int, int]:
    """Two nodes of 8 GPUs with a job of 2 on each, and one that wants 8 on one node."""
    harness = harness_of("a", "b", **more)
    first = running(harness, saving(2), hours=2)
    second = running(harness, saving(2), hours=1)
    assert (harness.nodes_of(first), harness.nodes_of(second)) == (["a"], ["b"])
    big = harness.submit(spec(8, nodes=1))
    assert harness.tick() == []
    return harness, first, second, big


def test_a_move_makes_room_for_a_waiting_job() -> None:
    harness, first, second, big = fragmented()
    [proposal] = proposals(harness)
    assert proposal.kind == DEFRAGMENT
    assert proposal.for_job == big
    assert moves(proposal) == [(second, ["b"], ["a"])], "the one that loses least"
    assert proposal.gpu_hours == 2.0
    assert (proposal.before.whole_gpus, proposal.after.whole_gpus) == (0, 0)
    assert (proposal.before.free_gpus, proposal.after.free_gpus) == (12, 4)
    assert run(harness, proposal.id) == (second,)
    assert harness.stops() == [("b", second)]
    assert (harness.job(second).state, harness.job(second).reason) == (JobState.RUNNING, Reason.MOVING)
    assert "to a" in harness.why(second).sentence
    assert harness.job(big).reason is Reason.PREEMPTING
    harness.now += 5
    leave(harness, second, "/ckpt/7")
    assert (harness.job(second).state, harness.job(second).reason) == (JobState.QUEUED, Reason.MOVING)
    started = harness.tick()
    assert {start.job: start.attempt for start in started} == {big: 1, second: 2}
    assert harness.nodes_of(second) == ["a"]
    [again] = [start for start in started if start.job == second]
    assert again.checkpoint is not None
    assert again.checkpoint.path == "/ckpt/7"
    assert harness.job(second).move is not None, "not before it runs there"
    harness.start(second)
    [move] = harness.job(second).moves
    assert (move.done_at, move.undone, move.to) == (harness.now, "", ("a",))
    assert harness.job(second).preemptions[0].by == f"rebalancing {proposal.id}"
    assert harness.job(first).attempt == 1


# (case, running jobs as (GPUs, more) in start order on nodes a, b, c of 8 GPUs, rules, the jobs that move).
# A waiting job needs 8 GPUs on one node.
MOVED: list[tuple[str, list[tuple[float, dict[str, Any]]], dict[str, Any], list[int] | None]] = [
    ("those that lose least", [(3, {}), (2, {}), (4, {})], {}, [2]),
    ("not one that cannot save its state", [(3, {}), (2, {"checkpoint_signal": ""}), (4, {})], {}, [1]),
    (
        "unless the rules say so",
        [(gpus, {"checkpoint_signal": ""}) for gpus in (3, 2, 4)],
        {"without_checkpoint": True},
        [2],
    ),
    ("not one that will not be preempted", [(3, {}), (2, {"preemptible": False}), (4, {})], {}, [1]),
    ("not one that has not run long enough", [(3, {}), (2, {"min_runtime_s": 1e6}), (4, {})], {}, [1]),
    ("nobody for whom there is no other place", [(5, {}), (4, {}), (5, {})], {}, None),
    ("nobody at too high a price", [(3, {}), (2, {}), (4, {})], {"max_gpu_hours": 1.0}, None),
    ("nobody for too little", [(3, {}), (2, {}), (4, {})], {"min_ratio": 1e6}, None),
    ("nobody where nothing may move", [(3, {}), (2, {}), (4, {})], {"max_moves": 0}, None),
    ("nobody where that kind is not wanted", [(3, {}), (2, {}), (4, {})], {"kinds": (DRAIN,)}, None),
    ("nobody where it is off", [(3, {}), (2, {}), (4, {})], {"mode": "off"}, None),
]


@pytest.mark.parametrize(
    ("there", "rules", "moved"), [row[1:] for row in MOVED], ids=[row[0] for row in MOVED]
)
def test_jobs_chosen_to_move(
    there: list[tuple[float, dict[str, Any]]], rules: dict[str, Any], moved: list[int] | None
) -> None:
    harness = harness_of("a", "b", "c", rules=replace(PROPOSE, **rules))
    for gpus, more in there:
        job = harness.submit(saving(gpus, **{"time_limit_s": 20 * HOUR, **more}))
        harness.tick()
        harness.start(job)
    harness.now += HOUR
    harness.submit(spec(8, nodes=1, time_limit_s=HOUR))
    harness.tick()
    found = [[move.job for move in proposal.moves] for proposal in proposals(harness)]
    assert found == ([] if moved is None else [moved])


def test_several_jobs_move_up_to_max_moves() -> None:
    for most, expected in ((2, 1), (1, 0)):
        harness = harness_of("a", "b", "c", rules=replace(PROPOSE, max_moves=most))
        for gpus in (2, 2, 2, 3, 3, 3):
            running(harness, saving(gpus))
        harness.now += HOUR
        harness.submit(spec(8, nodes=1))
        harness.tick()
        found = proposals(harness)
        assert len(found) == expected
        assert [sorted(len(each.moves) for each in found)] == [[2] * expected]


def test_no_move_is_proposed_for_a_job_that_starts_as_early_without_it() -> None:
    harness = harness_of("a", "b")
    running(harness, saving(2, time_limit_s=30.0))
    running(harness, saving(2, time_limit_s=30.0))
    harness.submit(spec(8, nodes=1))
    harness.tick()
    assert proposals(harness) == [], "moving takes the grace of a minute"


def test_the_first_waiting_job_is_not_delayed() -> None:
    """A later class is helped only if that does not delay the first waiting job."""
    harness = harness_of("a", "b", "c")
    limited = saving(2, time_limit_s=10 * HOUR)
    for _ in range(3):
        running(harness, limited)
    harness.now += HOUR
    first = harness.submit(spec(24, nodes=3))
    harness.tick()
    assert harness.engine.cycle.head is not None
    assert harness.engine.cycle.head[1] == first
    harness.submit(spec(8, nodes=1, time_limit_s=HOUR))
    harness.tick()
    assert proposals(harness) == [], "whoever moves begins a new run, and the first needs all nodes"
    free = harness_of("a", "b", "c", backfill=Greedy())
    for _ in range(3):
        running(free, limited)
    free.submit(spec(24, nodes=3))
    small = free.submit(spec(8, nodes=1, time_limit_s=HOUR))
    # Greedy reserves nothing. A move cannot help the first job, but the second.
    free.tick()
    assert [each.for_job for each in proposals(free)] == [small]


def test_a_node_that_drains_is_emptied() -> None:
    harness = harness_of("a", "b")
    job = running(harness, saving(4, time_limit_s=10 * HOUR), hours=1)
    fixed = running(harness, spec(1))
    harness.tell_drain("a")
    [proposal] = proposals(harness)
    assert (proposal.kind, proposal.node, proposal.rest) == (DRAIN, "a", 0)
    assert moves(proposal) == [(job, ["a"], ["b"])]
    assert proposal.earlier_s == 9 * HOUR - 120.0, "it may take a minute to save its state, and one to end"
    run(harness)
    leave(harness, job)
    assert [start.job for start in harness.tick()] == [job]
    assert harness.nodes_of(fixed) == harness.nodes_of(job) == ["b"]
    assert proposals(harness) == []


def test_free_gpus_are_gathered_while_the_queue_is_empty() -> None:
    harness = harness_of("a", "b", rules=replace(PROPOSE, gathered_hours=1.0))
    small, large = running(harness, saving(1), hours=0.5), running(harness, saving(3))
    [proposal] = proposals(harness)
    assert (proposal.kind, proposal.for_job, proposal.node) == (DEFRAGMENT, None, "a")
    assert moves(proposal) == [(small, ["a"], ["b"])]
    assert (proposal.before.fragmentation, proposal.after.fragmentation) == (1.0, 1 - 8 / 12)
    assert proposal.worth == 8.0
    run(harness)
    leave(harness, small)
    harness.tick()
    assert harness.nodes_of(small) == harness.nodes_of(large) == ["b"]
    assert proposals(harness) == []


def test_loads_are_balanced_if_configured() -> None:
    harness = harness_of("a", "b", rules=replace(PROPOSE, kinds=(LOAD,), load_gap=0.4))
    harness.tell_drain("b")
    jobs = [running(harness, saving(2)) for _ in range(4)]
    harness.tell(node_inputs.Resume("b", "root"))
    [proposal] = proposals(harness)
    assert proposal.gap == (1.0, 0.0)
    assert moves(proposal) == [(job, ["a"], ["b"]) for job in jobs[:2]]
    run(harness)
    for job in jobs[:2]:
        leave(harness, job)
    harness.tick()
    assert [harness.nodes_of(job) for job in jobs] == [["b"], ["b"], ["a"], ["a"]]
    assert proposals(harness) == []


def test_the_target_is_reserved_from_the_order_on() -> None:
    harness, _, second, big = fragmented()
    run(harness)
    harness.submit(spec(4, priority=100))
    other = harness.submit(spec(4, priority=100))
    assert [start.job for start in harness.tick()] == [other - 1], (
        "on a there are 6 GPUs, of which 2 are kept"
    )
    leave(harness, second)
    assert {start.job for start in harness.tick()} == {big, second}
    assert harness.job(other).state is JobState.QUEUED


def test_a_proposal_that_no_longer_holds_is_refused() -> None:
    harness, _, second, _ = fragmented()
    [proposal] = proposals(harness)
    harness.exit(second)
    refusal = harness.refuse(policy_inputs.Rebalance("root", proposal.id))
    assert (refusal.code, refusal.where) == ("not_found", "proposal")
    assert "corral rebalance" in refusal.hint


def test_rebalance_is_refused_when_it_is_off() -> None:
    harness, *_ = fragmented(rules=RebalanceRules())
    assert harness.refuse(policy_inputs.Rebalance("root")).code == "conflict"


def undone(harness: EngineHarness) -> list[tuple[int, str]]:
    return [(event.job, event.why) for event in harness.events if isinstance(event, MoveUndone)]


def test_a_moving_job_returns_to_its_old_node_when_the_target_goes_away() -> None:
    harness, first, second, big = fragmented()
    run(harness)
    harness.tell(agent_inputs.LinkWentDown("a", "cable"))
    assert harness.tick() == []
    assert undone(harness) == [(second, "node a is suspect")]
    assert harness.job(big).state is JobState.QUEUED
    assert not harness.job(big).claim
    assert harness.job(second).reason is Reason.MOVING
    assert "its former nodes" in harness.why(second).sentence
    leave(harness, second, "/ckpt/3")
    [start] = harness.tick()
    assert (start.job, start.attempt, harness.nodes_of(second)) == (second, 2, ["b"])
    assert start.checkpoint is not None
    assert start.checkpoint.path == "/ckpt/3"
    assert harness.job(first).attempt == 1
    assert harness.job(second).moves[0].undone == "node a is suspect"


def test_a_moving_job_returns_to_its_old_node_when_a_target_gpu_is_cordoned() -> None:
    harness, _, second, _ = fragmented()
    run(harness)
    [claim] = harness.job(second).claim
    index = int(claim.gpus[0].uuid.rsplit("-", 1)[1])
    harness.tell(node_inputs.CordonGpu("a", index, "root", "sparks"))
    harness.tick()
    leave(harness, second)
    assert [start.job for start in harness.tick()] == [second]
    assert harness.nodes_of(second) == ["b"]


def test_a_moving_job_returns_to_its_old_node_when_the_target_drains_after_it_stopped() -> None:
    harness, _, second, big = fragmented()
    run(harness)
    leave(harness, second)
    harness.tell_drain("a")
    assert [start.job for start in harness.tick()] == [second]
    assert harness.nodes_of(second) == ["b"]
    assert harness.job(big).state is JobState.QUEUED


def test_a_job_that_cannot_start_at_its_target_is_queued_if_the_waiting_job_has_started() -> None:
    harness, _, second, big = fragmented()
    run(harness)
    leave(harness, second)
    behind = harness.submit(spec(2))
    harness.tick()
    assert harness.job(big).state is JobState.SCHEDULED
    status = AttemptStatus(second, 2, 0, None, harness.now, why="launch_failed: no such directory")
    harness.tell(agent_inputs.AgentReported("a", status))
    assert harness.job(second).state is JobState.QUEUED
    assert undone(harness)[0][0] == second
    assert "could not start on a" in harness.job(second).detail
    assert harness.job(behind).state is not JobState.QUEUED
    assert [start.job for start in harness.tick()] == [second], "node a has room for any job"
    harness.start(second)
    assert harness.job(second).state is JobState.RUNNING


def test_a_job_that_cannot_start_at_its_target_returns_if_it_moved_for_no_waiting_job() -> None:
    harness = harness_of("a", "b")
    small, _ = running(harness, saving(1), hours=0.5), running(harness, saving(3))
    run(harness)
    leave(harness, small)
    harness.tick()
    assert harness.nodes_of(small) == ["b"]
    status = AttemptStatus(small, 2, 0, None, harness.now, why="launch_failed: no such directory")
    harness.tell(agent_inputs.AgentReported("b", status))
    assert [start.job for start in harness.tick()] == [small]
    assert (harness.nodes_of(small), harness.job(small).attempt) == (["a"], 3)


def test_a_moving_job_that_ends_or_is_cancelled_frees_its_target() -> None:
    for how in ("completes", "is cancelled", "is cancelled later"):
        harness, _, second, big = fragmented()
        run(harness)
        if how == "completes":
            harness.exit(second, 0)
        elif how == "is cancelled":
            harness.tell(job_inputs.Cancel(second, "ada"))
            harness.exit(second, None, signal=15, why="cancelled")
        else:
            leave(harness, second)
            harness.tell(job_inputs.Cancel(second, "ada"))
        assert harness.job(second).state.terminal
        assert not harness.job(second).claim
        assert [start.job for start in harness.tick()] == [big]
        assert not harness.state.claims


def test_a_moved_job_does_not_move_again_soon() -> None:
    harness, _, second, big = fragmented(guards=PreemptionGuards(min_runtime_s=0.0, cooldown_s=HOUR))
    run(harness)
    leave(harness, second)
    harness.tick()
    for job in (second, big):
        harness.start(job)
    harness.exit(big)
    harness.tell_drain("a")
    assert second not in [move.job for each in proposals(harness) for move in each.moves]
    harness.now += HOUR
    assert second in [move.job for each in proposals(harness) for move in each.moves]


def test_a_restarted_controller_continues_moves_under_way() -> None:
    harness, _, second, big = fragmented()
    run(harness)
    for step in range(3):
        other = harness.restarted()
        assert find_violations(other.state) == []
        assert [job_row(job, with_spec=True) for job in other.state.jobs.values()] == [
            job_row(job, with_spec=True) for job in harness.state.jobs.values()
        ]
        assert all_notes(other.state) == all_notes(harness.state)
        assert [node.leaving for node in other.state.nodes] == [node.leaving for node in harness.state.nodes]
        if step == 0:
            leave(harness, second)
        else:
            harness.tick()
    assert harness.nodes_of(second) == ["a"]
    assert harness.job(big).members


def test_the_journal_has_the_steps_of_a_move_in_order() -> None:
    harness, _, second, big = fragmented()
    run(harness)
    leave(harness, second)
    harness.tick()
    steps = [
        (type(event), getattr(event, "job", None))
        for event in harness.events
        if isinstance(
            event,
            RebalancePlanned | PreemptionPlanned | MovePlanned | MoveUndone | PreemptionDropped | JobPlaced,
        )
    ]
    assert steps[2:] == [
        (RebalancePlanned, None),
        (PreemptionPlanned, big),
        (MovePlanned, second),
        (JobPlaced, second),
        (JobPlaced, big),
    ] or steps[2:] == [
        (RebalancePlanned, None),
        (PreemptionPlanned, big),
        (MovePlanned, second),
        (JobPlaced, big),
        (JobPlaced, second),
    ]
    [order] = [sent.frame for sent in harness.sent if isinstance(sent.frame, Stop)]
    assert (order.why, order.checkpoint_s) == ("preempted", spec(1, checkpoint_signal="USR1").checkpoint_s)


def test_a_move_is_not_undone_after_a_restart_until_the_target_had_time_to_join() -> None:
    for comes in (True, False):
        harness, first, second, big = fragmented()
        run(harness)
        again = harness.restarted()
        assert again.tick() == []
        again.join("b", attempts=(AttemptStatus(second, 1, 102, started_at=1.0),))
        leave(again, second, "/ckpt/3")
        assert [start.job for start in again.tick()] == [big], "node a has not joined yet"
        assert again.job(second).move is not None
        if comes:
            again.join("a", attempts=(AttemptStatus(first, 1, 101, started_at=1.0),))
            assert [start.job for start in again.tick()] == [second]
            assert again.nodes_of(second) == ["a"]
        else:
            again.tell(agent_inputs.LinkWentDown("a", "no route to host"))
            assert again.tick() == []
            assert again.job(second).state is JobState.QUEUED
            assert "no route" not in again.why(second).sentence, "it waits for room, as any other"
            assert again.job(second).moves[-1].undone == "node a is suspect"


def test_a_moving_job_keeps_its_licences() -> None:
    for back in (False, True):
        harness = harness_of("a", "b", limits=QuotaConfig(licences={"solver": 1}))
        running(harness, saving(2), hours=2)
        second = running(harness, saving(2, licences={"solver": 1}), hours=1)
        harness.submit(spec(8, nodes=1))
        harness.tick()
        run(harness)
        if back:
            harness.tell_drain("a")
            harness.tick()
        leave(harness, second)
        other = harness.submit(spec(0, licences={"solver": 1}, priority=100))
        assert second in [start.job for start in harness.tick()]
        assert harness.job(other).state is JobState.QUEUED
        assert harness.state.licences.used == {"solver": 1}


# (case, jobs submitted one by one on a node of 8 GPUs in two NUMA nodes, those that end again, the new job)
WITHIN: list[tuple[str, list[float], list[int], JobSpec]] = [
    ("a GPU of two that are half used", [6, 0.5, 0.5], [], spec(1)),
    ("all GPUs of one NUMA node", [1, 3, 1, 3], [2, 4], spec(4, gpu=GpuWish(numa="require"))),
]


@pytest.mark.parametrize(
    ("there", "over", "asked"), [row[1:] for row in WITHIN], ids=[row[0] for row in WITHIN]
)
def test_jobs_move_within_a_node_as_well(there: list[float], over: list[int], asked: JobSpec) -> None:
    harness = harness_of("a", picker=Roomiest())
    jobs = [running(harness, saving(gpus)) for gpus in there]
    for number in over:
        harness.exit(jobs[number - 1])
    harness.now += HOUR
    waiting = harness.submit(asked)
    assert harness.tick() == []
    [proposal] = proposals(harness)
    assert proposal.for_job == waiting
    [(mover, *_)] = moves(proposal)
    run(harness)
    leave(harness, mover)
    assert {start.job for start in harness.tick()} == {mover, waiting}


def test_a_job_that_waits_for_a_licence_stays_first_during_a_rebalance() -> None:
    """Free nodes do not help it, and no later job is helped at its cost."""
    harness = harness_of("a", "b", limits=QuotaConfig(licences={"solver": 1}))
    limited = {"time_limit_s": 2 * HOUR}
    for licences in ({"solver": 1}, {}):
        running(harness, saving(2, licences=licences, **limited))
    harness.now += HOUR
    harness.submit(spec(14, nodes=2, licences={"solver": 1}, priority=100, **limited))
    harness.submit(spec(8, nodes=1, time_limit_s=30 * HOUR))
    harness.tick()
    assert proposals(harness) == []


def test_shared_gpus_are_gathered_as_well() -> None:
    harness = harness_of("a", picker=Roomiest())
    for share in (0.5, 0.25):
        running(harness, saving(share))
    fixed = running(harness, spec(1))
    assert [harness.gpus_of(job) for job in (1, 2, fixed)] == [[0], [1], [2]]
    [proposal] = proposals(harness)
    assert moves(proposal) == [(2, ["a"], ["a"])], "the lesser of the two"
    assert (proposal.before.free_gpus, proposal.after.free_gpus, proposal.worth) == (5, 6, 1.0)
    run(harness)
    leave(harness, 2)
    harness.tick()
    assert [harness.gpus_of(job) for job in (1, 2, fixed)] == [[0], [0], [2]]
    assert proposals(harness) == []
