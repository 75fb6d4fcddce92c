"""Jobs that depend on other jobs: when they start, and what happens if a dependency can never be met."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.forecast.forecast import forecast, fork
from controller.core.model.decision.decision import Accepted
from controller.core.model.events.attempts import JobEnded
from controller.core.model.events.queued import DependencyDecided, GateOpened
from controller.core.model.inputs import agent_inputs, controller_inputs, job_inputs
from controller.core.model.wait_state import WaitRules
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.reports import AttemptStatus, Checkpoint
from wire.job.start_conditions import Dependency, Restart, RestartWhen, Until
from wire.names import JobState, Reason

T0 = 1_000.0
STARTED, OK, NOT_OK, ENDED = Until.STARTED, Until.OK, Until.NOT_OK, Until.ENDED


@pytest.fixture
def harness() -> EngineHarness:
    harness = EngineHarness()
    harness.join("a")
    return harness


def after(until: Until, *jobs: int | str) -> tuple[Dependency, ...]:
    return tuple(Dependency(until, str(job)) for job in jobs)


def run(harness: EngineHarness, job: int, **how: object) -> None:
    harness.tick()
    harness.start(job)
    harness.exit(job, **how)  # type: ignore[arg-type]


def started(harness: EngineHarness) -> list[int]:
    return [start.job for start in harness.tick()]


@pytest.mark.parametrize(
    ("until", "at_start", "after_success", "after_failure"),
    [
        (STARTED, True, True, True),
        (OK, False, True, None),
        (NOT_OK, False, None, True),
        (ENDED, False, True, True),
        (Until.CHECKPOINT, False, None, None),
    ],
)
def test_each_kind_of_dependency(
    until: Until, at_start: bool, after_success: bool | None, after_failure: bool | None
) -> None:
    """True: the job starts. False: the job still waits. None: the dependency can never be met, so the job
    is cancelled.
    """
    for code, expected in ((0, after_success), (1, after_failure)):
        harness = EngineHarness()
        harness.join("a")
        first = harness.submit(spec(1))
        second = harness.submit(spec(1, after=after(until, first)))
        assert started(harness) == [first]
        harness.start(first)
        assert started(harness) == ([second] if at_start else [])
        if not at_start:
            harness.exit(first, code)
            state, reason = harness.job(second).state, harness.job(second).reason
            assert started(harness) == ([second] if expected else [])
            if expected is None:
                assert (state, reason) == (JobState.CANCELLED, Reason.DEPENDENCY)


def test_checkpoint_dependency_is_met_although_the_job_then_fails(harness: EngineHarness) -> None:
    first = harness.submit(spec(1))
    second = harness.submit(spec(1, after=after(Until.CHECKPOINT, first)))
    harness.tick()
    harness.start(first)
    saved = Checkpoint("/c/1", at=5.0)
    over = AttemptStatus(first, 1, 7, 1.0, 2.0, code=1, checkpoint=saved)
    harness.tell(agent_inputs.AgentReported("a", over))
    assert started(harness) == [second]


def test_dependency_on_all_or_on_some_of_several_jobs(harness: EngineHarness) -> None:
    jobs = [harness.submit(spec(1)) for _ in range(3)]
    everything = harness.submit(spec(1, after=after(OK, *jobs)))
    any_two = harness.submit(spec(1, after=after(OK, *jobs), after_count=2))
    run(harness, jobs[0])
    run(harness, jobs[1])
    assert started(harness) == [any_two]
    run(harness, jobs[2])
    assert started(harness) == [everything]


def test_dependency_on_some_jobs_is_met_although_another_fails(harness: EngineHarness) -> None:
    jobs = [harness.submit(spec(1)) for _ in range(3)]
    any_two = harness.submit(spec(1, after=after(OK, *jobs), after_count=2))
    run(harness, jobs[0], code=1)
    run(harness, jobs[1])
    assert harness.job(any_two).state is JobState.QUEUED
    run(harness, jobs[2])
    assert started(harness) == [any_two]


def test_dependency_on_an_array_covers_all_its_elements(harness: EngineHarness) -> None:
    array = harness.submit(spec(1, array="0-2"))
    clean = harness.submit(spec(1, after=after(OK, array)))
    broken = harness.submit(spec(1, after=after(NOT_OK, array)))
    third = harness.submit(spec(1, after=after(OK, f"{array}_2")))
    run(harness, array)
    run(harness, array + 2)
    assert started(harness) == [third]
    harness.tell(job_inputs.Cancel(array + 1, "ada"))
    harness.exit(array + 1, None, signal=15)
    assert started(harness) == [broken]
    assert harness.job(clean).state is JobState.CANCELLED
    assert harness.job(clean).detail == (
        f"job {array} can no longer succeed: job {array}_1 is CANCELLED (cancelled by ada)"
    )


def test_dependency_on_an_element_can_name_its_job_id(harness: EngineHarness) -> None:
    array = harness.submit(spec(1, array="0-2"))
    job = harness.submit(spec(1, after=after(ENDED, array + 1)))
    assert harness.job(job).spec.after == after(ENDED, f"{array}_1")
    run(harness, array + 1)
    assert started(harness) == [job]


def test_a_dependency_that_is_met_already_does_not_wait(harness: EngineHarness) -> None:
    first, second = harness.submit(spec(1)), harness.submit(spec(1))
    run(harness, first)
    assert started(harness) == []
    job = harness.submit(spec(1, after=(*after(OK, first), *after(STARTED, second))))
    harness.start(second)
    assert started(harness) == [job]


@pytest.mark.parametrize(
    ("until", "message"),
    [
        (OK, "the job could never start: job 1 can no longer succeed: job 1 is FAILED (exit code 3)"),
        (
            Until.CHECKPOINT,
            "the job could never start: job 1 can no longer save a checkpoint: job 1 is FAILED (exit code 3)",
        ),
    ],
)
def test_an_impossible_dependency_is_refused(harness: EngineHarness, until: Until, message: str) -> None:
    first = harness.submit(spec(1))
    run(harness, first, code=3)
    refusal = harness.refuse(job_inputs.Submit(spec(1, after=after(until, first)), "ada"))
    assert (refusal.where, refusal.message) == ("after", message)


def test_an_unknown_job_is_named(harness: EngineHarness) -> None:
    refusal = harness.refuse(job_inputs.Submit(spec(1, after=after(OK, 7)), "ada"))
    assert (refusal.where, refusal.message) == ("after[0]", "there is no job 7 to wait for")


def test_old_jobs_of_the_store_count_by_their_end_state(harness: EngineHarness) -> None:
    """A job can only depend on jobs with an id, so it can depend neither on itself nor on later jobs."""
    known = {"7": JobState.COMPLETED, "8": JobState.FAILED}
    harness.state.next_job = 10
    reply = harness.tell(job_inputs.Submit(spec(1, after=after(OK, 7)), "ada", known=known)).reply
    assert isinstance(reply, Accepted)
    assert started(harness) == [10]
    refusal = harness.refuse(job_inputs.Submit(spec(1, after=after(OK, 8)), "ada", known=known))
    assert refusal.message == "the job could never start: job 8 can no longer succeed: it is FAILED"


def test_an_impossible_dependency_cancels_the_whole_chain(harness: EngineHarness) -> None:
    """The chain has two thousand jobs, so recursion would fail."""
    first = last = harness.submit(spec(1))
    for _ in range(2_000):
        last = harness.submit_unchecked(spec(1, after=after(OK, last)))
    harness.tell(job_inputs.Cancel(first, "ada"))
    assert harness.job(last).state is JobState.CANCELLED
    assert harness.engine.due_jobs.dependencies.edges == []


def test_cancel_hopeless_can_be_off() -> None:
    harness = EngineHarness(replace(PIPELINE, waiting=WaitRules(cancel_hopeless=False)))
    harness.join("a")
    first = harness.submit(spec(1))
    second = harness.submit(spec(1, after=after(OK, first)))
    run(harness, first, code=3)
    assert started(harness) == []
    assert harness.why(second).sentence == (
        "never starts: job 1 can no longer succeed: job 1 is FAILED (exit code 3); "
        "change its dependencies, or cancel it"
    )


def test_after_within_cancels_a_waiting_job(harness: EngineHarness) -> None:
    first = harness.submit(spec(1, hold=True))
    second = harness.submit(spec(1, after=after(OK, first), after_within_s=60))
    harness.tick_at(T0 + 59)
    assert harness.why(second).sentence == "waits for job 1 to succeed (queued), for 1s more"
    harness.tick_at(T0 + 60)
    assert (harness.job(second).state, harness.job(second).reason) == (JobState.CANCELLED, Reason.DEPENDENCY)
    assert harness.job(second).detail == "still waits for job 1 to succeed (queued) after 1m00s"


def test_a_restart_is_not_yet_a_failure(harness: EngineHarness) -> None:
    first = harness.submit(spec(1, restart=Restart(RestartWhen.ON_FAILURE, 1, 0)))
    second = harness.submit(spec(1, after=after(OK, first)))
    run(harness, first, code=1)
    assert harness.job(second).state is JobState.QUEUED
    run(harness, first)
    assert started(harness) == [second]


def test_explain_names_the_dependencies_and_the_time_left(harness: EngineHarness) -> None:
    first = harness.submit(spec(1, time_limit_s=600))
    second = harness.submit(spec(1, after=after(OK, first)))
    harness.tick()
    harness.start(first)
    harness.now += 60
    why = harness.why(second)
    assert why.reason is Reason.DEPENDENCY
    assert why.sentence == "waits for job 1 to succeed (running, ends in 9m00s at the latest)"
    assert forecast(fork(harness.engine), harness.now).starts[second].at == T0 + 600


def test_begin_and_dependency_are_both_kept(harness: EngineHarness) -> None:
    first = harness.submit(spec(1))
    second = harness.submit(spec(1, after=after(OK, first), begin_at=T0 + 60))
    run(harness, first)
    assert started(harness) == []
    assert [start.job for start in harness.tick_at(T0 + 60)] == [second]


def test_an_event_costs_only_the_dependencies_on_its_job() -> None:
    """A thousand jobs wait for one job. When another job ends, no dependency is checked."""
    harness = EngineHarness()
    harness.join("a")
    busy, other = harness.submit(spec(1)), harness.submit(spec(1))
    for _ in range(1_000):
        harness.submit_unchecked(spec(1, after=after(OK, busy)))
    asked: list[object] = []
    followers = harness.engine.due_jobs.dependencies
    waiting = followers.waiting
    followers.waiting = lambda goal: (asked.append(goal), waiting(goal))[1]  # type: ignore[method-assign]
    run(harness, other)
    assert asked == []
    run(harness, busy)
    assert asked == [(str(busy), OK)]


# --- data ---


def test_data_dependencies_below_data_roots(harness: EngineHarness) -> None:
    harness = EngineHarness(replace(PIPELINE, waiting=WaitRules(data_roots=("/data",))))
    harness.join("a")
    job = harness.submit(spec(1, after=(Dependency(Until.DATA, path="/data/set/READY"),)))
    assert started(harness) == []
    assert harness.why(job).sentence == "waits for /data/set/READY to exist"
    assert harness.engine.due_jobs.dependencies.data_paths == ["/data/set/READY"]
    harness.tell(controller_inputs.DataFound("/data/set/READY"))
    assert started(harness) == [job]
    assert harness.engine.due_jobs.dependencies.data_paths == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/etc/shadow", "/etc/shadow: jobs may wait for data only below /data"),
        ("/database", "/database: jobs may wait for data only below /data"),
        ("/data/../etc/shadow", "must name an absolute path without '..', and no job"),
        ("data", "must name an absolute path without '..', and no job"),
    ],
)
def test_data_elsewhere_is_refused(path: str, message: str) -> None:
    harness = EngineHarness(replace(PIPELINE, waiting=WaitRules(data_roots=("/data",))))
    refusal = harness.refuse(job_inputs.Submit(spec(1, after=(Dependency(Until.DATA, path=path),)), "ada"))
    assert (refusal.where, refusal.message) == ("after[0]", message)


def test_every_dependency_decision_is_in_the_journal(harness: EngineHarness) -> None:
    first, second = harness.submit(spec(1)), harness.submit(spec(1))
    third = harness.submit(spec(1, after=(*after(OK, first), *after(ENDED, second))))
    run(harness, first)
    run(harness, second, code=2)
    decided = [event for event in harness.events if getattr(event, "job", None) == third][1:]
    assert decided == [
        DependencyDecided(third, T0, 0, True),
        DependencyDecided(third, T0, 1, True),
        GateOpened(third, T0, Reason.DEPENDENCY),
    ]
    assert not [event for event in decided if isinstance(event, JobEnded)]
