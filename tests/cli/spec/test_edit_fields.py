"""corral job set sends exactly the named fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.exit_codes import FAILED, CommandError
from cli.spec.edit_fields import changes_of
from tests.cli.commands.test_jobs import asked
from tests.cli.conftest import Corral
from tests.cli.fake_controller import FakeController, array, job
from wire.api.problem import Problem


@pytest.mark.parametrize(
    ("flags", "clear", "changes"),
    [
        ("--priority normal --time 2h", "", {"priority": 50, "time_limit_s": 7_200}),
        ("--gpus 4", "", {"gpus": 4}),
        ("--gpus-per-node 4 --nodes 2", "", {"gpus": 8, "nodes": 2}),
        ("--after-ok 5", "", {"after": [{"until": "ok", "job": "5", "path": ""}]}),
        (
            "--select rack=r1",
            "deadline, --timeout",
            {"selector": {"rack": "r1"}, "deadline_at": None, "start_within_s": None},
        ),
        ("", "after,restart-delay", {"after": None, "restart": None}),
    ],
)
def test_only_named_fields_change(flags: str, clear: str, changes: dict[str, Any]) -> None:
    assert changes_of(asked(flags), clear) == changes


@pytest.mark.parametrize(
    ("flags", "clear", "told"),
    [
        ("", "", "there is nothing to change"),
        ("", "deadlin", "'deadlin' is not an option of a job. Did you mean '--deadline'?"),
        ("--time 5", "", "'5' has no unit"),
    ],
)
def test_invalid_edit_is_refused(flags: str, clear: str, told: str) -> None:
    with pytest.raises(CommandError, match=told.replace("?", r"\?").replace(".", r"\.")):
        changes_of(asked(flags), clear)


def test_many_jobs_are_edited_in_one_request(fake: FakeController, corral: Corral) -> None:
    fake.put(*array(5, 2), job(9))
    done = corral("job", "set", "--priority", "high", "5_[0-1]", "9", url=fake.url)
    assert done.returncode == 0, done.stderr
    assert fake.asked() == ["/v1/jobs/orders"]
    body = json.loads(fake.peer.requests[-1].body)
    assert (body["action"], body["jobs"], body["changes"]) == ("set", ["5_[0-1]", "9"], {"priority": 75})
    assert done.stderr.splitlines()[-1] == "3 done, 0 failed"


def test_each_edit_error_is_reported_once_by_its_option(fake: FakeController, corral: Corral) -> None:
    late = Problem("conflict", "cannot change any more", "time_limit_s", "Too late.")
    fake.refused_jobs = {f"5_{index}": late for index in range(2, 7)}
    fake.put(*array(5, 7))
    done = corral("job", "set", "--time", "1h", "5_[0-6]", "9", url=fake.url)
    assert done.returncode == FAILED
    assert done.stderr.splitlines() == [
        "corral: --time: cannot change any more (5 jobs: 5_2, 5_3, 5_4, …)",
        "  Too late.",
        "corral: there is no job 9",
        "job 5_0: QUEUED, resources",
        "job 5_1: QUEUED, resources",
        "2 done, 6 failed",
    ]


def test_a_reason_that_names_its_job_is_told_once_for_all_jobs(fake: FakeController, corral: Corral) -> None:
    fake.refused_jobs = {
        f"5_{index}": Problem("not_allowed", f"only root and operators may cancel job 5_{index}", "job")
        for index in range(4)
    }
    fake.put(*array(5, 4))
    done = corral("job", "cancel", "5_[0-3]", url=fake.url)
    assert done.stderr.splitlines() == [
        "corral: only root and operators may cancel these jobs (4 jobs: 5_0, 5_1, 5_2, …)",
        "0 done, 4 failed",
    ]
