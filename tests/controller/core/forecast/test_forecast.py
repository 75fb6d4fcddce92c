"""A forecast equals the later starts if jobs run to their limits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.forecast.forecast import forecast, fork
from controller.core.forecast.start_outlook import last_blocker
from controller.core.model.inputs import agent_inputs, job_inputs, policy_inputs
from tests.engine_harness import EngineHarness, default_pipeline, spec
from tests.examples import examples
from wire.cluster.quota import Limits, Quota
from wire.job.spec import JobSpec
from wire.names import JobState

HOUR = 3600.0
JOBS = st.lists(
    st.builds(
        spec,
        gpus=st.sampled_from([0.5, 1, 2, 4, 8, 16]),
        time_limit_s=st.sampled_from([HOUR, 2 * HOUR, 5 * HOUR]),
        priority=st.sampled_from([25, 50, 75]),
    ),
    min_size=1,
    max_size=25,
)


def two_nodes() -> EngineHarness:
    harness = EngineHarness(default_pipeline())
    harness.join("a")
    harness.join("b")
    return harness


@settings(max_examples=examples(60))
@given(JOBS)
def test_forecast_equals_the_starts_that_follow(jobs: list[JobSpec]) -> None:
    harness = two_nodes()
    ids = [harness.submit(job) for job in jobs]
    foretold = forecast(fork(harness.engine), harness.now)
    assert foretold.whole
    started: dict[int, float] = {}
    while len(started) < len(ids):
        for start in harness.tick():
            started.setdefault(start.job, harness.now)
        ends = harness.state.releases
        harness.now = ends[0][0]
        while ends and ends[0][0] <= harness.now:
            job = ends[0][1]
            harness.start(job)
            harness.exit(job)
    assert {job: start.at for job, start in foretold.starts.items()} == started


def test_forecast_changes_no_state() -> None:
    harness = two_nodes()
    for gpus in (8, 8, 4):
        harness.submit(spec(gpus, time_limit_s=HOUR))
    harness.tick()
    before = len(harness.events), harness.state.next_job
    forecast(
        fork(harness.engine), harness.now, [job_inputs.Cancel(1, "ada"), job_inputs.Submit(spec(1), "bo")]
    )
    assert (len(harness.events), harness.state.next_job) == before
    assert harness.job(1).state is JobState.SCHEDULED
    assert [start.job for start in harness.tick()] == []


def test_forecast_of_a_submit_delays_the_waiting_job() -> None:
    harness = two_nodes()
    for gpus in (8, 8):
        harness.submit(spec(gpus, time_limit_s=HOUR))
    harness.tick()
    waiting = harness.submit(spec(16, time_limit_s=HOUR))
    as_it_is = forecast(fork(harness.engine), harness.now)
    urgent = job_inputs.Submit(spec(8, priority=100, time_limit_s=2 * HOUR), "bo")
    changed = forecast(fork(harness.engine), harness.now, [urgent])
    assert as_it_is.starts[waiting].at == harness.now + HOUR
    assert changed.starts[waiting].at == harness.now + 3 * HOUR


def test_forecast_of_a_cancel_starts_the_waiting_job_now() -> None:
    harness = two_nodes()
    for gpus in (8, 8):
        harness.submit(spec(gpus, time_limit_s=HOUR))
    harness.tick()
    harness.start(1)
    waiting = harness.submit(spec(8, time_limit_s=HOUR))
    changed = forecast(fork(harness.engine), harness.now, [job_inputs.Cancel(1, "ada")])
    assert changed.starts[waiting].at == harness.now


def test_a_job_without_a_limit_ends_the_forecast() -> None:
    harness = two_nodes()
    for gpus in (8, 8):
        harness.submit(spec(gpus))
    harness.tick()
    waiting = harness.submit(spec(1))
    foretold = forecast(fork(harness.engine), harness.now)
    assert waiting not in foretold.starts
    assert not foretold.whole


def test_an_away_node_stays_away_in_the_copy() -> None:
    harness = two_nodes()
    harness.tell(agent_inputs.LinkWentDown("b", "cut"))
    waiting = harness.submit(spec(16))
    assert waiting not in forecast(fork(harness.engine), harness.now).starts


def test_a_quota_that_the_end_of_a_job_frees_is_no_last_blocker() -> None:
    harness = two_nodes()
    harness.tell(policy_inputs.SetQuota("user", "ada", Quota(Limits(gpus=1)), "root"))
    one, two = (harness.submit(spec(1, time_limit_s=HOUR)) for _ in range(2))
    harness.tick()
    assert (bool(harness.nodes_of(one)), bool(harness.nodes_of(two))) == (True, False)
    start = forecast(fork(harness.engine), harness.now, until=two).starts[two].at
    assert start > harness.now + HOUR - 60
    assert last_blocker(fork(harness.engine), harness.job(two), start, harness.now) == ""
