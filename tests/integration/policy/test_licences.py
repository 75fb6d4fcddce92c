"""Licences through the whole system: held by real processes, waited for, and known after a kill -9."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.systems import System
from wire.names import JobState, Reason


def test_licence_is_held_until_its_job_has_ended(build: Callable[..., System]) -> None:
    system = build("gpu01")
    system.sections["licences"] = {"matlab": 3, "ansys": 1}
    system.start()
    submit = ("submit", "--memory", "64M", "--licence")
    first = int(system.corral(*submit, "matlab:2", "--", "sleep", "600").split()[-1].rstrip("."))
    system.await_jobs([first], JobState.RUNNING)
    second = int(system.corral(*submit, "matlab:2", "--", "true").split()[-1].rstrip("."))
    system.until(lambda: system.jobs()[second].reason is Reason.LICENCE, "the second waits for its licences")
    told = f"waits for 2 of licence matlab; 2 of 3 in use by job {first}"
    assert told in system.corral("explain", str(second))
    assert "2 of matlab" in system.corral("job", "show", str(second))
    listed = json.loads(system.corral("licences", "-o", "json"))["licences"]
    assert [(each["name"], each["used"], each["total"]) for each in listed] == [
        ("ansys", 0, 1),
        ("matlab", 2, 3),
    ]
    assert (listed[1]["jobs"], listed[1]["waiting"]) == ([str(first)], 1)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        system.corral(*submit, "matlba:2", "--", "true")
    assert "there is no licence 'matlba'" in refused.value.stderr
    assert "Did you mean 'matlab'?" in refused.value.stderr
    with pytest.raises(subprocess.CalledProcessError) as refused:
        system.corral(*submit, "matlab:4", "--", "true")
    assert "asks for 4 of licence matlab, and there are 3" in refused.value.stderr
    system.kill()
    system.start()
    listed = json.loads(system.corral("licences", "-o", "json"))["licences"]
    assert (listed[1]["used"], listed[1]["jobs"]) == (2, [str(first)])
    system.corral("job", "cancel", str(first))
    system.await_jobs([second], JobState.COMPLETED)
    listed = json.loads(system.corral("licences", "-o", "json"))["licences"]
    assert [each["used"] for each in listed] == [0, 0]
