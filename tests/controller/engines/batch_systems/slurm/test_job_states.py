"""Each state of Slurm has one phase and, once the job has ended, one cause."""

from __future__ import annotations

import pytest

from controller.engines.batch_systems.batch_job import Cause, Phase
from controller.engines.batch_systems.slurm.job_states import cause_of, phase_of, reason_text


@pytest.mark.parametrize(
    ("states", "reason", "phase"),
    [
        ("PENDING", "Resources", Phase.WAITING),
        ("PENDING", "JobHeldAdmin", Phase.HELD),
        ("PENDING", "launch failed requeued held", Phase.HELD),
        ("PENDING REQUEUED", "BeginTime", Phase.WAITING),
        ("REQUEUE_HOLD", "", Phase.HELD),
        ("RUNNING", "", Phase.RUNNING),
        ("RUNNING COMPLETING", "", Phase.ENDING),
        ("COMPLETED COMPLETING", "", Phase.ENDING),
        ("COMPLETED", "", Phase.ENDED),
        ("CANCELLED by 1000", "", Phase.ENDED),
        ("CANCELLED+", "", Phase.ENDED),
        ("PREEMPTED", "", Phase.ENDED),
        ("A_STATE_OF_THE_FUTURE", "", Phase.UNKNOWN),
        ("", "", Phase.UNKNOWN),
    ],
)
def test_phases(states: str, reason: str, phase: Phase) -> None:
    assert phase_of(states, reason) is phase


def test_a_job_in_an_unknown_state_counts_as_alive() -> None:
    assert Phase.UNKNOWN.alive


@pytest.mark.parametrize(
    ("states", "cause"),
    [
        ("COMPLETED", Cause.EXIT),
        ("FAILED", Cause.EXIT),
        ("CANCELLED by 0", Cause.CANCELLED),
        ("TIMEOUT", Cause.TIME_LIMIT),
        ("PREEMPTED", Cause.PREEMPTED),
        ("NODE_FAIL", Cause.NODE_FAILED),
        ("OUT_OF_MEMORY", Cause.OUT_OF_MEMORY),
    ],
)
def test_causes(states: str, cause: Cause) -> None:
    assert cause_of(states) is cause


def test_no_reason_is_empty() -> None:
    assert [reason_text(each) for each in ("None", "(null)", "(QOSGrpGRES)")] == ["", "", "QOSGrpGRES"]
