"""corral job set: what is sent is what was named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.changes import changes_of
from cli.exits import Mistake
from tests.cli.conftest import Corral
from tests.cli.desk import Desk, array, job
from tests.cli.test_jobs import asked


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
def test_what_is_named_changes_and_nothing_else(flags: str, clear: str, changes: dict[str, Any]) -> None:
    assert changes_of(asked(flags), clear) == changes


@pytest.mark.parametrize(
    ("flags", "clear", "told"),
    [
        ("", "", "there is nothing to change"),
        ("", "deadlin", "'deadlin' is not an option of a job. Did you mean '--deadline'?"),
        ("--time 5", "", "'5' has no unit"),
    ],
)
def test_what_is_no_change_is_said_so(flags: str, clear: str, told: str) -> None:
    with pytest.raises(Mistake, match=told.replace("?", r"\?").replace(".", r"\.")):
        changes_of(asked(flags), clear)


def test_every_element_of_an_array_is_changed(desk: Desk, corral: Corral) -> None:
    desk.put(*array(5, 2), job(9))
    done = corral("job", "set", "--priority", "high", "5_[0-1]", "9", url=desk.url)
    assert done.returncode == 0, done.stderr
    assert desk.asked() == ["/v1/jobs/5/set", "/v1/jobs/6/set", "/v1/jobs/9/set"]
    assert json.loads(desk.peer.requests[-1].body) == {"changes": {"priority": 75}}
