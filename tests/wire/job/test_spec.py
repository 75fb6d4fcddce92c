"""Every problem of a job spec is found and named by its field."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from wire.job.spec import MAX_COMMAND, JobSpec, gpus_text, spec_problems
from wire.job.start_conditions import Dependency, Restart, RestartWhen, Until

GOOD = JobSpec(command=("true",))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"gpus": 0.25},
        {"gpus": 0.001},
        {"gpus": 8},
        {"gpus": 16, "nodes": 2},
        {"gpus": 0, "nodes": 3},
        {"priority": 0},
        {"priority": 100},
        {"time_limit_s": 0.5},
        {"grace_s": 0},
        {"workdir": "/"},
        {"array": "0-9"},
        {"array": "1,3,7"},
        {"array": "0-20:5"},
        {"env": {"A": "", "B": "=", "C": "\n"}},
        {"command": ("x" * MAX_COMMAND,)},
        {"name": "ünïcode 名前"},
    ],
)
def test_valid_spec_has_no_problems(change: dict[str, Any]) -> None:
    assert spec_problems(replace(GOOD, **change)) == []


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"command": ()}, "command"),
        ({"command": ("",)}, "command"),
        ({"command": ("a\0b",)}, "command"),
        ({"command": ("x" * (MAX_COMMAND + 1),)}, "command"),
        ({"name": "x" * 201}, "name"),
        ({"name": "a\0"}, "name"),
        ({"project": ""}, "project"),
        ({"queue": ""}, "queue"),
        ({"queue": "x" * 201}, "queue"),
        ({"priority": -1}, "priority"),
        ({"priority": 101}, "priority"),
        ({"cpu_milli": -1}, "cpu_milli"),
        ({"memory_mib": -1}, "memory_mib"),
        ({"memory_mib": 1 << 31}, "memory_mib"),
        ({"gpus": -1}, "gpus"),
        ({"gpus": 1.5}, "gpus"),
        ({"gpus": 0.0005}, "gpus"),
        ({"gpus": math.nan}, "gpus"),
        ({"gpus": math.inf}, "gpus"),
        ({"gpus": 1e9}, "gpus"),
        ({"nodes": 0}, "nodes"),
        ({"nodes": 10_001}, "nodes"),
        ({"gpus": 7, "nodes": 2}, "gpus"),
        ({"gpus": 0.5, "nodes": 2}, "gpus"),
        ({"time_limit_s": 0}, "time_limit_s"),
        ({"time_limit_s": -5}, "time_limit_s"),
        ({"time_limit_s": math.nan}, "time_limit_s"),
        ({"time_limit_s": math.inf}, "time_limit_s"),
        ({"grace_s": -1}, "grace_s"),
        ({"grace_s": math.nan}, "grace_s"),
        ({"grace_s": 3_601}, "grace_s"),
        ({"workdir": "relative"}, "workdir"),
        ({"workdir": ""}, "workdir"),
        ({"env": {"": "x"}}, "env."),
        ({"env": {"A=B": "x"}}, "env.A=B"),
        ({"env": {"A": "\0"}}, "env.A"),
        ({"begin_at": 0}, "begin_at"),
        ({"begin_at": math.nan}, "begin_at"),
        ({"deadline_at": 1e12}, "deadline_at"),
        ({"begin_at": 100, "deadline_at": 150, "time_limit_s": 50}, "deadline_at"),
        ({"start_within_s": 0}, "start_within_s"),
        ({"restart": Restart(RestartWhen.ALWAYS, limit=0)}, "restart.limit"),
        ({"restart": Restart(RestartWhen.ALWAYS, delay_s=math.nan)}, "restart.delay_s"),
        ({"restart": Restart(RestartWhen.ALWAYS, codes=(0,))}, "restart.codes"),
        ({"after": (Dependency(Until.OK, "7", "/x"),)}, "after[0]"),
        ({"after": (Dependency(Until.OK, "07"),)}, "after[0]"),
        ({"after": (Dependency(Until.OK, "7_"),)}, "after[0]"),
        ({"after": (Dependency(Until.DATA),)}, "after[0]"),
        ({"after": (Dependency(Until.DATA, path="/a/../b"),)}, "after[0]"),
        ({"after": (Dependency(Until.OK, "7"),) * 2}, "after"),
        ({"after": tuple(Dependency(Until.OK, str(job)) for job in range(1, 1_002))}, "after"),
        ({"after_count": 1}, "after_count"),
        ({"after": (Dependency(Until.OK, "7"),), "after_count": 2}, "after_count"),
        ({"after_within_s": 5}, "after_within_s"),
        ({"relax": ("gpus",)}, "relax"),
        ({"relax": ("selector", "selector")}, "relax"),
        ({"relax_after_s": 0}, "relax_after_s"),
        ({"array": ""}, "array"),
        ({"array": "0-9%"}, "array"),
        ({"array": "0-9%0"}, "array"),
        ({"array": "0-9%x"}, "array"),
        ({"array": "0-9%2%3"}, "array"),
        ({"array": "a"}, "array"),
        ({"array": "5-1"}, "array"),
        ({"array": "1-5:0"}, "array"),
        ({"array": "-1"}, "array"),
        ({"array": "1-"}, "array"),
        ({"array": "1--2"}, "array"),
        ({"array": "²"}, "array"),
        ({"array": "0-10000"}, "array"),
        ({"array": "0-999999999"}, "array"),
        ({"array": ",".join(["0-9999", "10000-19999"])}, "array"),
    ],
)
def test_invalid_field_is_named(change: dict[str, Any], where: str) -> None:
    assert [found for found, _ in spec_problems(replace(GOOD, **change))] == [where]


def test_all_problems_are_reported_at_once() -> None:
    spec = replace(GOOD, command=(), priority=500, cpu_milli=-1)
    assert [where for where, _ in spec_problems(spec)] == ["command", "priority", "cpu_milli"]


@pytest.mark.parametrize(("gpus", "text"), [(8, "8"), (8.0, "8"), (0.25, "0.25"), (0, "0")])
def test_gpu_amounts_are_parsed(gpus: float, text: str) -> None:
    assert gpus_text(gpus) == text
