"""The JSON of squeue, as Slurm 22.05 printed it and as later versions document it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.engines.batch_systems.batch_job import Cause, Phase, Unreadable
from controller.engines.batch_systems.slurm.json_output import parse_jobs

GOLDEN = Path(__file__).parents[4] / "golden" / "engines" / "batch_systems"


def test_jobs_of_slurm_22() -> None:
    jobs = {each.id: each for each in parse_jobs((GOLDEN / "slurm-22.05-squeue.json").read_text())}
    assert {name: (each.phase, each.reason, each.cause) for name, each in jobs.items()} == {
        "11": (Phase.ENDED, "TimeLimit", Cause.TIME_LIMIT),
        "42": (Phase.ENDED, "", Cause.PREEMPTED),
        "43": (Phase.RUNNING, "", Cause.EXIT),
        "44": (Phase.HELD, "JobHeldUser", Cause.EXIT),
        "45": (Phase.WAITING, "JobArrayTaskLimit", Cause.EXIT),
        "45_0": (Phase.RUNNING, "", Cause.EXIT),
        "45_1": (Phase.RUNNING, "", Cause.EXIT),
        "46": (Phase.ENDED, "TimeLimit", Cause.TIME_LIMIT),
        "47": (Phase.HELD, "JobHeldAdmin", Cause.EXIT),
        "48": (Phase.ENDED, "", Cause.EXIT),
    }
    assert (jobs["42"].code, jobs["42"].signal) == (143, None)
    assert (jobs["46"].code, jobs["46"].signal) == (None, 15)


def test_jobs_of_slurm_23() -> None:
    jobs = {each.id: each for each in parse_jobs((GOLDEN / "slurm-23.11-squeue.json").read_text())}
    assert {name: (each.phase, each.code, each.signal) for name, each in jobs.items()} == {
        "101": (Phase.ENDED, 3, None),
        "102": (Phase.WAITING, None, None),
        "103": (Phase.ENDING, None, None),
        "104": (Phase.HELD, None, None),
        "99_0": (Phase.RUNNING, None, None),
        "106": (Phase.ENDED, None, 9),
    }
    assert jobs["102"].reason == "QOSGrpGRES"
    assert jobs["106"].cause is Cause.NODE_FAILED


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ('{"jobs": [', "not JSON"),
        ("[]", "has no jobs"),
        (json.dumps({"jobs": [], "errors": [{"error": "Unable to contact"}]}), "Unable to contact"),
        (json.dumps({"errors": ["authentication"]}), "authentication"),
    ],
)
def test_an_answer_without_all_jobs_is_refused(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        parse_jobs(text)
