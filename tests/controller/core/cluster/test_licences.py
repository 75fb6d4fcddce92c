"""Licences: which jobs hold them, which jobs wait, and that no job delays a reserved licence."""

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
from controller.core.model.inputs import job_inputs
from controller.core.quota.quota_config import QuotaConfig
from controller.plugins.backfill.kinds import Conservative, Easy, EasySjbf
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from tests.examples import examples
from wire.agent.reports import AttemptStatus
from wire.job.licences import parse_licence
from wire.job.spec import JobSpec, spec_problems
from wire.names import Reason

BACKFILLS = [Easy(), EasySjbf(), Conservative()]


def harness_of(backfill: Backfill = Easy(), nodes: int = 2, **more: Any) -> EngineHarness:
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


def started(harness: EngineHarness) -> list[int]:
    return [start.job for start in harness.tick() if start.rank == 0]


def waits(harness: EngineHarness, job: int) -> str:
    """The waiting reason of a job that waits for licences; the job table gives the same reason."""
    why = harness.why(job)
    assert (why.reason, reason_of(harness.state, harness.job(job))) == (Reason.LICENCE, Reason.LICENCE)
    return why.sentence


# (case, jobs in submit order with licences and minutes, indices of the jobs that start at once)
TABLE: list[tuple[str, list[dict[str, Any]], list[int]]] = [
    ("as many as there are", [{"matlab": 2}, {"matlab": 2}, {"matlab": 2}], [0, 1]),
    ("of each kind", [{"matlab": 5}, {"ansys": 1}, {"ansys": 1}], [0, 1]),
    ("all or none", [{"matlab": 5, "minutes": 9}, {"matlab": 1, "ansys": 1}, {"ansys": 1}], [0]),
    ("a job without licences passes", [{"matlab": 5}, {"matlab": 1}, {}], [0, 2]),
    (
        "a job that ends before the first can start passes",
        [{"matlab": 4, "minutes": 60}, {"matlab": 3}, {"matlab": 1, "minutes": 60}],
        [0, 2],
    ),
    (
        "a job that would delay the first does not pass",
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
        "the first keeps its nodes from a longer job",
        [{"matlab": 5, "minutes": 60}, {"matlab": 1, "gpus": 16, "nodes": 2}, {"gpus": 1, "minutes": 61}],
        [0],
    ),
    (
        "the first lends its nodes to a shorter job",
        [{"matlab": 5, "minutes": 60}, {"matlab": 1, "gpus": 16, "nodes": 2}, {"gpus": 1, "minutes": 60}],
        [0, 2],
    ),
    ("a job holds its own once, on however many nodes", [{"matlab": 3, "nodes": 2}, {"matlab": 2}], [0, 1]),
]


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize(("story", "jobs", "first"), TABLE, ids=[story for story, _, _ in TABLE])
def test_jobs_that_start_with_their_licences(
    backfill: Backfill, story: str, jobs: list[dict[str, Any]], first: list[int]
) -> None:
    harness = harness_of(backfill)
    ids = [harness.submit(wants(**job)) for job in jobs]
    begun = [job for _ in range(2) for job in started(harness)]
    assert sorted(begun) == [ids[at] for at in first], story


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_waiting_job_names_the_licence_and_its_holders(backfill: Backfill) -> None:
    harness = harness_of(backfill)
    first, second = harness.submit(wants(3, minutes=30)), harness.submit(wants(1, minutes=60))
    third = harness.submit(wants(2, minutes=10))
    assert started(harness) == [first, second]
    assert waits(harness, third) == f"waits for 2 of licence matlab; 4 of 5 in use by jobs {first}, {second}"
    assert forecast(fork(harness.engine), harness.now).starts[third].at == harness.now + 1800
    for job in (first, second):
        harness.start(job)
    harness.exit(second)  # sooner than it might have
    assert started(harness) == [third]
    assert harness.state.licences.used == {"matlab": 5}


def test_a_gang_holds_its_licences_until_its_last_member_is_gone() -> None:
    harness = harness_of()
    gang = harness.submit(wants(ansys=1, nodes=2))
    harness.tick()
    harness.start(gang)
    next_one = harness.submit(wants(ansys=1))
    harness.exit(gang, node="n0")
    assert started(harness) == []
    assert "1 of 1 in use by job" in waits(harness, next_one)
    harness.exit(gang, node="n1")
    assert started(harness) == [next_one]


def test_room_and_licences_are_both_named_where_both_are_missing() -> None:
    harness = harness_of()
    full = harness.submit(wants(5, gpus=16, nodes=2))
    harness.tick()
    more = harness.submit(wants(1, gpus=8))
    harness.tick()
    why = harness.why(more)
    assert (why.reason, reason_of(harness.state, harness.job(more))) == (Reason.RESOURCES, Reason.RESOURCES)
    assert why.sentence.endswith(f"besides, it waits for 1 of licence matlab; 5 of 5 in use by job {full}")


def test_held_licences_survive_a_restart_with_fewer_licences_configured() -> None:
    harness = harness_of()
    first = harness.submit(wants(4))
    harness.tick()
    harness.start(first)
    fewer = harness.restarted(replace(PIPELINE, rules=QuotaConfig(licences={"matlab": 3})))
    fewer.join(harness.nodes_of(first)[0], (AttemptStatus(first, 1, pid=100, started_at=harness.now),))
    assert fewer.state.licences.used == {"matlab": 4}
    assert fewer.state.licences.free("matlab") == -1
    second = fewer.submit(wants(1))
    assert started(fewer) == []
    assert "4 of 3 in use" in fewer.why(second).sentence


@pytest.mark.parametrize(
    ("asked", "code", "expected", "hint"),
    [
        ({"matlba": 1}, "invalid", "there is no licence 'matlba'", "Did you mean 'matlab'?"),
        ({"MATLAB": 1}, "invalid", "there is no licence 'MATLAB'", "Did you mean 'matlab'?"),
        ({"xyz": 1}, "invalid", "there is no licence 'xyz'", "There are: ansys, matlab."),
        ({"matlab": 6}, "never_fits", "asks for 6 of licence matlab, and there are 5", "corral licences"),
    ],
)
def test_licence_request_that_can_never_be_met_is_refused(
    asked: dict[str, int], code: str, expected: str, hint: str
) -> None:
    harness = harness_of()
    refused = harness.refuse(job_inputs.Submit(spec(licences=asked), "ada"))
    assert (refused.code, refused.message, refused.where) == (code, expected, f"licences.{next(iter(asked))}")
    assert hint in refused.hint
    job = harness.submit(wants(1, hold=True))
    assert harness.refuse(job_inputs.Edit(job, "ada", {"licences": asked})).message == expected


def test_licence_refusal_without_configured_licences_names_the_table() -> None:
    refused = EngineHarness().refuse(job_inputs.Submit(wants(1), "ada"))
    assert "[licences] of scheduler.toml" in refused.hint


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_no_job_is_preempted_for_a_job_without_licences(backfill: Backfill) -> None:
    harness = harness_of(
        backfill, strategies=(PriorityStrategy(),), guards=PreemptionGuards(min_runtime_s=0.0)
    )
    keeps = harness.submit(wants(5, priority=90))
    low = harness.submit(wants(gpus=16, nodes=2, priority=10))
    assert started(harness) == [keeps, low]
    for job in (keeps, low):
        harness.start(job)
    high = harness.submit(wants(1, gpus=16, nodes=2, priority=90))
    harness.tick()
    assert harness.stops() == []
    assert harness.engine.preemption_plan(harness.job(high), harness.now) == (None, False)
    harness.exit(keeps)
    harness.tick()
    assert {job for _, job in harness.stops()} == {low}
    other = harness.submit(wants(5, priority=100))  # licences kept for the nominated job stay reserved
    assert started(harness) == []
    assert f"1 of 5 in use by job {high}" in harness.why(other).sentence
    harness.exit(low, code=None, signal=15, why="preempted")
    assert started(harness) == [high]
    assert harness.state.licences.used == {"matlab": 1}


def test_a_job_whose_licences_change_waits_for_the_new_ones() -> None:
    harness = harness_of()
    first, second = harness.submit(wants(4)), harness.submit(wants(2))
    assert started(harness) == [first]
    [eased] = [each for each in suggestions(fork(harness.engine), second, harness.now) if each.changes]
    assert eased.sentence == "with 1 of licence matlab instead of 2"
    harness.tell(job_inputs.Edit(second, "ada", eased.changes))
    assert started(harness) == [second]
    assert harness.refuse(job_inputs.Edit(second, "ada", {"licences": {}})).code == "conflict"


def test_conservative_licence_reservations_are_kept_by_later_jobs() -> None:
    """Three jobs wait in turn for a licence. A later job starts where it fits between them, or after them."""
    harness = harness_of(Conservative())
    jobs = [harness.submit(wants(*each)) for each in ((3, 0, 30), (4, 0, 30), (2, 0, 20))]
    late = harness.submit(wants(1, minutes=120))
    assert started(harness) == [
        jobs[0],
        jobs[2],
    ]
    expected = forecast(fork(harness.engine), harness.now).starts
    assert expected[jobs[1]].at == harness.now + 1800
    assert expected[late].at == harness.now + 1200  # beside the second job, which it may not delay


@pytest.mark.parametrize("text", ["", ":2", "a:0", "a:-1", "a:x", "a b", "a:1:2", "a:9999999999"])
def test_invalid_licence_requests_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write matlab:2"):
        parse_licence(text)


def test_valid_licence_requests_are_parsed() -> None:
    assert (parse_licence("matlab"), parse_licence("a.b@host:12")) == (("matlab", 1), ("a.b@host", 12))
    assert spec_problems(spec(licences={"a b": 1})) != []
    assert [where for where, _ in spec_problems(spec(licences={"a": 0}))] == ["licences.a"]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(1, 3)), max_size=8),
    st.integers(1, 4),
    st.integers(1, 20),
    st.integers(0, 60),
)
def test_earliest_licence_start_equals_a_search_second_by_second(
    held: list[tuple[int, int, int]], count: int, duration: int, since: int
) -> None:
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
@settings(max_examples=examples(90))
@given(jobs=st.lists(st.tuples(ASKED, st.floats(0.2, 1.0), st.integers(0, 900)), min_size=2, max_size=14))
def test_no_job_starts_after_its_reservation(
    backfill: Backfill, jobs: list[tuple[JobSpec, float, int]]
) -> None:
    """Some jobs end before their limits and some arrive later; the first job keeps its reserved start."""
    harness = harness_of(backfill, nodes=1)
    begin, ends, promised = harness.now, [], dict[int, float]()
    coming = sorted(jobs, key=lambda each: each[2])
    while coming or ends or len(harness.state.queue):
        due = [end for end, _ in ends] + [begin + at for _, _, at in coming]
        for end, job in [each for each in ends if each[0] <= harness.now]:
            ends.remove((end, job))
            harness.exit(job)
        while coming and begin + coming[0][2] <= harness.now:
            asked, part, _ = coming.pop(0)
            harness.submit(replace(asked, name=str(part)))
        for job in started(harness):
            assert harness.now <= promised.get(job, harness.now), (job, promised)
            harness.start(job)
            asked = harness.job(job).spec
            ends.append((harness.now + (asked.time_limit_s or 0) * float(asked.name), job))
        promise = harness.engine.cycle.first_reservation(harness.now)
        if promise is not None and promise.job in harness.state.queue:
            promised[promise.job] = min(promise.starts_at, promised.get(promise.job, promise.starts_at))
        later = [at for at in due + [end for end, _ in ends] if at > harness.now]
        assert later or not len(harness.state.queue)
        harness.now = min(later, default=harness.now)
