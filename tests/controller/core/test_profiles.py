"""Profiles: which one a job has, where it runs then, and what each owes to the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core import inputs
from controller.core.apply import apply
from controller.core.events import JobPlaced
from controller.core.explain import reason_of
from controller.core.forecast import forecast, fork
from controller.core.plugin import Backfill, Guards, Pipeline
from controller.core.profiles import Profile
from controller.core.quotas import Rules
from controller.core.records import job_row
from controller.core.state import State
from controller.plugins.orders.fifo import Fifo
from controller.plugins.preemption.priority import Priority as ByPriority
from tests.worlds import PIPELINE, World, spec
from wire.affinity import term_of
from wire.gangs import Gang
from wire.words import JobState, Reason

HOUR = 3_600.0
LEFT, RIGHT = (term_of("node in a,b"),), (term_of("node in b,c"),)


def profile(name: str, *nodes: Any, policy: Pipeline = PIPELINE, **scope: tuple[str, ...]) -> Profile:
    return Profile(name, policy, nodes=nodes, **scope)


def cluster(*profiles: Profile, nodes: str = "abc", gpus: int = 8) -> World:
    """These profiles, the usual policy for everybody else, and nodes named by a letter each."""
    world = World(replace(PIPELINE, profiles=(*profiles, profile("default"))))
    for name in nodes:
        world.join(name, gpus=gpus)
    return world


def overlapping(left: Pipeline = PIPELINE, right: Pipeline = PIPELINE) -> World:
    """`left` has a and b, `right` has b and c: b is for both."""
    return cluster(
        profile("left", *LEFT, policy=left, queues=("left",)),
        profile("right", *RIGHT, policy=right, queues=("right",)),
    )


def fill(world: World, hours: float | None = 1.0, **queues: str) -> dict[str, int]:
    """A job that takes a whole node, by node; a=..., b=... names the queue that it comes from."""
    limit = None if hours is None else hours * HOUR
    jobs = {
        node: world.submit(spec(8, queue=queue, priority=10, time_limit_s=limit, selector={"node": node}))
        for node, queue in queues.items()
    }
    world.tick()
    assert {node: world.nodes_of(job) for node, job in jobs.items()} == {node: [node] for node in queues}
    return jobs


# --- which profile a job has ---

SCOPED = (
    profile("serving", queues=("online",), users=("ada", "bo")),
    profile("vision", projects=("vision",)),
    profile("night", queues=("night", "online")),
)


@pytest.mark.parametrize(
    ("asked", "user", "found"),
    [
        ({"queue": "online"}, "ada", "serving"),
        ({"queue": "online"}, "eve", "night"),  # not for her: the next that is
        ({"queue": "online", "project": "vision"}, "ada", "serving"),  # the first
        ({"queue": "other", "project": "vision"}, "eve", "vision"),
        ({}, "eve", "default"),
        ({"queue": "online", "profile": "night"}, "ada", "night"),  # what it asks for
        ({"queue": "night", "profile": "default"}, "ada", "default"),
    ],
)
def test_a_job_has_the_profile_it_asks_for_else_the_first_that_is_for_it(
    asked: dict[str, Any], user: str, found: str
) -> None:
    world = cluster(*SCOPED)
    job = world.submit(spec(1, **asked), user)
    assert world.job(job).profile == found
    world.tick()
    (placed,) = [each for each in world.events if isinstance(each, JobPlaced)]
    assert placed.profile == found


@pytest.mark.parametrize(
    ("asked", "code", "told", "hint"),
    [
        ({"profile": "servin"}, "invalid", "there is no profile 'servin'", "Did you mean 'serving'?"),
        ({"profile": "zzz"}, "invalid", "there is no profile 'zzz'", "There are: default, night"),
        (
            {"profile": "serving", "queue": "night"},
            "not_allowed",
            "profile 'serving' is not for queue 'night'",
            "It is for online. Without --profile the job has profile 'night'.",
        ),
        (
            {"profile": "serving", "queue": "online"},
            "not_allowed",
            "profile 'serving' is not for user 'eve'",
            "It is for ada, bo.",
        ),
    ],
)
def test_a_profile_that_cannot_be_had_is_refused(
    asked: dict[str, Any], code: str, told: str, hint: str
) -> None:
    refusal = cluster(*SCOPED).refuse(inputs.Submit(spec(1, **asked), "eve"))
    assert (refusal.code, refusal.where, refusal.message) == (code, "profile", told)
    assert hint in refusal.hint


def test_without_profiles_nobody_has_one() -> None:
    world = World()
    world.join("a")
    assert world.job(world.submit(spec(1, profile="default"))).profile == ""
    refusal = world.refuse(inputs.Submit(spec(1, profile="fast"), "ada"))
    assert refusal.hint == "This cluster has no profiles: leave it out."
    world.tick()
    assert world.events[-1].profile == ""  # type: ignore[union-attr]


def test_an_edit_brings_a_job_to_another_profile_and_is_checked_like_a_submit() -> None:
    world = cluster(*SCOPED)
    job = world.submit(spec(1, queue="online", profile="night"))
    refusal = world.refuse(inputs.Edit(job, "ada", {"queue": "other"}))
    assert refusal.message == "profile 'night' is not for queue 'other'"
    world.tell(inputs.Edit(job, "ada", {"profile": None}))
    assert world.job(job).profile == "serving"
    world.tell(inputs.Edit(job, "ada", {"queue": "other"}))
    assert world.job(job).profile == "default"
    world.tick()
    assert world.refuse(inputs.Edit(job, "ada", {"profile": "vision"})).code == "conflict"


def test_after_a_restart_jobs_are_where_the_configuration_puts_them_and_the_past_stays() -> None:
    world = cluster(*SCOPED, nodes="a")
    ran = world.submit(spec(8, queue="online"))
    waits = world.submit(spec(8, queue="online"))
    wishes = world.submit(spec(8, queue="night", profile="night"))
    world.tick()
    again = world.restarted()
    assert [again.job(each).profile for each in (ran, waits, wishes)] == ["serving", "serving", "night"]
    world.pipeline = replace(PIPELINE, profiles=(profile("fast", queues=("online",)), profile("default")))
    other = world.restarted()
    assert [other.job(each).profile for each in (ran, waits, wishes)] == ["serving", "fast", "default"]
    assert [len(queue) for queue in other.state.queues.values()] == [1, 1]
    world.pipeline = PIPELINE
    assert [world.restarted().job(each).profile for each in (ran, waits, wishes)] == ["serving", "", ""]


def test_the_journal_alone_gives_the_rows() -> None:
    world = cluster(*SCOPED, nodes="a")
    jobs = [world.submit(spec(5, queue="online")), world.submit(spec(5, queue="night"))]
    world.tick()
    folded = State(PIPELINE.order)
    for event in world.events:
        apply(folded, event)
    for job in jobs:
        assert job_row(folded.jobs[job], with_spec=True) == job_row(world.job(job), with_spec=True)


# --- each in its own way ---


def test_each_has_an_order_a_backfill_and_nodes_of_its_own() -> None:
    strict = replace(PIPELINE, order=Fifo(), backfill=Backfill.NONE)
    world = cluster(
        profile("strict", term_of("node in a"), policy=strict, queues=("strict",)),
        profile("easy", term_of("node in b"), queues=("easy",)),
        nodes="ab",
    )
    jobs = {}
    for queue in ("strict", "easy"):
        for name, gpus, priority in (("first", 6, 50), ("big", 8, 75), ("small", 1, 50)):
            asked = spec(gpus, queue=queue, priority=priority, time_limit_s=HOUR)
            jobs[queue, name] = world.submit(asked)
            if name == "first":
                world.tick()
    world.tick()
    placed = {name: world.nodes_of(job) for name, job in jobs.items()}
    assert placed["strict", "first"] == ["a"]
    assert placed["strict", "small"] == []  # nobody passes
    assert placed["easy", "small"] == ["b"]  # over before the big one could start
    assert world.why(jobs["strict", "small"]).position == 2
    assert world.why(jobs["easy", "big"]).position == 1


def test_explain_names_the_profile_and_the_nodes_lost_by_its_scope() -> None:
    world = cluster(profile("one", term_of("node in a"), queues=("one",)))
    world.submit(spec(8, queue="one"))
    waits = world.submit(spec(8, queue="one"))
    world.tick()
    why = world.why(waits)
    assert (why.reason, why.losses[0].filter, why.losses[0].lost) == (Reason.RESOURCES, "profile", 2)
    assert why.losses[0].message == "outside profile one"
    assert why.losses[0].examples == ("b", "c")
    refusal = world.refuse(inputs.Submit(spec(16, queue="one"), "ada"))
    assert refusal.code == "never_fits"
    assert "2 nodes: outside profile one" in refusal.message
    assert world.submit(spec(16))


def test_a_node_whose_labels_change_goes_to_another_profile() -> None:
    world = cluster(
        profile("gold", term_of("pool in gold"), queues=("gold",)),
        profile("rest", term_of("pool not in gold")),
        nodes="a",
    )
    rest = world.submit(spec(1))
    world.tell(inputs.MarkNode("a", "root", {"pool": "gold"}, {}))
    world.tick()
    assert world.nodes_of(rest) == []
    world.tell(inputs.MarkNode("a", "root", {"pool": None}, {}))
    world.tick()
    assert world.nodes_of(rest) == ["a"]


# --- nodes that are shared ---


def promised(world: World, name: str) -> tuple[int, float]:
    """To whom a profile has promised what, in seconds from now."""
    found = world.engine.schedulers.cycles[name].promise(world.now)
    assert found is not None
    return found.job, found.at - world.now


def test_a_job_of_one_profile_does_not_delay_the_first_of_another() -> None:
    world = overlapping()
    there = fill(world, a="left", b="right", c="right")
    wide = world.submit(spec(16, nodes=2, queue="left", time_limit_s=HOUR))
    world.tick()
    assert promised(world, "left") == (wide, HOUR)
    world.exit(there["b"])  # `right` could take it, but only as long as it gives it back in time
    long = world.submit(spec(8, queue="right", time_limit_s=2 * HOUR))
    short = world.submit(spec(8, queue="right", time_limit_s=0.5 * HOUR))
    world.tick()
    assert (world.nodes_of(long), world.nodes_of(short)) == ([], ["b"])
    assert reason_of(world.state, world.job(long)) is Reason.PROMISED
    world.exit(short)
    why = world.why(long)
    assert why.reason is Reason.PROMISED
    assert why.sentence == (
        f"fits on 1 node, of which 0 are not promised: the job may run for 2h00m, and job {wide} "
        "of profile left starts there in 1h00m at the latest"
    )
    world.now += HOUR
    world.exit(there["a"])
    world.tick()
    assert world.nodes_of(wide) == ["a", "b"]


def test_the_first_of_each_has_a_promise_that_takes_the_other_into_account() -> None:
    world = overlapping()
    there = fill(world, a="left", b="right", c="right")
    left = world.submit(spec(8, queue="left", time_limit_s=HOUR, selector={"node": "b"}))
    world.tick()
    right = world.submit(spec(8, queue="right", time_limit_s=HOUR, selector={"node": "b"}))
    world.tick()
    assert promised(world, "left") == (left, HOUR)
    assert promised(world, "right") == (right, 2 * HOUR)
    world.exit(there["b"])
    world.tick()
    assert world.nodes_of(left) == ["b"]
    assert promised(world, "right") == (right, HOUR)


def test_what_is_promised_on_a_node_is_gpus_and_not_the_node() -> None:
    world = overlapping()
    world.submit(spec(8, queue="left", time_limit_s=HOUR, selector={"node": "a"}))
    world.submit(spec(6, queue="right", time_limit_s=HOUR, selector={"node": "b"}))
    world.tick()
    first = world.submit(spec(4, queue="left", time_limit_s=HOUR, selector={"node": "b"}))
    world.tick()
    assert promised(world, "left") == (first, HOUR)
    beside = [world.submit(spec(1, queue="right", selector={"node": "b"})) for _ in range(2)]
    world.tick()  # for ever, but on GPUs that are promised to nobody
    assert [world.nodes_of(job) for job in beside] == [["b"], ["b"]]
    world.now += HOUR
    world.exit(2)
    world.tick()
    assert world.nodes_of(first) == ["b"]


def test_a_promise_that_goes_lets_those_start_who_kept_to_it() -> None:
    world = overlapping()
    fill(world, a="left")
    wide = world.submit(spec(16, nodes=2, queue="left", time_limit_s=HOUR))
    other = world.submit(spec(8, queue="right", selector={"node": "b"}))
    world.tick()
    assert world.nodes_of(other) == []
    world.tell(inputs.Cancel(wide, "ada"))
    world.tick()
    assert world.nodes_of(other) == ["b"]


def test_a_promise_that_moves_within_a_pass_lets_an_earlier_profile_start_in_the_same() -> None:
    world = overlapping()
    world.submit(spec(8, queue="right", time_limit_s=HOUR, selector={"node": "c"}))
    world.tick()
    wide = world.submit(spec(16, nodes=2, queue="right", time_limit_s=HOUR))
    world.tick()
    waits = world.submit(spec(8, queue="left", selector={"node": "b"}))
    world.tick()
    assert (promised(world, "right")[0], world.nodes_of(waits)) == (wide, [])
    urgent = world.submit(spec(8, queue="right", priority=100, selector={"node": "c"}, time_limit_s=HOUR))
    world.tick()  # `left` has its turn first, but not the last word
    assert promised(world, "right")[0] == urgent
    assert world.nodes_of(waits) == ["b"]


@pytest.mark.parametrize("mode", [Backfill.NONE, Backfill.EASY_SJBF, Backfill.AGGRESSIVE])
def test_whatever_the_backfill_the_first_is_promised_a_start(mode: Backfill) -> None:
    world = overlapping(left=replace(PIPELINE, backfill=mode))
    fill(world, a="left")
    wide = world.submit(spec(16, nodes=2, queue="left", time_limit_s=HOUR))
    other = world.submit(spec(8, queue="right", selector={"node": "b"}))
    world.tick()
    assert promised(world, "left") == (wide, HOUR)
    assert world.nodes_of(other) == []


def test_greedy_promises_nothing_but_keeps_to_what_others_promise() -> None:
    world = overlapping(right=replace(PIPELINE, backfill=Backfill.GREEDY))
    fill(world, a="left")
    world.submit(spec(16, nodes=2, queue="left", time_limit_s=HOUR))
    kept = [world.submit(spec(8, queue="right", time_limit_s=2 * HOUR)) for _ in range(3)]
    world.tick()
    assert [world.nodes_of(job) for job in kept] == [["c"], [], []]
    assert world.engine.schedulers.cycles["right"].promise(world.now) is None


def test_all_promises_of_a_conservative_profile_hold_for_others() -> None:
    world = overlapping(left=replace(PIPELINE, backfill=Backfill.CONSERVATIVE))
    fill(world, a="left", b="left")
    second = [world.submit(spec(8, queue="left", time_limit_s=HOUR)) for _ in range(4)]
    world.tick()
    world.submit(spec(8, queue="right", selector={"node": "c"}))
    last = world.submit(spec(8, queue="right", selector={"node": "b"}))
    world.tick()
    assert promised(world, "right") == (last, 3 * HOUR)
    for _ in range(3):
        world.now += HOUR
        for job in [job for job in world.state.jobs.values() if job.running and job.limit == HOUR]:
            world.exit(job.id)
        world.tick()
    assert all(world.job(job).state is JobState.COMPLETED for job in second)
    assert world.nodes_of(last) == ["b"]


def test_disjoint_profiles_know_nothing_of_each_other() -> None:
    apart = [
        profile(name, term_of(f"node in {node}"), queues=(name,))
        for name, node in (("left", "a"), ("right", "c"))
    ]
    world = World(replace(PIPELINE, profiles=(*apart, profile("default", term_of("node in b")))))
    for name in "abc":
        world.join(name)
    world.submit(spec(8, queue="left", time_limit_s=HOUR))
    world.submit(spec(8, queue="left", time_limit_s=HOUR))
    other = world.submit(spec(8, queue="right"))
    world.tick()
    assert all(cycle.common is None for cycle in world.engine.schedulers.cycles.values())
    assert world.nodes_of(other) == ["c"]


# --- preemption, gangs, limits ---


UNGUARDED = replace(PIPELINE, guards=Guards(min_runtime_s=0.0, cooldown_s=0.0))
PREEMPTING = replace(UNGUARDED, strategies=(ByPriority(),))


def test_a_profile_has_others_ended_on_its_nodes_and_nowhere_else() -> None:
    world = overlapping(PREEMPTING, UNGUARDED)
    there = fill(world, a="left", b="right", c="right")
    for job in there.values():
        world.start(job)
    world.tell(inputs.Edit(there["a"], "ada", {"priority": 100}))
    urgent = world.submit(spec(8, queue="left", priority=100))
    calm = world.submit(spec(8, queue="right", priority=100))
    world.tick()
    assert world.stops() == [("b", there["b"])]
    assert world.why(urgent).reason is Reason.PREEMPTING
    assert world.why(calm).reason is Reason.RESOURCES  # its own profile has nobody ended


def test_what_protects_a_running_job_is_what_its_own_profile_says() -> None:
    guarded = replace(PIPELINE, guards=Guards(min_runtime_s=HOUR, cooldown_s=0.0, grace_s=120.0))
    world = overlapping(PREEMPTING, guarded)
    low = fill(world, None, b="right")["b"]
    world.start(low)
    world.submit(spec(8, queue="left", priority=100, selector={"node": "b"}))
    world.tick()
    assert world.stops() == []
    assert world.engine.next_at == world.now + HOUR
    world.now += HOUR
    world.tick()
    assert world.stops() == [("b", low)]
    assert world.job(low).stop_by == world.now + 120.0


@pytest.mark.parametrize(("hours", "ended"), [(2.0, False), (0.5, True)])
def test_nobody_is_ended_where_that_would_delay_what_another_profile_has_promised(
    hours: float, ended: bool
) -> None:
    world = overlapping(PREEMPTING, UNGUARDED)
    there = fill(world, b="right", c="right")
    world.start(there["b"])
    wide = world.submit(spec(16, nodes=2, queue="right", time_limit_s=HOUR))
    world.tick()
    assert promised(world, "right") == (wide, HOUR)
    asked = spec(8, queue="left", priority=100, selector={"node": "b"}, time_limit_s=hours * HOUR)
    urgent = world.submit(asked)
    world.tick()
    assert world.stops() == ([("b", there["b"])] if ended else [])
    assert (world.why(urgent).reason is Reason.PREEMPTING) == ended


def test_an_elastic_job_grows_only_where_nobody_waits_in_any_profile() -> None:
    world = overlapping()
    blocks = world.submit(spec(8, queue="left", selector={"node": "b"}, time_limit_s=HOUR))
    world.tick()
    gang = Gang(min_nodes=1, elastic=True, assembly_s=0.0)
    elastic = world.submit(spec(16, nodes=2, queue="right", gang=gang))
    world.tick()
    world.start(elastic)
    assert world.nodes_of(elastic) == ["c"]
    wide = world.submit(spec(16, nodes=2, queue="left", time_limit_s=HOUR))
    keeps = world.submit(spec(8, queue="left", selector={"node": "a"}, time_limit_s=2 * HOUR, priority=100))
    world.tick()
    world.exit(blocks)
    world.tick()
    assert world.nodes_of(elastic) == ["c"]
    world.tell(inputs.Cancel(wide, "ada"))
    world.tick()
    assert world.nodes_of(elastic) == ["c", "b"]
    assert world.nodes_of(keeps) == ["a"]


def test_a_forecast_and_a_restart_know_the_profiles() -> None:
    world = overlapping()
    fill(world, a="left", b="right", c="right")
    left = world.submit(spec(8, queue="left", time_limit_s=HOUR))
    starts = forecast(fork(world.engine), world.now).starts
    assert starts[left].at == world.now + HOUR
    assert set(starts[left].nodes) <= {"a", "b"}


def test_licences_are_for_all_and_promised_beyond_the_nodes_of_a_profile() -> None:
    """Where no node is shared, either: who waits for a licence is promised it."""
    apart = [
        profile(name, term_of(f"node in {node}"), queues=(name,))
        for name, node in (("left", "a"), ("right", "c"))
    ]
    rules = Rules(licences={"matlab": 2})
    profiles = (*apart, profile("default", term_of("node in b")))
    world = World(replace(PIPELINE, rules=rules, profiles=profiles))
    for name in "abc":
        world.join(name)

    def wants(count: int, queue: str, hours: float) -> int:
        return world.submit(spec(queue=queue, licences={"matlab": count}, time_limit_s=hours * HOUR))

    first = wants(1, "left", 1.0)
    world.tick()
    both = wants(2, "left", 1.0)
    world.tick()
    assert promised(world, "left") == (both, HOUR)
    long, short = wants(1, "right", 2.0), wants(1, "right", 0.5)
    world.tick()
    assert (world.nodes_of(long), world.nodes_of(short)) == ([], ["c"])
    world.exit(short)
    why = world.why(long)
    assert (why.reason, why.sentence[:25]) == (Reason.PROMISED, "there are licences enough")
    world.now += HOUR
    world.exit(first)
    world.tick()
    assert world.nodes_of(both) == ["a"]
