"""python -m benchmarks lab: jobs are a function of the seed, and measures are right on small histories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.lab import measures
from benchmarks.lab.command import LAB, configuration, run_command
from benchmarks.lab.entitlement import Demand, entitled_hours
from benchmarks.lab.history import History, RecordedJob
from benchmarks.lab.measures import Deviation, Record, Sample
from benchmarks.lab.scaled_cluster import with_nodes
from benchmarks.lab.workload import DEADLINE, GANG, GPUS, HOUR_S, MIXES, NOTEBOOK, START_S, lab_jobs
from controller.config.load import load_with_problems
from controller.core.accounting.idle_causes import IdleCause
from controller.core.model.allocation import Allocation
from controller.core.model.events.attempts import JobEnded, JobPlaced, JobPreempted, JobRequeued
from controller.core.model.events.queued import JobQueued
from wire.agent.orders import GpuHold
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

# --- the jobs ---


@pytest.mark.parametrize("mix", MIXES)
def test_jobs_are_a_function_of_the_seed_and_demand_the_load(mix: str) -> None:
    jobs = lab_jobs(7, 7, 1.2, mix)
    assert jobs == lab_jobs(7, 7, 1.2, mix)
    assert jobs != lab_jobs(8, 7, 1.2, mix)
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)
    demanded = sum(
        job.spec.gpus * min(job.runtime_s, job.spec.time_limit_s or job.runtime_s) / HOUR_S
        for job in jobs
        if job.user != "mal"
    )
    assert demanded / (GPUS * 7 * 24) == pytest.approx(1.2, abs=0.1)


def test_mixes_differ_as_their_names_say() -> None:
    def gang_part(mix: str) -> float:
        jobs = lab_jobs(1, 28, 1.2, mix)
        hours = dict.fromkeys((GANG, ""), 0.0)
        for job in jobs:
            hours[GANG if job.spec.name == GANG else ""] += job.spec.gpus * job.runtime_s
        return hours[GANG] / sum(hours.values())

    assert gang_part("narrow") < 0.15 < 0.25 < gang_part("lab") < 0.5 < gang_part("wide")
    assert all(job.spec.time_limit_s is None for job in lab_jobs(1, 7, 1.2, "nolimits"))
    flood = [job for job in lab_jobs(1, 7, 1.2, "flood") if job.user == "mal"]
    assert (len(flood), len({job.spec.project for job in flood})) == (5_000, 50)


def test_notebooks_are_submitted_in_working_hours_and_deadlines_30_h_ahead() -> None:
    jobs = lab_jobs(3, 14, 0.9, "lab")
    hours = [(job.submit_s - START_S) / HOUR_S for job in jobs if job.spec.name == NOTEBOOK]
    assert hours
    assert all(9 <= hour % 24 <= 18 and hour % 168 < 120 for hour in hours)
    due = [job for job in jobs if job.spec.deadline_at is not None]
    assert len(due) == 18
    assert {(job.spec.deadline_at or 0) - job.submit_s for job in due} == {30 * HOUR_S}


# --- the entitlement ---


def test_entitlement_follows_the_demand_of_each_step() -> None:
    demands = [
        Demand("a", 0.0, 4, 4 * 2 * HOUR_S),
        Demand("b", 0.0, 8, 8 * 1 * HOUR_S),
        Demand("b", HOUR_S, 8, 8 * 10 * HOUR_S),
    ]
    # Each tenant gets 4 of 8 GPUs in the first two hours; in the third hour b is alone.
    found = entitled_hours(demands, {}, [8.0] * 3, HOUR_S, {})
    assert found == {"a": [4.0, 4.0, 0.0], "b": [4.0, 4.0, 8.0]}


def test_entitlement_is_at_most_the_gpus_of_the_required_model() -> None:
    demands = [Demand("a", 0.0, 8, 8 * HOUR_S, ("H100",)), Demand("b", 0.0, 2, 2 * HOUR_S)]
    found = entitled_hours(demands, {}, [8.0], HOUR_S, {("H100",): 4})
    assert found == {"a": [4.0], "b": [2.0]}


# --- the records ---


def _spec(gpus: float, **changes: object) -> JobSpec:
    return JobSpec(command=("x",), gpus=gpus, **changes)  # type: ignore[arg-type]


def _placed(job: int, at: float, node: str, gpus: int) -> JobPlaced:
    holds = tuple(GpuHold(f"{node}-{number}", 1000) for number in range(gpus))
    return JobPlaced(job, at, 1, (Allocation(node, 1000, 1, holds),), 0)


def test_history_follows_a_job_through_a_preemption() -> None:
    history = History()
    for event in (
        JobQueued(1, 0.0, _spec(4, project="llm"), "ada"),
        _placed(1, 10.0, "n1", 4),
        JobPreempted(1, 30.0, 1, "job 2", 0.5),
        JobRequeued(1, 30.0, 1, Reason.PREEMPTED),
    ):
        history.observe(event)
    assert dict(history.waiting_of) == {("llm", "ada"): 1}
    history.observe(_placed(1, 50.0, "n1", 4))
    assert dict(history.waiting_of) == {("llm", "ada"): 0}
    history.observe(JobEnded(1, 80.0, JobState.COMPLETED, Reason.NONE))
    job = history.jobs[1]
    assert (job.runs, job.end_s, job.lost_gpu_hours) == ([(10.0, 30.0), (50.0, 80.0)], 80.0, 0.5)


# --- the measures ---


def _job(
    number: int,
    user: str,
    project: str,
    gpus: int,
    submit_h: float,
    runs: list[tuple[float, float]],
    run_h: float = 10.0,
    **spec: object,
) -> RecordedJob:
    made = _spec(gpus, project=project, **spec)
    in_seconds = [(start * HOUR_S, end * HOUR_S) for start, end in runs]
    return RecordedJob(number, user, made, submit_h * HOUR_S, run_h * HOUR_S, in_seconds)


def _record(jobs: list[RecordedJob], hours: int, waiting: set[tuple[str, str]], gpus: int = 8) -> Record:
    samples = [Sample({IdleCause.QUOTA: 1.0, IdleCause.SCATTERED: 1.0}, frozenset(waiting))] * (2 * hours)
    return Record(jobs, samples, 0.0, hours * HOUR_S, gpus, {}, {"llm": 3.0})


def test_deviations_of_projects_and_of_users_within_a_project() -> None:
    jobs = [
        _job(1, "ann", "llm", 4, 0, [(0, 10)]),
        _job(2, "bob", "vision", 3, 0, [(0, 10)]),
        _job(3, "eve", "vision", 1, 0, [(0, 10)]),
        _job(4, "ann", "llm", 8, 0, []),
        _job(5, "bob", "vision", 8, 0, []),
        _job(6, "eve", "vision", 8, 0, []),
    ]
    record = _record(jobs, 10, {("llm", "ann"), ("vision", "bob"), ("vision", "eve")})
    # With the weights 3 and 1, llm is entitled to 6 of 8 GPUs, which is 75 %, and got 4.
    assert measures.project_deviations(record) == [
        Deviation("llm", -25.0, 50.0, 75.0, 1.0),
        Deviation("vision", 25.0, 50.0, 25.0, 1.0),
    ]
    # Each user of vision is entitled to half of the 4 GPUs of the project.
    assert measures.user_deviations(record) == [
        Deviation("vision/bob", 25.0, 75.0, 50.0, 1.0),
        Deviation("vision/eve", -25.0, 25.0, 50.0, 1.0),
    ]
    assert measures.used_percent(record) == 100.0


def test_the_deviation_of_a_tenant_that_seldom_waits_does_not_count() -> None:
    record = _record([_job(1, "ann", "llm", 4, 0, [(0, 5)])], 10, set())
    (found,) = measures.project_deviations(record)
    assert (found.points, found.waits) == (-25.0, 0.0)
    assert measures.worst([found]) is None
    assert measures.user_deviations(record) == []


def test_worst_week_of_a_project_that_got_its_hours_too_early() -> None:
    week = 168.0
    jobs = [
        _job(1, "ann", "vision", 8, 0, [(0, week)], run_h=week),
        _job(2, "bob", "speech", 8, 0, [(week, 2 * week)], run_h=week),
    ]
    record = _record(jobs, int(2 * week), set())
    assert [each.points for each in measures.project_deviations(record)] == pytest.approx([0.0, 0.0])
    found = measures.worst_week(record)
    assert found is not None
    assert abs(found.points) == pytest.approx(50.0)


def test_waits_deadlines_losses_and_idle_hours() -> None:
    late = 200.0
    jobs = [
        _job(1, "ann", "llm", 24, 0, [(30, 40)], nodes=3, name=GANG),
        _job(2, "ann", "llm", 32, 10, [], nodes=4, name=GANG),
        _job(3, "ann", "llm", 24, late - 1, [], nodes=3, name=GANG),
        _job(4, "bob", "vision", 1, 0, [(60, 70)]),
        _job(5, "bob", "vision", 1, 0, [], priority=0),
        _job(6, "eve", "speech", 1, 20, [(20.5, 21)], name=NOTEBOOK),
        _job(7, "pi", "vision", 8, 0, [(1, 5)], name=DEADLINE, deadline_at=30 * HOUR_S),
        _job(8, "pi", "vision", 8, 0, [(40, 45)], name=DEADLINE, deadline_at=30 * HOUR_S),
    ]
    jobs[3].lost_gpu_hours = 16.0
    for job in jobs[6:]:
        job.state, job.end_s = JobState.COMPLETED, job.runs[-1][1]
    record = _record(jobs, int(late), set())
    assert measures.gangs_never_started(record) == (1, 2)
    assert measures.longest_gang_wait_h(record) == late - 10
    assert measures.longest_narrow_wait_h(record) == 60
    assert measures.deadlines_met(record) == (1, 2)
    assert measures.interactive_p95_minutes(record) == 30
    assert measures.lost_percent(record) == 1.0
    assert measures.idle_hours(record) == {IdleCause.QUOTA: late, IdleCause.SCATTERED: late}
    assert measures.wasted_percent(record) == 12.5


# --- the command ---


def test_the_shipped_configuration_has_no_problems() -> None:
    assert load_with_problems(LAB)[1] == ()
    assert list(configuration("empty")[1].nodes) == list(configuration("")[1].nodes)
    assert not configuration("empty")[1].queues


def test_json_of_a_short_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    assert run_command(["--days", "1", "--loads", "0.9", "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["config"], found["mix"], found["load"], found["seed"]) == ("lab", "lab", 0.9, 1)
    assert found["jobs"] == len(lab_jobs(1, 1, 0.9, "lab"))
    assert sum(found["idle_hours"].values()) == pytest.approx(
        (100 - found["used_percent"]) / 100 * 48 * 24, abs=48
    )


def test_one_project_runs_alone_with_the_service(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--days", "1", "--loads", "0.9", "--alone", "llm", "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    jobs = lab_jobs(1, 1, 0.9, "lab")
    assert found["jobs"] == sum(job.spec.project == "llm" for job in jobs) + 1 < len(jobs)
    assert run_command(["--alone", "lm"]) != 0
    assert "'lm' is none of llm" in capsys.readouterr().err


def test_limits_grow_with_the_number_of_nodes() -> None:
    name, small = configuration("")
    large = with_nodes(small, 12, name)
    assert list(large.nodes)[5:8] == ["gpu06", "gpu01-2", "gpu02-2"]
    assert large.nodes["gpu05-2"] == small.nodes["gpu05"]
    for path, key, before, after in (
        (
            "users",
            "*",
            {"gpus": 24, "running": 48, "queued": 300},
            {"gpus": 48, "running": 96, "queued": 600},
        ),
        ("queues", "interactive", {"gpus": 12}, {"gpus": 24}),
    ):
        assert (small.quota.model_dump()[path][key], large.quota.model_dump()[path][key]) == (before, after)
    interactive = large.queues["interactive"]
    assert (interactive.keep_free_gpus, interactive.max_gpus_per_user) == (4, 8)
    assert interactive.max_gpus_per_job == small.queues["interactive"].max_gpus_per_job
    assert with_nodes(small, 6, name).model_dump() == small.model_dump()
    assert list(with_nodes(small, 2, name).nodes) == ["gpu01", "gpu02"]


def test_jobs_grow_with_the_number_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--days", "1", "--loads", "0.9", "--nodes", "12", "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["jobs"] == len(lab_jobs(1, 1, 0.9, "lab", 2 * GPUS)) > len(lab_jobs(1, 1, 0.9, "lab"))


def test_unknown_mixes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--mixes", "labb"]) != 0
    assert "labb" in capsys.readouterr().err


def test_a_load_that_the_mix_cannot_reach_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--days", "7", "--loads", "50"]) != 0
    assert "the load is too large for this mix" in capsys.readouterr().err
