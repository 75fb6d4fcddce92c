"""Profiles: which one a job has, where it runs, and how profiles respect each other's reservations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.explain.why_pending import reason_of
from controller.core.forecast.forecast import forecast, fork
from controller.core.framework.interfaces import Backfill, PreemptionGuards
from controller.core.framework.profiles import Profile
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.inputs import job_inputs, node_inputs
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.quota_config import QuotaConfig
from controller.core.state.apply import apply
from controller.core.state.job_and_node_rows import job_row
from controller.core.state.state import State
from controller.plugins.backfill.kinds import Aggressive, Conservative, EasySjbf, Greedy, NoBackfill
from controller.plugins.orders.fixed import FifoOrder
from controller.plugins.preemption.by_priority import PriorityStrategy as ByPriority
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.gangs import Gang
from wire.job.placement.affinity import parse_term
from wire.names import JobState, Reason

HOUR = 3_600.0
LEFT, RIGHT = (parse_term("node in a,b"),), (parse_term("node in b,c"),)


def profile(name: str, *nodes: Any, policy: Pipeline = PIPELINE, **scope: tuple[str, ...]) -> Profile:
    return Profile(name, policy, nodes=nodes, **scope)


def cluster(*profiles: Profile, nodes: str = "abc", gpus: int = 8) -> EngineHarness:
    """A cluster with these profiles, the usual policy for all other jobs, and nodes named by one letter
    each.
    """
    harness = EngineHarness(replace(PIPELINE, profiles=(*profiles, profile("default"))))
    for name in nodes:
        harness.join(name, gpus=gpus)
    return harness


def overlapping(left: Pipeline = PIPELINE, right: Pipeline = PIPELINE) -> EngineHarness:
    """`left` has a and b, `right` has b and c: b belongs to both."""
    return cluster(
        profile("left", *LEFT, policy=left, queues=("left",)),
        profile("right", *RIGHT, policy=right, queues=("right",)),
    )


def fill(harness: EngineHarness, hours: float | None = 1.0, **queues: str) -> dict[str, int]:
    """Fill each named node with one job. The keyword is the node, its value the queue of the job."""
    limit = None if hours is None else hours * HOUR
    jobs = {
        node: harness.submit(spec(8, queue=queue, priority=10, time_limit_s=limit, selector={"node": node}))
        for node, queue in queues.items()
    }
    harness.tick()
    assert {node: harness.nodes_of(job) for node, job in jobs.items()} == {node: [node] for node in queues}
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
        ({"queue": "online", "profile": "night"}, "ada", "night"),  # requested profiles
        ({"queue": "night", "profile": "default"}, "ada", "default"),
    ],
)
def test_profile_is_the_requested_one_or_the_first_that_matches(
    asked: dict[str, Any], user: str, found: str
) -> None:
    harness = cluster(*SCOPED)
    job = harness.submit(spec(1, **asked), user)
    assert harness.job(job).profile == found
    harness.tick()
    (placed,) = [each for each in harness.events if isinstance(each, JobPlaced)]
    assert placed.profile == found


@pytest.mark.parametrize(
    ("asked", "code", "message", "hint"),
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
def test_unavailable_profile_is_refused(asked: dict[str, Any], code: str, message: str, hint: str) -> None:
    refusal = cluster(*SCOPED).refuse(job_inputs.Submit(spec(1, **asked), "eve"))
    assert (refusal.code, refusal.where, refusal.message) == (code, "profile", message)
    assert hint in refusal.hint


def test_jobs_have_no_profile_when_none_is_configured() -> None:
    harness = EngineHarness()
    harness.join("a")
    assert harness.job(harness.submit(spec(1, profile="default"))).profile == ""
    refusal = harness.refuse(job_inputs.Submit(spec(1, profile="fast"), "ada"))
    assert refusal.hint == "This cluster has no profiles: leave the profile out."
    harness.tick()
    assert harness.events[-1].profile == ""  # type: ignore[union-attr]


def test_edit_moves_a_job_to_another_profile_and_is_checked_like_a_submit() -> None:
    harness = cluster(*SCOPED)
    job = harness.submit(spec(1, queue="online", profile="night"))
    refusal = harness.refuse(job_inputs.Edit(job, "ada", {"queue": "other"}))
    assert refusal.message == "profile 'night' is not for queue 'other'"
    harness.tell(job_inputs.Edit(job, "ada", {"profile": None}))
    assert harness.job(job).profile == "serving"
    harness.tell(job_inputs.Edit(job, "ada", {"queue": "other"}))
    assert harness.job(job).profile == "default"
    harness.tick()
    assert harness.refuse(job_inputs.Edit(job, "ada", {"profile": "vision"})).code == "conflict"


def test_restart_assigns_waiting_jobs_to_the_configured_profiles_and_keeps_old_events() -> None:
    harness = cluster(*SCOPED, nodes="a")
    ran = harness.submit(spec(8, queue="online"))
    waits = harness.submit(spec(8, queue="online"))
    wishes = harness.submit(spec(8, queue="night", profile="night"))
    harness.tick()
    again = harness.restarted()
    assert [again.job(each).profile for each in (ran, waits, wishes)] == ["serving", "serving", "night"]
    fast = profile("fast", queues=("online",))
    other = harness.restarted(replace(PIPELINE, profiles=(fast, profile("default"))))
    assert [other.job(each).profile for each in (ran, waits, wishes)] == ["serving", "fast", "default"]
    assert [len(queue) for queue in other.state.queues.values()] == [1, 1]
    plain = harness.restarted(PIPELINE)
    assert [plain.job(each).profile for each in (ran, waits, wishes)] == [
        "serving",
        "",
        "",
    ]


def test_rows_can_be_rebuilt_from_the_journal_with_profiles() -> None:
    harness = cluster(*SCOPED, nodes="a")
    jobs = [harness.submit(spec(5, queue="online")), harness.submit(spec(5, queue="night"))]
    harness.tick()
    folded = State(PIPELINE.order)
    for event in harness.events:
        apply(folded, event)
    for job in jobs:
        assert job_row(folded.jobs[job], with_spec=True) == job_row(harness.job(job), with_spec=True)


# --- settings of each profile ---


def test_each_profile_has_its_own_order_backfill_and_nodes() -> None:
    strict = replace(PIPELINE, order=FifoOrder(), backfill=NoBackfill())
    harness = cluster(
        profile("strict", parse_term("node in a"), policy=strict, queues=("strict",)),
        profile("easy", parse_term("node in b"), queues=("easy",)),
        nodes="ab",
    )
    jobs = {}
    for queue in ("strict", "easy"):
        for name, gpus, priority in (("first", 6, 50), ("big", 8, 75), ("small", 1, 50)):
            asked = spec(gpus, queue=queue, priority=priority, time_limit_s=HOUR)
            jobs[queue, name] = harness.submit(asked)
            if name == "first":
                harness.tick()
    harness.tick()
    placed = {name: harness.nodes_of(job) for name, job in jobs.items()}
    assert placed["strict", "first"] == ["a"]
    assert placed["strict", "small"] == []  # no job passes
    assert placed["easy", "small"] == ["b"]  # over before the big one could start
    assert harness.why(jobs["strict", "small"]).position == 2
    assert harness.why(jobs["easy", "big"]).position == 1


def test_explain_names_the_profile_and_the_nodes_lost_by_its_scope() -> None:
    harness = cluster(profile("one", parse_term("node in a"), queues=("one",)))
    harness.submit(spec(8, queue="one"))
    waits = harness.submit(spec(8, queue="one"))
    harness.tick()
    why = harness.why(waits)
    assert (why.reason, why.losses[0].filter, why.losses[0].lost) == (Reason.RESOURCES, "profile", 2)
    assert why.losses[0].message == "outside profile one"
    assert why.losses[0].examples == ("b", "c")
    refusal = harness.refuse(job_inputs.Submit(spec(16, queue="one"), "ada"))
    assert refusal.code == "never_fits"
    assert "2 nodes: outside profile one" in refusal.message
    assert harness.submit(spec(16))


def test_node_changes_profile_with_its_labels() -> None:
    harness = cluster(
        profile("gold", parse_term("pool in gold"), queues=("gold",)),
        profile("rest", parse_term("pool not in gold")),
        nodes="a",
    )
    rest = harness.submit(spec(1))
    harness.tell(node_inputs.MarkNode("a", "root", {"pool": "gold"}, {}))
    harness.tick()
    assert harness.nodes_of(rest) == []
    harness.tell(node_inputs.MarkNode("a", "root", {"pool": None}, {}))
    harness.tick()
    assert harness.nodes_of(rest) == ["a"]


# --- nodes that are shared ---


def reserved(harness: EngineHarness, name: str) -> tuple[int, float]:
    """The first reservation of a profile: the job, and its start in seconds from now."""
    found = harness.engine.profile_cycles.cycles[name].first_reservation(harness.now)
    assert found is not None
    return found.job, found.starts_at - harness.now


def test_a_job_of_one_profile_does_not_delay_the_first_job_of_another() -> None:
    harness = overlapping()
    jobs_by_node = fill(harness, a="left", b="right", c="right")
    wide = harness.submit(spec(16, nodes=2, queue="left", time_limit_s=HOUR))
    harness.tick()
    assert reserved(harness, "left") == (wide, HOUR)
    harness.exit(jobs_by_node["b"])  # `right` could take it, but only as long as it gives it back in time
    long = harness.submit(spec(8, queue="right", time_limit_s=2 * HOUR))
    short = harness.submit(spec(8, queue="right", time_limit_s=0.5 * HOUR))
    harness.tick()
    assert (harness.nodes_of(long), harness.nodes_of(short)) == ([], ["b"])
    assert reason_of(harness.state, harness.job(long)) is Reason.PROMISED
    harness.exit(short)
    why = harness.why(long)
    assert why.reason is Reason.PROMISED
    assert why.sentence == (
        f"fits on 1 node, of which 0 are not reserved: the job may run for 2h00m, and job {wide} "
        "of profile left starts there in 1h00m at the latest"
    )
    harness.now += HOUR
    harness.exit(jobs_by_node["a"])
    harness.tick()
    assert harness.nodes_of(wide) == ["a", "b"]


def test_reservations_of_two_profiles_take_each_other_into_account() -> None:
    harness = overlapping()
    jobs_by_node = fill(harness, a="left", b="right", c="right")
    left = harness.submit(spec(8, queue="left", time_limit_s=HOUR, selector={"node": "b"}))
    harness.tick()
    right = harness.submit(spec(8, queue="right", time_limit_s=HOUR, selector={"node": "b"}))
    harness.tick()
    assert reserved(harness, "left") == (left, HOUR)
    assert reserved(harness, "right") == (right, 2 * HOUR)
    harness.exit(jobs_by_node["b"])
    harness.tick()
    assert harness.nodes_of(left) == ["b"]
    assert reserved(harness, "right") == (right, HOUR)


def test_reservation_of_a_profile_covers_gpus_and_not_the_whole_node() -> None:
    harness = overlapping()
    harness.submit(spec(8, queue="left", time_limit_s=HOUR, selector={"node": "a"}))
    harness.submit(spec(6, queue="right", time_limit_s=HOUR, selector={"node": "b"}))
    harness.tick()
    first = harness.submit(spec(4, queue="left", time_limit_s=HOUR, selector={"node": "b"}))
    harness.tick()
    assert reserved(harness, "left") == (first, HOUR)
    beside = [harness.submit(spec(1, queue="right", selector={"node": "b"})) for _ in range(2)]
    harness.tick()  # without a time limit, but on GPUs outside the reservation
    assert [harness.nodes_of(job) for job in beside] == [["b"], ["b"]]
    harness.now += HOUR
    harness.exit(2)
    harness.tick()
    assert harness.nodes_of(first) == ["b"]


def test_cancelled_reservation_lets_the_jobs_it_held_back_start() -> None:
    harness = overlapping()
    fill(harness, a="left")
    wide = harness.submit(spec(16, nodes=2, queue="left", time_limit_s=HOUR))
    other = harness.submit(spec(8, queue="right", selector={"node": "b"}))
    harness.tick()
    assert harness.nodes_of(other) == []
    harness.tell(job_inputs.Cancel(wide, "ada"))
    harness.tick()
    assert harness.nodes_of(other) == ["b"]


def test_reservation_that_moves_within_a_pass_lets_an_earlier_profile_start_in_the_same_pass() -> None:
    harness = overlapping()
    harness.submit(spec(8, queue="right", time_limit_s=HOUR, selector={"node": "c"}))
    harness.tick()
    wide = harness.submit(spec(16, nodes=2, queue="right", time_limit_s=HOUR))
    harness.tick()
    waits = harness.submit(spec(8, queue="left", selector={"node": "b"}))
    harness.tick()
    assert (reserved(harness, "right")[0], harness.nodes_of(waits)) == (wide, [])
    urgent = harness.submit(spec(8, queue="right", priority=100, selector={"node": "c"}, time_limit_s=HOUR))
    harness.tick()  # the cycle of `left` comes first, and is repeated
    assert reserved(harness, "right")[0] == urgent
    assert harness.nodes_of(waits) == ["b"]


@pytest.mark.parametrize("mode", [NoBackfill(), EasySjbf(), Aggressive(max_delay_s=0.0)])
def test_first_job_of_a_profile_has_a_reservation_under_every_backfill(mode: Backfill) -> None:
    harness = overlapping(left=replace(PIPELINE, backfill=mode))
    fill(harness, a="left")
    wide = harness.submit(spec(16, nodes=2, queue="left", time_limit_s=HOUR))
    other = harness.submit(spec(8, queue="right", selector={"node": "b"}))
    harness.tick()
    assert reserved(harness, "left") == (wide, HOUR)
    assert harness.nodes_of(other) == []


def test_greedy_profile_reserves_nothing_but_respects_reservations_of_other_profiles() -> None:
    harness = overlapping(right=replace(PIPELINE, backfill=Greedy()))
    fill(harness, a="left")
    harness.submit(spec(16, nodes=2, queue="left", time_limit_s=HOUR))
    kept = [harness.submit(spec(8, queue="right", time_limit_s=2 * HOUR)) for _ in range(3)]
    harness.tick()
    assert [harness.nodes_of(job) for job in kept] == [["c"], [], []]
    assert harness.engine.profile_cycles.cycles["right"].first_reservation(harness.now) is None


def test_all_reservations_of_a_conservative_profile_bind_other_profiles() -> None:
    harness = overlapping(left=replace(PIPELINE, backfill=Conservative()))
    fill(harness, a="left", b="left")
    second = [harness.submit(spec(8, queue="left", time_limit_s=HOUR)) for _ in range(4)]
    harness.tick()
    harness.submit(spec(8, queue="right", selector={"node": "c"}))
    last = harness.submit(spec(8, queue="right", selector={"node": "b"}))
    harness.tick()
    assert reserved(harness, "right") == (last, 3 * HOUR)
    for _ in range(3):
        harness.now += HOUR
        for job in [job for job in harness.state.jobs.values() if job.running and job.limit == HOUR]:
            harness.exit(job.id)
        harness.tick()
    assert all(harness.job(job).state is JobState.COMPLETED for job in second)
    assert harness.nodes_of(last) == ["b"]


def test_disjoint_profiles_are_independent() -> None:
    apart = [
        profile(name, parse_term(f"node in {node}"), queues=(name,))
        for name, node in (("left", "a"), ("right", "c"))
    ]
    harness = EngineHarness(replace(PIPELINE, profiles=(*apart, profile("default", parse_term("node in b")))))
    for name in "abc":
        harness.join(name)
    harness.submit(spec(8, queue="left", time_limit_s=HOUR))
    harness.submit(spec(8, queue="left", time_limit_s=HOUR))
    other = harness.submit(spec(8, queue="right"))
    harness.tick()
    assert all(cycle.shared is None for cycle in harness.engine.profile_cycles.cycles.values())
    assert harness.nodes_of(other) == ["c"]


# --- preemption, gangs, limits ---


UNGUARDED = replace(PIPELINE, guards=PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0))
PREEMPTING = replace(UNGUARDED, strategies=(ByPriority(),))


def test_a_profile_preempts_only_on_its_own_nodes() -> None:
    harness = overlapping(PREEMPTING, UNGUARDED)
    jobs_by_node = fill(harness, a="left", b="right", c="right")
    for job in jobs_by_node.values():
        harness.start(job)
    harness.tell(job_inputs.Edit(jobs_by_node["a"], "ada", {"priority": 100}))
    urgent = harness.submit(spec(8, queue="left", priority=100))
    calm = harness.submit(spec(8, queue="right", priority=100))
    harness.tick()
    assert harness.stops() == [("b", jobs_by_node["b"])]
    assert harness.why(urgent).reason is Reason.PREEMPTING
    assert harness.why(calm).reason is Reason.RESOURCES  # its own profile does not preempt


def test_a_running_job_is_guarded_by_its_own_profile() -> None:
    guarded = replace(PIPELINE, guards=PreemptionGuards(min_runtime_s=HOUR, cooldown_s=0.0, grace_s=120.0))
    harness = overlapping(PREEMPTING, guarded)
    low = fill(harness, None, b="right")["b"]
    harness.start(low)
    harness.submit(spec(8, queue="left", priority=100, selector={"node": "b"}))
    harness.tick()
    assert harness.stops() == []
    assert harness.engine.next_at == harness.now + HOUR
    harness.now += HOUR
    harness.tick()
    assert harness.stops() == [("b", low)]
    assert harness.job(low).stop_by == harness.now + 120.0


@pytest.mark.parametrize(
    ("hours", "reserved_for", "ended"), [(2.0, 100, False), (0.5, 100, True), (2.0, 99, True)]
)
def test_no_job_is_preempted_where_that_delays_a_reservation_of_another_profile(
    hours: float, reserved_for: int, ended: bool
) -> None:
    """A reservation of a job with a lower priority is delayed, as that job could be preempted if it ran."""
    harness = overlapping(PREEMPTING, UNGUARDED)
    jobs_by_node = fill(harness, b="right", c="right")
    harness.start(jobs_by_node["b"])
    wide = harness.submit(spec(16, nodes=2, queue="right", time_limit_s=HOUR, priority=reserved_for))
    harness.tick()
    assert reserved(harness, "right") == (wide, HOUR)
    asked = spec(8, queue="left", priority=100, selector={"node": "b"}, time_limit_s=hours * HOUR)
    urgent = harness.submit(asked)
    harness.tick()
    assert harness.stops() == ([("b", jobs_by_node["b"])] if ended else [])
    assert (harness.why(urgent).reason is Reason.PREEMPTING) == ended
    if hours > 1 and ended:
        harness.exit(jobs_by_node["b"])
        harness.tick()
        assert harness.nodes_of(urgent) == ["b"]
        assert reserved(harness, "right") == (wide, hours * HOUR)


def test_an_elastic_job_grows_only_where_no_job_of_any_profile_waits() -> None:
    harness = overlapping()
    blocks = harness.submit(spec(8, queue="left", selector={"node": "b"}, time_limit_s=HOUR))
    harness.tick()
    gang = Gang(min_nodes=1, elastic=True, assembly_s=0.0)
    elastic = harness.submit(spec(16, nodes=2, queue="right", gang=gang))
    harness.tick()
    harness.start(elastic)
    assert harness.nodes_of(elastic) == ["c"]
    wide = harness.submit(spec(16, nodes=2, queue="left", time_limit_s=HOUR))
    keeps = harness.submit(spec(8, queue="left", selector={"node": "a"}, time_limit_s=2 * HOUR, priority=100))
    harness.tick()
    harness.exit(blocks)
    harness.tick()
    assert harness.nodes_of(elastic) == ["c"]
    harness.tell(job_inputs.Cancel(wide, "ada"))
    harness.tick()
    assert harness.nodes_of(elastic) == ["c", "b"]
    assert harness.nodes_of(keeps) == ["a"]


def test_forecast_and_restart_keep_profiles() -> None:
    harness = overlapping()
    fill(harness, a="left", b="right", c="right")
    left = harness.submit(spec(8, queue="left", time_limit_s=HOUR))
    starts = forecast(fork(harness.engine), harness.now).starts
    assert starts[left].at == harness.now + HOUR
    assert set(starts[left].nodes) <= {"a", "b"}


def test_licences_are_reserved_across_profiles() -> None:
    """Also where the profiles share no node."""
    apart = [
        profile(name, parse_term(f"node in {node}"), queues=(name,))
        for name, node in (("left", "a"), ("right", "c"))
    ]
    rules = QuotaConfig(licences={"matlab": 2})
    profiles = (*apart, profile("default", parse_term("node in b")))
    harness = EngineHarness(replace(PIPELINE, rules=rules, profiles=profiles))
    for name in "abc":
        harness.join(name)

    def wants(count: int, queue: str, hours: float) -> int:
        return harness.submit(spec(queue=queue, licences={"matlab": count}, time_limit_s=hours * HOUR))

    first = wants(1, "left", 1.0)
    harness.tick()
    both = wants(2, "left", 1.0)
    harness.tick()
    assert reserved(harness, "left") == (both, HOUR)
    long, short = wants(1, "right", 2.0), wants(1, "right", 0.5)
    harness.tick()
    assert (harness.nodes_of(long), harness.nodes_of(short)) == ([], ["c"])
    harness.exit(short)
    why = harness.why(long)
    assert (why.reason, why.sentence[:25]) == (Reason.PROMISED, "there are enough licences")
    harness.now += HOUR
    harness.exit(first)
    harness.tick()
    assert harness.nodes_of(both) == ["a"]
