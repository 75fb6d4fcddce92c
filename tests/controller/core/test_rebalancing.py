"""Jobs that move: who, where to, at what price, for what; and that nobody is lost on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core import inputs
from controller.core.check import check
from controller.core.events import (
    JobPlaced,
    MovePlanned,
    MoveUndone,
    PreemptionDropped,
    PreemptionPlanned,
    RebalancePlanned,
)
from controller.core.inputs import Accepted
from controller.core.notes import notes_of
from controller.core.plugin import Backfill, Guards, Weighted
from controller.core.proposals import DEFRAGMENT, DRAIN, LOAD, Proposal, RebalanceRules
from controller.core.quotas import NO_RULES, Rules
from controller.core.records import job_row
from controller.plugins.pickers.spread import Spread as Roomiest
from controller.plugins.scorers.spread import Spread
from tests.worlds import PIPELINE, World, spec
from wire.frames import AttemptStatus, Checkpoint, Stop
from wire.gpuwish import GpuWish
from wire.spec import JobSpec
from wire.words import JobState, Reason

HOUR = 3600.0
UNGUARDED = Guards(min_runtime_s=0.0, cooldown_s=0.0)
PROPOSE = RebalanceRules(mode="propose", restart_s=0.0, min_ratio=1.0)
SPREADING = replace(PIPELINE, scorers=(Weighted(Spread(), 1),))


def world_of(
    *nodes: str,
    rules: RebalanceRules = PROPOSE,
    guards: Guards = UNGUARDED,
    limits: Rules = NO_RULES,
    **more: Any,
) -> World:
    world = World(replace(SPREADING, rebalance=rules, guards=guards, rules=limits, **more))
    for name in nodes:
        world.join(name)
    return world


def saving(gpus: float, **more: Any) -> JobSpec:
    return spec(gpus, **{"checkpoint_signal": "USR1", **more})


def running(world: World, asked: JobSpec, hours: float = 0.0) -> int:
    """A job that has started, and that much time passed since."""
    job = world.submit(asked)
    world.tick()
    assert world.job(job).members, "it found no place"
    world.start(job)
    world.now += hours * HOUR
    return job


def proposals(world: World) -> list[Proposal]:
    return world.engine.rebalancing.proposals(world.now)


def moves(proposal: Proposal) -> list[tuple[int, list[str], list[str]]]:
    """(job, from, to) of every move."""
    return [
        (move.job, [each.node for each in move.origin], [each.node for each in move.target])
        for move in proposal.moves
    ]


def run(world: World, proposal: str = "") -> tuple[int, ...]:
    reply = world.tell(inputs.Rebalance("root", proposal)).reply
    assert isinstance(reply, Accepted), reply
    return reply.jobs


def leave(world: World, job: int, saved: str = "") -> None:
    """The agents do as they were told; the job has saved its state first."""
    checkpoint = Checkpoint(saved, at=world.now) if saved else None
    world.exit(job, None, signal=15, why="preempted", checkpoint=checkpoint)


def fragmented(**more: Any) -> tuple[World, int, int, int]:
    """Two nodes of 8 GPUs with a job of 2 on each, and one that wants 8 on one node."""
    world = world_of("a", "b", **more)
    first = running(world, saving(2), hours=2)
    second = running(world, saving(2), hours=1)
    assert (world.nodes_of(first), world.nodes_of(second)) == (["a"], ["b"])
    big = world.submit(spec(8, nodes=1))
    assert world.tick() == []
    return world, first, second, big


def test_a_fragmented_cluster_is_put_right_for_the_job_that_waits() -> None:
    world, first, second, big = fragmented()
    [proposal] = proposals(world)
    assert proposal.kind == DEFRAGMENT
    assert proposal.for_job == big
    assert moves(proposal) == [(second, ["b"], ["a"])], "the one that loses least"
    assert proposal.gpu_hours == 2.0
    assert (proposal.before.whole_gpus, proposal.after.whole_gpus) == (0, 0)
    assert (proposal.before.free_gpus, proposal.after.free_gpus) == (12, 4)
    assert run(world, proposal.id) == (second,)
    assert world.stops() == [("b", second)]
    assert (world.job(second).state, world.job(second).reason) == (JobState.RUNNING, Reason.MOVING)
    assert "to a" in world.why(second).sentence
    assert world.job(big).reason is Reason.PREEMPTING
    world.now += 5
    leave(world, second, "/ckpt/7")
    assert (world.job(second).state, world.job(second).reason) == (JobState.QUEUED, Reason.MOVING)
    started = world.tick()
    assert {start.job: start.attempt for start in started} == {big: 1, second: 2}
    assert world.nodes_of(second) == ["a"]
    [again] = [start for start in started if start.job == second]
    assert again.checkpoint is not None
    assert again.checkpoint.path == "/ckpt/7"
    assert world.job(second).move is not None, "not before it runs there"
    world.start(second)
    [told] = world.job(second).moves
    assert (told.done_at, told.undone, told.to) == (world.now, "", ("a",))
    assert world.job(second).preemptions[0].by == f"rebalancing {proposal.id}"
    assert world.job(first).attempt == 1


# Jobs as (GPUs, more) in the order of their start, spread over nodes a, b, c of 8 GPUs; then somebody wants
# 8 on one node: these are moved.
WHO: list[tuple[str, list[tuple[float, dict[str, Any]]], dict[str, Any], list[int] | None]] = [
    ("those that lose least", [(3, {}), (2, {}), (4, {})], {}, [2]),
    ("not one that cannot save its state", [(3, {}), (2, {"checkpoint_signal": ""}), (4, {})], {}, [1]),
    (
        "unless the rules say so",
        [(3, {}), (2, {"checkpoint_signal": ""}), (4, {})],
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


@pytest.mark.parametrize(("there", "rules", "moved"), [row[1:] for row in WHO], ids=[row[0] for row in WHO])
def test_who_is_moved(
    there: list[tuple[float, dict[str, Any]]], rules: dict[str, Any], moved: list[int] | None
) -> None:
    world = world_of("a", "b", "c", rules=replace(PROPOSE, **rules))
    for gpus, more in there:
        job = world.submit(saving(gpus, **{"time_limit_s": 20 * HOUR, **more}))
        world.tick()
        world.start(job)
    world.now += HOUR
    world.submit(spec(8, nodes=1, time_limit_s=HOUR))
    world.tick()
    found = [[move.job for move in proposal.moves] for proposal in proposals(world)]
    assert found == ([] if moved is None else [moved])


def test_several_move_if_one_is_not_enough_and_no_more_than_may() -> None:
    for most, expected in ((2, 1), (1, 0)):
        world = world_of("a", "b", "c", rules=replace(PROPOSE, max_moves=most))
        for gpus in (2, 2, 2, 3, 3, 3):
            running(world, saving(gpus))
        world.now += HOUR
        world.submit(spec(8, nodes=1))
        world.tick()
        found = proposals(world)
        assert len(found) == expected
        assert [sorted(len(each.moves) for each in found)] == [[2] * expected]


def test_no_room_is_made_that_comes_as_soon_by_itself() -> None:
    world = world_of("a", "b")
    running(world, saving(2, time_limit_s=30.0))
    running(world, saving(2, time_limit_s=30.0))
    world.submit(spec(8, nodes=1))
    world.tick()
    assert proposals(world) == [], "moving takes the grace of a minute"


def test_the_promise_to_the_first_is_kept() -> None:
    """A later class is helped only if that does not delay the first."""
    world = world_of("a", "b", "c")
    limited = saving(2, time_limit_s=10 * HOUR)
    for _ in range(3):
        running(world, limited)
    world.now += HOUR
    first = world.submit(spec(24, nodes=3))
    world.tick()
    assert world.engine.cycle.head is not None
    assert world.engine.cycle.head[1] == first
    world.submit(spec(8, nodes=1, time_limit_s=HOUR))
    world.tick()
    assert proposals(world) == [], "whoever moves begins a new run, and the first needs all nodes"
    free = world_of("a", "b", "c", backfill=Backfill.GREEDY)
    for _ in range(3):
        running(free, limited)
    free.submit(spec(24, nodes=3))
    small = free.submit(spec(8, nodes=1, time_limit_s=HOUR))
    # Greedy promises nothing. The first cannot be helped, the second can.
    free.tick()
    assert [each.for_job for each in proposals(free)] == [small]


def test_a_node_that_drains_is_emptied() -> None:
    world = world_of("a", "b")
    job = running(world, saving(4, time_limit_s=10 * HOUR), hours=1)
    fixed = running(world, spec(1))
    world.tell_drain("a")
    [proposal] = proposals(world)
    assert (proposal.kind, proposal.node, proposal.rest) == (DRAIN, "a", 0)
    assert moves(proposal) == [(job, ["a"], ["b"])]
    assert proposal.earlier_s == 9 * HOUR - 120.0, "it may take a minute to save its state, and one to end"
    run(world)
    leave(world, job)
    assert [start.job for start in world.tick()] == [job]
    assert world.nodes_of(fixed) == world.nodes_of(job) == ["b"]
    assert proposals(world) == []


def test_what_is_free_is_gathered_while_nobody_waits() -> None:
    world = world_of("a", "b", rules=replace(PROPOSE, gathered_hours=1.0))
    small, large = running(world, saving(1), hours=0.5), running(world, saving(3))
    [proposal] = proposals(world)
    assert (proposal.kind, proposal.for_job, proposal.node) == (DEFRAGMENT, None, "a")
    assert moves(proposal) == [(small, ["a"], ["b"])]
    assert (proposal.before.fragmentation, proposal.after.fragmentation) == (1.0, 1 - 8 / 12)
    assert proposal.worth == 8.0
    run(world)
    leave(world, small)
    world.tick()
    assert world.nodes_of(small) == world.nodes_of(large) == ["b"]
    assert proposals(world) == []


def test_loads_are_evened_out_where_that_is_wanted() -> None:
    world = world_of("a", "b", rules=replace(PROPOSE, kinds=(LOAD,), load_gap=0.4))
    world.tell_drain("b")
    jobs = [running(world, saving(2)) for _ in range(4)]
    world.tell(inputs.Resume("b", "root"))
    [proposal] = proposals(world)
    assert proposal.gap == (1.0, 0.0)
    assert moves(proposal) == [(job, ["a"], ["b"]) for job in jobs[:2]]
    run(world)
    for job in jobs[:2]:
        leave(world, job)
    world.tick()
    assert [world.nodes_of(job) for job in jobs] == [["b"], ["b"], ["a"], ["a"]]
    assert proposals(world) == []


def test_the_place_is_kept_from_the_order_on() -> None:
    world, _, second, big = fragmented()
    run(world)
    world.submit(spec(4, priority=100))
    other = world.submit(spec(4, priority=100))
    assert [start.job for start in world.tick()] == [other - 1], "on a there are 6 GPUs, of which 2 are kept"
    leave(world, second)
    assert {start.job for start in world.tick()} == {big, second}
    assert world.job(other).state is JobState.QUEUED


def test_a_proposal_that_does_not_hold_any_more_is_refused() -> None:
    world, _, second, _ = fragmented()
    [proposal] = proposals(world)
    world.exit(second)
    refusal = world.refuse(inputs.Rebalance("root", proposal.id))
    assert (refusal.code, refusal.where) == ("not_found", "proposal")
    assert "corral rebalance" in refusal.hint


def test_where_it_is_off_nothing_is_done() -> None:
    world, *_ = fragmented(rules=RebalanceRules())
    assert world.refuse(inputs.Rebalance("root")).code == "conflict"


def undone(world: World) -> list[tuple[int, str]]:
    return [(event.job, event.why) for event in world.events if isinstance(event, MoveUndone)]


def test_when_the_target_goes_away_the_job_goes_back_to_where_it_was() -> None:
    world, first, second, big = fragmented()
    run(world)
    world.tell(inputs.LinkWentDown("a", "cable"))
    assert world.tick() == []
    assert undone(world) == [(second, "node a is suspect")]
    assert world.job(big).state is JobState.QUEUED
    assert not world.job(big).claim
    assert world.job(second).reason is Reason.MOVING
    assert "where it was" in world.why(second).sentence
    leave(world, second, "/ckpt/3")
    [start] = world.tick()
    assert (start.job, start.attempt, world.nodes_of(second)) == (second, 2, ["b"])
    assert start.checkpoint is not None
    assert start.checkpoint.path == "/ckpt/3"
    assert world.job(first).attempt == 1
    assert world.job(second).moves[0].undone == "node a is suspect"


def test_when_a_gpu_of_the_target_falls_ill_so_it_does() -> None:
    world, _, second, _ = fragmented()
    run(world)
    [claim] = world.job(second).claim
    index = int(claim.gpus[0].uuid.rsplit("-", 1)[1])
    world.tell(inputs.CordonGpu("a", index, "root", "sparks"))
    world.tick()
    leave(world, second)
    assert [start.job for start in world.tick()] == [second]
    assert world.nodes_of(second) == ["b"]


def test_when_the_target_drains_after_it_has_left_it_goes_back_as_well() -> None:
    world, _, second, big = fragmented()
    run(world)
    leave(world, second)
    world.tell_drain("a")
    assert [start.job for start in world.tick()] == [second]
    assert world.nodes_of(second) == ["b"]
    assert world.job(big).state is JobState.QUEUED


def test_who_cannot_start_there_waits_in_its_old_place_if_the_other_has_started() -> None:
    world, _, second, big = fragmented()
    run(world)
    leave(world, second)
    behind = world.submit(spec(2))
    world.tick()
    assert world.job(big).state is JobState.SCHEDULED
    status = AttemptStatus(second, 2, 0, None, world.now, why="launch_failed: no such directory")
    world.tell(inputs.AgentReported("a", status))
    assert world.job(second).state is JobState.QUEUED
    assert undone(world)[0][0] == second
    assert "could not start on a" in world.job(second).detail
    assert world.job(behind).state is not JobState.QUEUED
    assert [start.job for start in world.tick()] == [second], "there is room on a, as for anybody"
    world.start(second)
    assert world.job(second).state is JobState.RUNNING


def test_without_anybody_for_whom_it_moved_it_returns_even_then() -> None:
    world = world_of("a", "b")
    small, _ = running(world, saving(1), hours=0.5), running(world, saving(3))
    run(world)
    leave(world, small)
    world.tick()
    assert world.nodes_of(small) == ["b"]
    status = AttemptStatus(small, 2, 0, None, world.now, why="launch_failed: no such directory")
    world.tell(inputs.AgentReported("b", status))
    assert [start.job for start in world.tick()] == [small]
    assert (world.nodes_of(small), world.job(small).attempt) == (["a"], 3)


def test_a_job_that_ends_first_or_is_cancelled_leaves_nothing_behind() -> None:
    for how in ("completes", "is cancelled", "is cancelled later"):
        world, _, second, big = fragmented()
        run(world)
        if how == "completes":
            world.exit(second, 0)
        elif how == "is cancelled":
            world.tell(inputs.Cancel(second, "ada"))
            world.exit(second, None, signal=15, why="cancelled")
        else:
            leave(world, second)
            world.tell(inputs.Cancel(second, "ada"))
        assert world.job(second).state.terminal
        assert not world.job(second).claim
        assert [start.job for start in world.tick()] == [big]
        assert not world.state.claims


def test_who_moved_does_not_move_again_before_long() -> None:
    world, _, second, big = fragmented(guards=Guards(min_runtime_s=0.0, cooldown_s=HOUR))
    run(world)
    leave(world, second)
    world.tick()
    for job in (second, big):
        world.start(job)
    world.exit(big)
    world.tell_drain("a")
    assert second not in [move.job for each in proposals(world) for move in each.moves]
    world.now += HOUR
    assert second in [move.job for each in proposals(world) for move in each.moves]


def test_another_controller_goes_on_with_moves_under_way() -> None:
    world, _, second, big = fragmented()
    run(world)
    for step in range(3):
        other = world.restarted()
        assert check(other.state) == []
        assert [job_row(job, with_spec=True) for job in other.state.jobs.values()] == [
            job_row(job, with_spec=True) for job in world.state.jobs.values()
        ]
        assert notes_of(other.state) == notes_of(world.state)
        assert [node.leaving for node in other.state.nodes] == [node.leaving for node in world.state.nodes]
        if step == 0:
            leave(world, second)
        else:
            world.tick()
    assert world.nodes_of(second) == ["a"]
    assert world.job(big).members


def test_the_journal_tells_it_in_the_order_in_which_it_is_so() -> None:
    world, _, second, big = fragmented()
    run(world)
    leave(world, second)
    world.tick()
    told = [
        (type(event), getattr(event, "job", None))
        for event in world.events
        if isinstance(
            event,
            RebalancePlanned | PreemptionPlanned | MovePlanned | MoveUndone | PreemptionDropped | JobPlaced,
        )
    ]
    assert told[2:] == [
        (RebalancePlanned, None),
        (PreemptionPlanned, big),
        (MovePlanned, second),
        (JobPlaced, second),
        (JobPlaced, big),
    ] or told[2:] == [
        (RebalancePlanned, None),
        (PreemptionPlanned, big),
        (MovePlanned, second),
        (JobPlaced, big),
        (JobPlaced, second),
    ]
    [order] = [sent.frame for sent in world.sent if isinstance(sent.frame, Stop)]
    assert (order.why, order.checkpoint_s) == ("preempted", spec(1, checkpoint_signal="USR1").checkpoint_s)


def test_after_a_restart_a_node_that_was_there_is_waited_for_before_a_move_is_undone() -> None:
    for comes in (True, False):
        world, first, second, big = fragmented()
        run(world)
        again = world.restarted()
        assert again.tick() == []
        again.join("b", attempts=(AttemptStatus(second, 1, 102, started_at=1.0),))
        leave(again, second, "/ckpt/3")
        assert [start.job for start in again.tick()] == [big], "nobody has heard of a yet"
        assert again.job(second).move is not None
        if comes:
            again.join("a", attempts=(AttemptStatus(first, 1, 101, started_at=1.0),))
            assert [start.job for start in again.tick()] == [second]
            assert again.nodes_of(second) == ["a"]
        else:
            again.tell(inputs.LinkWentDown("a", "no route to host"))
            assert again.tick() == []
            assert again.job(second).state is JobState.QUEUED
            assert "no route" not in again.why(second).sentence, "it waits for room, as any other"
            assert again.job(second).moves[-1].undone == "node a is suspect"


def test_a_licence_goes_with_the_job() -> None:
    for back in (False, True):
        world = world_of("a", "b", limits=Rules(licences={"solver": 1}))
        running(world, saving(2), hours=2)
        second = running(world, saving(2, licences={"solver": 1}), hours=1)
        world.submit(spec(8, nodes=1))
        world.tick()
        run(world)
        if back:
            world.tell_drain("a")
            world.tick()
        leave(world, second)
        other = world.submit(spec(0, licences={"solver": 1}, priority=100))
        assert second in [start.job for start in world.tick()]
        assert world.job(other).state is JobState.QUEUED
        assert world.state.licences.used == {"solver": 1}


# On one node of 8 GPUs in two NUMA nodes: what is there, asked for one by one, and ended again; what comes.
WITHIN: list[tuple[str, list[float], list[int], JobSpec]] = [
    ("a GPU of two that are half used", [6, 0.5, 0.5], [], spec(1)),
    ("all GPUs of one NUMA node", [1, 3, 1, 3], [2, 4], spec(4, gpu=GpuWish(numa="require"))),
]


@pytest.mark.parametrize(
    ("there", "over", "asked"), [row[1:] for row in WITHIN], ids=[row[0] for row in WITHIN]
)
def test_jobs_move_within_a_node_as_well(there: list[float], over: list[int], asked: JobSpec) -> None:
    world = world_of("a", picker=Roomiest())
    jobs = [running(world, saving(gpus)) for gpus in there]
    for number in over:
        world.exit(jobs[number - 1])
    world.now += HOUR
    waiting = world.submit(asked)
    assert world.tick() == []
    [proposal] = proposals(world)
    assert proposal.for_job == waiting
    [(mover, *_)] = moves(proposal)
    run(world)
    leave(world, mover)
    assert {start.job for start in world.tick()} == {mover, waiting}


def test_a_job_that_waits_for_a_licence_comes_first_all_the_same() -> None:
    """It is not helped by room, and nobody behind it is at its cost."""
    world = world_of("a", "b", limits=Rules(licences={"solver": 1}))
    limited = {"time_limit_s": 2 * HOUR}
    for licences in ({"solver": 1}, {}):
        running(world, saving(2, licences=licences, **limited))
    world.now += HOUR
    world.submit(spec(14, nodes=2, licences={"solver": 1}, priority=100, **limited))
    world.submit(spec(8, nodes=1, time_limit_s=30 * HOUR))
    world.tick()
    assert proposals(world) == []


def test_shares_of_gpus_are_gathered_as_well() -> None:
    world = world_of("a", picker=Roomiest())
    for share in (0.5, 0.25):
        running(world, saving(share))
    fixed = running(world, spec(1))
    assert [world.gpus_of(job) for job in (1, 2, fixed)] == [[0], [1], [2]]
    [proposal] = proposals(world)
    assert moves(proposal) == [(2, ["a"], ["a"])], "the lesser of the two"
    assert (proposal.before.free_gpus, proposal.after.free_gpus, proposal.worth) == (5, 6, 1.0)
    run(world)
    leave(world, 2)
    world.tick()
    assert [world.gpus_of(job) for job in (1, 2, fixed)] == [[0], [0], [2]]
    assert proposals(world) == []
