"""An attempt ends only with a proof, and the proof says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.engines.batch_systems.batch_job import BatchStatus, Cause, Phase
from controller.engines.batch_systems.proof_of_end import outcome_of, without_late
from controller.engines.batch_systems.wrapper import CLAIMED, NO_RECORDS, NO_WORKDIR, JobRecords
from controller.engines.contract import PREEMPTED_THERE, Outcome

NOTHING = JobRecords("t")
STARTED = JobRecords("t", 1.0, job_id="7")


def ended(
    code: int | None = 0, signal: int | None = None, state: str = "FAILED", job: str = "7"
) -> BatchStatus:
    causes = {"TIMEOUT": Cause.TIME_LIMIT, "PREEMPTED": Cause.PREEMPTED, "CANCELLED": Cause.CANCELLED}
    causes |= {"NODE_FAIL": Cause.NODE_FAILED}
    return BatchStatus(
        job, "t", Phase.ENDED, state, cause=causes.get(state, Cause.EXIT), code=code, signal=signal
    )


def record(code: int | None, signal: int | None = None) -> JobRecords:
    return JobRecords("t", 1.0, 2.0, "n1", "7", code, signal)


@pytest.mark.parametrize("phase", [each for each in Phase if each is not Phase.ENDED])
def test_no_proof_while_the_batch_system_lists_the_job(phase: Phase) -> None:
    listed = [BatchStatus("7", "t", phase, "X")]
    assert outcome_of(record(0), listed, [ended()]) is None


def test_no_proof_without_a_trace() -> None:
    assert outcome_of(NOTHING, [], []) is None
    assert outcome_of(STARTED, [], []) is None


def test_an_accounting_that_lags_behind_is_no_proof() -> None:
    assert outcome_of(STARTED, [], [BatchStatus("7", "t", Phase.RUNNING, "RUNNING")]) is None


def test_the_accounting_is_awaited_while_it_lags_behind() -> None:
    lagging = BatchStatus("7", "t", Phase.RUNNING, "RUNNING")
    assert outcome_of(record(None, 15), [ended(None)], [lagging]) is None
    assert outcome_of(record(None, 15), [], [lagging]) == Outcome(None, 15)
    assert outcome_of(record(0), [ended(None)], [lagging]) == Outcome(0)


def test_a_list_that_shows_a_failure_without_a_code_is_no_proof() -> None:
    assert outcome_of(STARTED, [ended(None)], []) is None


@pytest.mark.parametrize(
    ("records", "run", "outcome"),
    [
        (record(3), ended(3), Outcome(3)),
        (record(None, 9), ended(9), Outcome(None, 9)),  # because sacct shows the exit code 137 as 9
        (record(0), ended(0, state="COMPLETED"), Outcome(0)),
        (NOTHING, ended(0, state="COMPLETED"), Outcome(0)),
        (NOTHING, ended(None, 9), Outcome(None, 9)),
        (
            record(0),
            ended(0, state="TIMEOUT"),
            Outcome(None, None, "time_limit: the batch system says TIMEOUT"),
        ),
        (record(0), ended(0, state="PREEMPTED"), Outcome(None, None, PREEMPTED_THERE)),
        (STARTED, ended(0, state="PREEMPTED"), Outcome(None, None, PREEMPTED_THERE)),
        (
            STARTED,
            ended(0, state="NODE_FAIL"),
            Outcome(None, None, "node_lost: the batch system says NODE_FAIL"),
        ),
        (STARTED, ended(0, state="CANCELLED"), Outcome(None, 15)),
        (NOTHING, ended(0, state="CANCELLED"), Outcome(None, 15)),
        (record(0), ended(0, state="CANCELLED"), Outcome(0)),
        (record(7), ended(0, state="CANCELLED"), Outcome(7)),
    ],
)
def test_outcomes(records: JobRecords, run: BatchStatus, outcome: Outcome) -> None:
    assert outcome_of(records, [], [run]) == outcome


def test_the_record_alone_is_a_proof() -> None:
    assert outcome_of(record(3), [], []) == Outcome(3)


def test_the_second_of_two_jobs_with_one_tag_proves_nothing() -> None:
    assert outcome_of(STARTED, [], [ended(CLAIMED, job="8")]) is None
    assert outcome_of(record(3), [], [ended(3), ended(CLAIMED, job="8")]) == Outcome(3)


def test_a_script_that_cannot_enter_its_directory_has_not_run_the_command() -> None:
    records = JobRecords("t", 1.0, 2.0, refused=NO_WORKDIR)
    outcome = outcome_of(records, [], [])
    assert outcome is not None
    assert outcome.why == "launch_failed: the working directory cannot be entered on the compute node"


def test_a_job_that_was_run_again_has_lost_its_first_run() -> None:
    lost = Outcome(why="node_lost: the batch system ended the job and ran it a second time")
    assert outcome_of(STARTED, [], [ended(CLAIMED)]) == lost
    assert outcome_of(record(None, 15), [], [ended(CLAIMED)]) == lost
    assert outcome_of(record(0), [], [ended(CLAIMED)]) == Outcome(0)


def test_a_script_that_cannot_write_records_has_not_run_the_command() -> None:
    outcome = outcome_of(NOTHING, [], [ended(NO_RECORDS)])
    assert outcome is not None
    assert outcome.why.startswith("launch_failed: the directory of the records is missing")


def test_an_accounting_that_never_shows_the_end_gives_way_to_a_late_record() -> None:
    """slurmctld was killed before it had told slurmdbd of the end."""
    alive = [BatchStatus("7", "t", Phase.RUNNING, "RUNNING")]
    assert outcome_of(record(2), [ended(None)], without_late(alive, "")) is None
    assert outcome_of(record(2), [ended(None)], without_late(alive, "6\n7\n")) == Outcome(2)
    assert outcome_of(record(2), without_late(alive, "7\n"), []) == Outcome(2)


def test_a_waiting_job_is_not_over_because_of_the_record_of_its_first_run() -> None:
    waiting = [BatchStatus("7", "t", Phase.WAITING, "PENDING")]
    assert outcome_of(record(2), without_late(waiting, "7\n"), []) is None


def test_the_record_of_a_second_run_proves_the_loss_of_the_first() -> None:
    """The accounting never shows the end of the second run."""
    lost = Outcome(why="node_lost: the batch system ended the job and ran it a second time")
    again = replace(STARTED, again_id="7")
    alive = [BatchStatus("7", "t", Phase.RUNNING, "RUNNING")]
    assert outcome_of(again, [ended(None)], alive) == lost
    assert outcome_of(again, alive, []) is None
    assert outcome_of(again, [], alive) is None
    assert outcome_of(replace(STARTED, again_id="8"), [ended(None)], alive) is None
    assert outcome_of(replace(record(0), again_id="7"), [ended(None)], alive) == Outcome(0)
