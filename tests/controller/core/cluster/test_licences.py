"""Licences as stories: who holds them, who waits for whom, and that nothing delays who is promised some."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.backfill.conservative.timeline import LicenceTimeline
from controller.core.explain.why_pending import reason_of
from controller.core.forecast.forecast import forecast, fork
from controller.core.forecast.smallest_change import suggestions
from controller.core.framework.interfaces import Backfill, PreemptionGuards
from controller.core.model import inputs
from controller.core.quota.quotas import QuotaConfig
from controller.plugins.backfill.kinds import Conservative, Easy, EasySjbf
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.frames import AttemptStatus
from wire.job.licences import parse_licence
from wire.job.spec import JobSpec, spec_problems
from wire.names import Reason

BACKFILLS = [Easy(), EasySjbf(), Conservative()]


def harness(backfill: Backfill = Easy(), nodes: int = 2, **more: Any) -> EngineHarness:
    """Nodes with eight GPUs, five matlabs and one ansys."""
    rules = QuotaConfig(licences={"matlab": 5, "ansys": 1})
    made = EngineHarness(replace(PIPELINE, backfill=backfill, rules=rules, **more))
    for number in range(nodes):
        made.join(f"n{number}")
    return made


def wants(matlab: int = 0, ansys: int = 0, minutes: float | None = None, **more: Any) -> JobSpec:
    licences = {name: count for name, count in (("matlab", matlab), ("ansys", ansys)) if count}
    limit = None if minutes is None else minutes * 60
    return spec(more.pop("gpus", 0), licences=licences, time_limit_s=limit, grace_s=0.0, **more)


def started(there: EngineHarness) -> list[int]:
    return [start.job for start in there.tick() if start.rank == 0]


def waits(there: EngineHarness, job: int) -> str:
    """What is said of a job that waits for licences; the table says the same."""
    why = there.why(job)
    assert (why.reason, reason_of(there.state, there.job(job))) == (Reason.LICENCE, Reason.LICENCE)
    return why.sentence


# (story, jobs in submit order: (licences and minutes), which of them start at once)
TABLE: list[tuple[str, list[dict[str, Any]], list[int]]] = [
    ("as many as there are", [{"matlab": 2}, {"matlab": 2}, {"matlab": 2}], [0, 1]),
    ("of each kind", [{"matlab": 5}, {"ansys": 1}, {"ansys": 1}], [0, 1]),
    ("all or none", [{"matlab": 5, "minutes": 9}, {"matlab": 1, "ansys": 1}, {"ansys": 1}], [0]),
    ("who asks for none passes", [{"matlab": 5}, {"matlab": 1}, {}], [0, 2]),
    (
        "who is over before the first gets its own passes",
        [{"matlab": 4, "minutes": 60}, {"matlab": 3}, {"matlab": 1, "minutes": 60}],
        [0, 2],
    ),
    (
        "who would keep the first waiting does not",
        [{"matlab": 4, "minutes": 60}, {"matlab": 5}, {"matlab": 1, "minutes": 61}],
        [0],
    ),
    (
        "unless enough will be left for both",
        [{"matlab": 4, "minutes": 60}, {"matlab": 3}, {"matlab": 1, "minutes": 61}],
        [0, 2],
    ),
    (
        "but only once",
        [{"matlab": 3, "minutes": 60}, {"matlab": 4}, *[{"matlab": 1, "minutes": 90}] * 2],
        [0, 2],
    ),
    (
        "nor does it give up its nodes to who stays longer",
        [{"matlab": 5, "minutes": 60}, {"matlab": 1, "gpus": 16, "nodes": 2}, {"gpus": 1, "minutes": 61}],
        [0],
    ),
    (
        "but to who does not",
        [{"matlab": 5, "minutes": 60}, {"matlab": 1, "gpus": 16, "nodes": 2}, {"gpus": 1, "minutes": 60}],
        [0, 2],
    ),
    ("a job holds its own once, on however many nodes", [{"matlab": 3, "nodes": 2}, {"matlab": 2}], [0, 1]),
]


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize(("story", "jobs", "first"), TABLE, ids=[story for story, _, _ in TABLE])
def test_table(backfill: Backfill, story: str, jobs: list[dict[str, Any]], first: list[int]) -> None:
    there = harness(backfill)
    ids = [there.submit(wants(**job)) for job in jobs]
    begun = [job for _ in range(2) for job in started(there)]
    assert sorted(begun) == [ids[at] for at in first], story


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_waiting_job_names_the_licence_and_its_holders(backfill: Backfill) -> None:
    there = harness(backfill)
    first, second = there.submit(wants(3, minutes=30)), there.submit(wants(1, minutes=60))
    third = there.submit(wants(2, minutes=10))
    assert started(there) == [first, second]
    assert waits(there, third) == f"waits for 2 of licence matlab; 4 of 5 in use by jobs {first}, {second}"
    assert forecast(fork(there.engine), there.now).starts[third].at == there.now + 1800
    for job in (first, second):
        there.start(job)
    there.exit(second)  # sooner than it might have
    assert started(there) == [third]
    assert there.state.licences.used == {"matlab": 5}


def test_a_gang_holds_its_licences_until_its_last_member_is_gone() -> None:
    there = harness()
    gang = there.submit(wants(ansys=1, nodes=2))
    there.tick()
    there.start(gang)
    next_one = there.submit(wants(ansys=1))
    there.exit(gang, node="n0")
    assert started(there) == []
    assert "1 of 1 in use by job" in waits(there, next_one)
    there.exit(gang, node="n1")
    assert started(there) == [next_one]


def test_room_and_licences_are_both_named_where_both_are_missing() -> None:
    there = harness()
    full = there.submit(wants(5, gpus=16, nodes=2))
    there.tick()
    more = there.submit(wants(1, gpus=8))
    there.tick()
    why = there.why(more)
    assert (why.reason, reason_of(there.state, there.job(more))) == (Reason.RESOURCES, Reason.RESOURCES)
    assert why.sentence.endswith(f"besides, it waits for 1 of licence matlab; 5 of 5 in use by job {full}")


def test_what_is_held_survives_a_restart_and_fewer_there_are_may_be() -> None:
    there = harness()
    first = there.submit(wants(4))
    there.tick()
    there.start(first)
    fewer = there.restarted(replace(PIPELINE, rules=QuotaConfig(licences={"matlab": 3})))
    fewer.join(there.nodes_of(first)[0], (AttemptStatus(first, 1, pid=100, started_at=there.now),))
    assert fewer.state.licences.used == {"matlab": 4}
    assert fewer.state.licences.free("matlab") == -1
    second = fewer.submit(wants(1))
    assert started(fewer) == []
    assert "4 of 3 in use" in fewer.why(second).sentence


@pytest.mark.parametrize(
    ("asked", "code", "told", "hint"),
    [
        ({"matlba": 1}, "invalid", "there is no licence 'matlba'", "Did you mean 'matlab'?"),
        ({"MATLAB": 1}, "invalid", "there is no licence 'MATLAB'", "Did you mean 'matlab'?"),
        ({"xyz": 1}, "invalid", "there is no licence 'xyz'", "There are: ansys, matlab."),
        ({"matlab": 6}, "never_fits", "asks for 6 of licence matlab, and there are 5", "corral licences"),
    ],
)
def test_what_can_never_be_had_is_refused(asked: dict[str, int], code: str, told: str, hint: str) -> None:
    there = harness()
    refused = there.refuse(inputs.Submit(spec(licences=asked), "ada"))
    assert (refused.code, refused.message, refused.where) == (code, told, f"licences.{next(iter(asked))}")
    assert hint in refused.hint
    job = there.submit(wants(1, hold=True))
    assert there.refuse(inputs.Edit(job, "ada", {"licences": asked})).message == told


def test_a_cluster_without_licences_says_where_they_would_stand() -> None:
    refused = EngineHarness().refuse(inputs.Submit(wants(1), "ada"))
    assert "[licences] of scheduler.toml" in refused.hint


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_no_job_is_preempted_for_a_job_without_licences(backfill: Backfill) -> None:
    there = harness(backfill, strategies=(PriorityStrategy(),), guards=PreemptionGuards(min_runtime_s=0.0))
    keeps = there.submit(wants(5, priority=90))
    low = there.submit(wants(gpus=16, nodes=2, priority=10))
    assert started(there) == [keeps, low]
    for job in (keeps, low):
        there.start(job)
    high = there.submit(wants(1, gpus=16, nodes=2, priority=90))
    there.tick()
    assert there.stops() == []
    assert there.engine.preemption_plan(there.job(high), there.now) == (None, False)
    there.exit(keeps)
    there.tick()
    assert {job for _, job in there.stops()} == {low}
    other = there.submit(wants(5, priority=100))  # what is kept for the claimant is not given away
    assert started(there) == []
    assert f"1 of 5 in use by job {high}" in there.why(other).sentence
    there.exit(low, code=None, signal=15, why="preempted")
    assert started(there) == [high]
    assert there.state.licences.used == {"matlab": 1}


def test_a_job_whose_licences_change_waits_for_the_new_ones() -> None:
    there = harness()
    first, second = there.submit(wants(4)), there.submit(wants(2))
    assert started(there) == [first]
    [eased] = [each for each in suggestions(fork(there.engine), second, there.now) if each.changes]
    assert eased.sentence == "with 1 of licence matlab instead of 2"
    there.tell(inputs.Edit(second, "ada", eased.changes))
    assert started(there) == [second]
    assert there.refuse(inputs.Edit(second, "ada", {"licences": {}})).code == "conflict"


def test_conservative_promises_are_kept_by_those_that_come_later() -> None:
    """Three wait in turn for a licence; who comes later starts where it fits between them, or after."""
    there = harness(Conservative())
    jobs = [there.submit(wants(*each)) for each in ((3, 0, 30), (4, 0, 30), (2, 0, 20))]
    late = there.submit(wants(1, minutes=120))
    assert started(there) == [
        jobs[0],
        jobs[2],
    ]
    told = forecast(fork(there.engine), there.now).starts
    assert told[jobs[1]].at == there.now + 1800
    assert told[late].at == there.now + 1200  # beside the second, whom it may not delay


@pytest.mark.parametrize("text", ["", ":2", "a:0", "a:-1", "a:x", "a b", "a:1:2", "a:9999999999"])
def test_words_that_are_no_licence(text: str) -> None:
    with pytest.raises(ValueError, match="write matlab:2"):
        parse_licence(text)


def test_words_that_are() -> None:
    assert (parse_licence("matlab"), parse_licence("a.b@host:12")) == (("matlab", 1), ("a.b@host", 12))
    assert spec_problems(spec(licences={"a b": 1})) != []
    assert [where for where, _ in spec_problems(spec(licences={"a": 0}))] == ["licences.a"]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(1, 3)), max_size=8),
    st.integers(1, 4),
    st.integers(1, 20),
    st.integers(0, 60),
)
def test_the_first_moment_is_the_first(
    held: list[tuple[int, int, int]], count: int, duration: int, since: int
) -> None:
    """Against counting second by second."""
    stock = LicenceTimeline(0.0, 4)
    for start, length, taken in held:
        stock.give(start, start + length, -taken)

    def left(at: int) -> int:
        return 4 - sum(taken for start, length, taken in held if start <= at < start + length)

    slow = next(at for at in range(since, 200) if all(left(at + n) >= count for n in range(duration)))
    assert stock.first_start(count, duration, since) == slow
    assert stock.copy().first_start(count, duration, since) == slow


def test_a_start_right_after_an_end_delays_no_job() -> None:
    stock, start, length = LicenceTimeline(0.0, 1), 49.51, 27.0
    end = start + length
    assert end - start < length  # as fractions are
    stock.give(0.0, start, -1)
    stock.give(end, end + 5, -1)
    assert stock.first_start(1, length, 0.0) == start


ASKED = st.builds(
    wants,
    matlab=st.integers(0, 5),
    ansys=st.integers(0, 1),
    minutes=st.integers(1, 9),
    gpus=st.sampled_from([0, 1, 4, 8]),
)


@pytest.mark.parametrize("backfill", BACKFILLS)
@settings(max_examples=60)
@given(jobs=st.lists(st.tuples(ASKED, st.floats(0.2, 1.0), st.integers(0, 900)), min_size=2, max_size=14))
def test_no_job_starts_after_its_reservation(
    backfill: Backfill, jobs: list[tuple[JobSpec, float, int]]
) -> None:
    """Some end before their limits, some come later; who is first keeps the moment it was told."""
    there = harness(backfill, nodes=1)
    begin, ends, promised = there.now, [], dict[int, float]()
    coming = sorted(jobs, key=lambda each: each[2])
    while coming or ends or len(there.state.queue):
        due = [end for end, _ in ends] + [begin + at for _, _, at in coming]
        for end, job in [each for each in ends if each[0] <= there.now]:
            ends.remove((end, job))
            there.exit(job)
        while coming and begin + coming[0][2] <= there.now:
            asked, part, _ = coming.pop(0)
            there.submit(replace(asked, name=str(part)))
        for job in started(there):
            assert there.now <= promised.get(job, there.now), (job, promised)
            there.start(job)
            asked = there.job(job).spec
            ends.append((there.now + (asked.time_limit_s or 0) * float(asked.name), job))
        promise = there.engine.cycle.first_reservation(there.now)
        if promise is not None and promise.job in there.state.queue:
            promised[promise.job] = min(promise.starts_at, promised.get(promise.job, promise.starts_at))
        later = [at for at in due + [end for end, _ in ends] if at > there.now]
        assert later or not len(there.state.queue)
        there.now = min(later, default=there.now)
