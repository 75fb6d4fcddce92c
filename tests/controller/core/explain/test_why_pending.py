"""The sentences of explain: the binding filter, the jobs ahead, and why something is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.forecast.forecast import forecast, fork, with_run_times
from controller.core.forecast.smallest_change import suggestions
from controller.core.forecast.start_outlook import why_no_start
from controller.core.model.inputs import controller_inputs, job_inputs, node_inputs, policy_inputs
from controller.core.model.inputs.input import JobCommand
from controller.core.pipeline.pipeline import Pipeline
from controller.plugins.backfill.kinds import Conservative
from tests.engine_harness import PIPELINE, EngineHarness, default_pipeline, spec
from wire.cluster.quota import Limits, Quota
from wire.cluster.reservation import ReservationSpec
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, Until
from wire.names import JobState, Reason

HOUR = 3_600.0


def cluster(*names: str, pipeline: Pipeline = PIPELINE) -> EngineHarness:
    harness = EngineHarness(pipeline)
    for name in names:
        harness.join(name)
    return harness


def no_start_sentence(harness: EngineHarness, job: int) -> str:
    ahead = with_run_times(fork(harness.engine), predicted=False)
    assert job not in forecast(ahead, harness.now, (), job).starts
    return why_no_start(ahead, job, harness.now)


# --- the headline ---


def test_headline_names_the_missing_resource_of_the_node_with_the_label() -> None:
    """99 of 100 nodes lack the label, so the missing label is neither news nor a typing error."""
    harness = cluster(*(f"n{number:02}" for number in range(99)))
    harness.join("z", labels={"zone": "a"})
    harness.submit(spec(0, cpu_milli=60_000, selector={"zone": "a"}))
    harness.tick()
    waiting = harness.submit(spec(0, cpu_milli=30_000, selector={"zone": "a"}))
    harness.tick()
    why = harness.why(waiting)
    assert why.sentence.startswith("needs 1 node with 30 CPUs")
    assert why.sentence.endswith("0 of 1 suitable node can give that now: less than 30 CPUs free (z)")
    assert {loss.filter: loss.lost for loss in why.losses} == {"capacity": 1, "selector": 99}


def test_the_headline_names_a_drained_node_and_a_cordoned_gpu() -> None:
    harness = cluster("n1", "n2")
    harness.tell_drain("n2")
    harness.tell(node_inputs.CordonGpu("n1", 3, "root"))
    waiting = harness.submit(spec(8))
    harness.tick()
    why = harness.why(waiting)
    assert why.sentence.endswith(
        "0 of 2 can give that now: away or drained (n2); fewer than 8 free GPUs (n1)"
    )
    assert why.notes == ("takes no new work: GPU n1:3 (cordoned)",)


def test_the_headline_names_the_taint_of_the_only_node_with_the_label() -> None:
    """The GPUs of n1 are in use, but n1 lacks the label as well, so free GPUs there would not help."""
    harness = cluster("n1")
    harness.submit(spec(8))
    harness.tick()
    harness.join("z", labels={"zone": "c"})
    harness.tell(node_inputs.MarkNode("z", "root", {}, {"dedicated:NoSchedule": "ml"}))
    waiting = harness.submit(spec(1, selector={"zone": "c"}))
    harness.tick()
    assert harness.why(waiting).sentence.endswith(
        "0 of 2 can give that now: no label zone=c (n1); tainted, and it tolerates none (z)"
    )


@pytest.mark.parametrize(
    ("asked", "short"),
    [
        (spec(0, cpu_milli=30_000), "less than 30 CPUs free (n1)"),
        (spec(0, memory_mib=300 * 1024), "less than 300G of memory free (n1)"),
    ],
)
def test_only_the_missing_resource_is_named(asked: JobSpec, short: str) -> None:
    harness = cluster("n1")
    full = spec(0, cpu_milli=60_000) if "CPU" in short else spec(0, memory_mib=400 * 1024)
    harness.submit(full)
    harness.tick()
    waiting = harness.submit(asked)
    harness.tick()
    assert harness.why(waiting).sentence.endswith(short)


def test_a_model_that_no_node_has_is_not_called_busy() -> None:
    harness = cluster("n1")
    refusal = harness.refuse(job_inputs.Submit(spec(1, gpu_models=("B200",)), "ada"))
    assert "no B200 GPU" in refusal.message
    assert "free" not in refusal.message
    assert "The largest node has" not in refusal.hint


def test_a_number_of_gpus_that_does_not_divide_is_explained() -> None:
    harness = cluster("n1", "n2")
    refusal = harness.refuse(job_inputs.Submit(spec(9), "ada"))
    assert "9 GPUs do not divide evenly over nodes with at most 8: ask for 8 or 10." in refusal.hint


# --- the jobs ahead ---


def test_the_jobs_ahead_are_listed_in_the_order_of_their_turns() -> None:
    harness = cluster("n1")
    harness.submit(spec(8))
    harness.tick()
    later = [harness.submit(spec(8, time_limit_s=HOUR)) for _ in range(9)]
    urgent = harness.submit(spec(4, priority=75))
    last = harness.submit(spec(2))
    harness.tick()
    why = harness.why(last)
    assert [each.job for each in why.ahead] == [urgent, *later[:7]]
    assert why.position == 11
    assert [each.wants for each in why.ahead[:2]] == [
        "4 GPUs, no time limit, priority high",
        "8 GPUs, 1h00m, priority normal",
    ]


def test_a_soft_limit_that_is_passed_is_named() -> None:
    harness = cluster("n1")
    harness.submit(spec(8), "bo")
    harness.tick()
    waiting = harness.submit(spec(8), "bo")
    harness.tell(policy_inputs.SetQuota("user", "bo", Quota(soft=Limits(gpus=4)), "root"))
    harness.tick()
    (note,) = harness.why(waiting).notes
    assert "soft limits" in note
    assert "the quota of user 'bo' on GPUs" in note


# --- why a start is not known ---


def test_the_job_without_a_time_limit_is_named() -> None:
    harness = cluster("n1", "n2")
    endless = harness.submit(spec(8, selector={"node": "n1"}))
    harness.submit(spec(8, selector={"node": "n2"}, time_limit_s=HOUR))
    harness.tick()
    waiting = harness.submit(spec(8, selector={"node": "n1"}))
    assert no_start_sentence(harness, waiting).startswith(f"job {endless} has no time limit")


def test_headline_names_the_checkpoint_that_a_job_waits_for() -> None:
    harness = cluster("n1")
    first = harness.submit(spec(4, time_limit_s=HOUR))
    harness.tick()
    harness.start(first)
    waiting = harness.submit(spec(1, after=(Dependency(Until.CHECKPOINT, str(first)),)))
    sentence = no_start_sentence(harness, waiting)
    assert "time limit" not in sentence.split("(")[0]
    assert "cancelled" in sentence or "checkpoint" in sentence


def test_a_deadline_that_cannot_be_kept_is_named() -> None:
    harness = cluster("n1")
    harness.submit(spec(8, time_limit_s=40 * 60.0))
    harness.tick()
    waiting = harness.submit(spec(8, time_limit_s=300.0, deadline_at=harness.now + 600.0))
    assert "can no longer end by its deadline" in no_start_sentence(harness, waiting)


# --- advice ---


def test_release_is_advised_for_a_held_job() -> None:
    harness = cluster("n1")
    held = harness.submit(spec(4, hold=True))
    (advice,) = suggestions(fork(harness.engine), held, harness.now)
    assert advice.release
    harness.tell(job_inputs.Release(held, "ada"))
    assert [start.job for start in harness.tick()] == [held]


def test_hold_of_the_victim_is_advised_when_a_quota_blocks() -> None:
    """Without the hold the victim takes its old queue position again, which is ahead."""
    harness = cluster("n1")
    harness.tell(policy_inputs.SetQuota("user", "ada", Quota(Limits(gpus=4)), "root"))
    running = harness.submit(spec(4, time_limit_s=HOUR))
    harness.tick()
    harness.start(running)
    waiting = harness.submit(spec(4, time_limit_s=HOUR))
    harness.tick()
    (advice,) = [each for each in suggestions(fork(harness.engine), waiting, harness.now) if each.preempt]
    assert (advice.preempt, advice.hold) == ((running,), True)


def test_only_the_job_that_gets_the_place_gets_the_victim_advice() -> None:
    harness = cluster("n1")
    running = harness.submit(spec(8, time_limit_s=HOUR, priority=25))
    harness.tick()
    harness.start(running)
    first, second = (harness.submit(spec(8, time_limit_s=HOUR)) for _ in range(2))
    harness.tick()
    victims = {
        job: [each.preempt for each in suggestions(fork(harness.engine), job, harness.now) if each.preempt]
        for job in (first, second)
    }
    assert victims == {first: [(running,)], second: []}


def test_a_cordoned_gpu_and_a_toleration_are_advised() -> None:
    harness = cluster("n1", pipeline=default_pipeline())
    harness.tell(node_inputs.CordonGpu("n1", 3, "root"))
    waiting = harness.submit(spec(8))
    harness.tick()
    assert [
        each.resume for each in suggestions(fork(harness.engine), waiting, harness.now) if each.resume
    ] == [("n1:3",)]
    harness.join("n2")
    harness.tell(node_inputs.MarkNode("n2", "root", {}, {"dedicated:NoSchedule": "ml"}))
    found = [
        each
        for each in suggestions(fork(harness.engine), waiting, harness.now)
        if "tolerations" in each.changes
    ]
    assert [each.sentence for each in found] == ["if it tolerated the taint dedicated=ml"]


def test_nothing_is_refused_for_ever_before_the_nodes_are_back_after_a_restart() -> None:
    harness = EngineHarness()
    harness.join("n1", gpus=0)
    assert harness.refuse(job_inputs.Submit(spec(1), "ada")).code == "never_fits"
    later = harness.restarted()
    later.tell(controller_inputs.ControllerStarted(("n1",)))
    job = later.submit(spec(1))
    later.join("n1", gpus=8)
    later.tick()
    assert later.job(job).state is JobState.SCHEDULED
    assert later.refuse(job_inputs.Submit(spec(9), "ada")).code == "never_fits"


def test_a_job_behind_the_depth_of_conservative_backfill_is_not_said_to_start() -> None:
    harness = cluster("n1", pipeline=replace(PIPELINE, backfill=Conservative(depth=1)))
    harness.submit(spec(6, time_limit_s=HOUR))
    harness.tick()
    harness.submit(spec(8, time_limit_s=HOUR))
    waiting = harness.submit(spec(1, time_limit_s=2 * HOUR))
    assert harness.tick() == []
    assert harness.tick() == []
    assert harness.why(waiting).sentence == (
        "fits now, but only the first waiting job has a reservation (backfill_depth), and a start of this "
        "job would delay a reservation or use quota of a job that has one"
    )


def test_a_reservation_is_named_if_the_other_nodes_have_different_gpu_models() -> None:
    harness = EngineHarness(PIPELINE)
    for name, model in (("n1", "H100"), ("n2", "H100"), ("n3", "A100")):
        harness.join(name, model=model)
    harness.tell(
        policy_inputs.Reserve(ReservationSpec("upkeep", harness.now + HOUR, HOUR, nodes=("n1",)), "root")
    )
    waiting = harness.submit(spec(8, nodes=2))
    assert harness.tick() == []
    why = harness.why(waiting)
    assert (why.reason, "reservation 'upkeep' begins in 1h00m" in why.sentence) == (Reason.RESERVATION, True)


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (job_inputs.Cancel, "is being stopped: cancelled by ada"),
        (job_inputs.Requeue, "is being stopped: it is then queued again, as ordered by ada"),
    ],
)
def test_a_job_that_is_being_stopped_is_not_said_to_run(order: type[JobCommand], sentence: str) -> None:
    harness = cluster("n1")
    job = harness.submit(spec(1))
    harness.tick()
    harness.start(job)
    assert harness.why(job).sentence == "running on n1"
    harness.tell(order(job, "ada"))
    assert harness.why(job).sentence == sentence


# --- an answer changes nothing ---


@pytest.mark.parametrize(
    "jobs",
    [
        [(2, 1, False), (1, 1, False), (1, 1, False), (8, 30, True)],
        [(2, 1, False), (8, 1, True), (8, 30, True), (2, 30, True)],
        [(1, 30, False), (2, 30, False), (4, 1, False), (2, 30, True)],
    ],
)
def test_an_answer_does_not_change_the_nodes_of_later_jobs(jobs: list[tuple[int, int, bool]]) -> None:
    """The default scorer values free GPUs by the requests so far, so the time of its first use matters."""

    def placed(*, asked: bool) -> list[list[str]]:
        harness = EngineHarness(default_pipeline())
        for name, gpus in (("a", 8), ("b", 4), ("c", 8)):
            harness.join(name, gpus=gpus)
        for gpus, cpus, cycle in jobs:
            harness.submit(spec(gpus, cpu_milli=1_000 * cpus))
            for job in [*harness.state.jobs] if asked else ():
                harness.why(job)
            if cycle:
                harness.tick()
        return [harness.nodes_of(job) for job in harness.state.jobs]

    assert placed(asked=True) == placed(asked=False)
