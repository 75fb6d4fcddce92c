"""corral config check: its warnings, the policy in sentences, and its data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.exit_codes import USAGE
from cli.main import main

POLICY = """
[scheduler]
order = "multifactor"
[fair_share]
weights = { vision = 3, visoin = 1 }
[quota.projects.vision]
gpus = 8
[queues.default]
max_time_limit_s = 3600
[gpus]
idle = "cancel"
idle_after_s = 0
[nodes.gpu01]
gpus = "simulated:8xH100"
"""


def checked(directory: Path, text: str, *options: str) -> int:
    path = directory / "scheduler.toml"
    path.write_text(text)
    return main(["config", "check", str(path), *options])


def test_warnings_and_the_policy_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path, POLICY) == 0
    out, err = capsys.readouterr()
    assert 'order = "multifactor"' in out
    assert f"warning: {tmp_path}/scheduler.toml:11: gpus.idle: 'cancel' has no effect" in err
    assert "Projects, with their shares of 8 GPUs while all of them have waiting jobs:\n" in err
    assert "\n  vision             75.0 % of the cluster (6.0 GPUs); at most 8 GPUs; may not borrow\n" in err
    assert "\n  any other project  weight 1 each; no quota\n" in err
    assert "\n  default  queue priority 0; time limit 1h00m by default and at most; all users\n" in err
    assert err.endswith(": no problem, 2 warnings\n")


def test_quiet_check_prints_only_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path, POLICY, "--quiet") == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["warning"] * 2


def test_warnings_are_a_list_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path, POLICY, "-o", "json") == 0
    out, err = capsys.readouterr()
    body = json.loads(out)
    assert err == ""
    assert (body["problems"], body["gpus"]) == ([], 8)
    assert [(each["key"], each["line"]) for each in body["warnings"]] == [
        ("fair_share.weights.visoin", 5),
        ("gpus.idle", 11),
    ]
    assert {each["project"]: each["share"] for each in body["projects"]} == {
        "vision": 0.75,
        "visoin": 0.25,
        "*": None,
    }
    assert [(each["queue"], each["max_time_limit_s"]) for each in body["queues"]] == [("default", 3600.0)]
    assert checked(tmp_path, POLICY, "-o", "name") == 0
    assert capsys.readouterr().out == "fair_share.weights.visoin\ngpus.idle\n"


def test_problems_are_a_list_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path, '[gpus]\nidle = "sell"\n', "-o", "json") == USAGE
    out, err = capsys.readouterr()
    assert [each["key"] for each in json.loads(out)["problems"]] == ["gpus.idle"]
    assert "gpus.idle" in err
