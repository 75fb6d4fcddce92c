"""corral config check: its warnings, the policy in sentences, and its data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.exit_codes import USAGE
from cli.main import main
from tests.cli.conftest import Corral
from tests.cli.fake_controller import FakeController
from wire.api.problem import Problem

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


OLDER = "[access.limits.queues.a]\npriority = 5\n[queues.a]\n"


def test_migrated_file_is_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scheduler.toml"
    path.write_text(OLDER)
    path.chmod(0o640)
    assert main(["config", "migrate", str(path), "--dry-run"]) == 0
    assert path.read_text() == OLDER
    out, _ = capsys.readouterr()
    assert out.splitlines()[2:] == [
        "@@ -1,3 +1,2 @@",
        "-[access.limits.queues.a]",
        "-priority = 5",
        " [queues.a]",
        "+max_priority = 5",
    ]
    assert main(["config", "migrate", str(path), "--yes", "-o", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["moved"] == [["access.limits.queues.a.priority", "queues.a.max_priority"]]
    assert path.read_text() == "[queues.a]\nmax_priority = 5\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert main(["config", "migrate", str(path), "--yes"]) == 0
    assert "no key is in an older place" in capsys.readouterr().err


def test_policy_of_a_file_is_explained_without_a_controller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORRAL_URL", f"unix://{tmp_path}/none.sock")
    path = tmp_path / "scheduler.toml"
    path.write_text(POLICY)
    assert main(["config", "explain", "project", "vision", "--file", str(path)]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("Project vision\n  All users may submit to project vision.\n")
    assert "  At the same time, its jobs may have at most 8 GPUs.\n" in out
    assert main(["config", "explain", "--file", str(path), "-o", "name"]) == 0
    assert capsys.readouterr().out.split("\n")[:2] == ["cluster", "project/vision"]
    for words, told in (
        (["queue", "shor"], "has no queue 'shor'"),
        (["project"], "NAME is missing: which project?"),
        (["team", "vision"], "'team' is none of user, project, queue"),
    ):
        assert main(["config", "explain", *words, "--file", str(path)]) != 0
        assert told in capsys.readouterr().err


def test_users_see_which_configuration_is_in_effect_but_not_its_keys(
    fake: FakeController, corral: Corral
) -> None:
    problem = Problem("not_allowed", "only operators may read the configuration")
    fake.refusals["GET /v1/config/keys"] = (403, problem)
    shown = corral("config", "show", url=fake.url)
    assert shown.returncode == 0, shown.stderr
    assert "digest         0123456789ab" in shown.stdout
    assert shown.stderr == (
        "Only operators see the keys. 'corral config explain' says what they mean for you.\n"
    )
    refused = corral("config", "show", "scheduler", url=fake.url)
    assert refused.returncode == 4
    assert "only operators may read the configuration" in refused.stderr
    data = corral("config", "show", "-o", "json", url=fake.url)
    assert json.loads(data.stdout)["digest"] == "0123456789ab"
