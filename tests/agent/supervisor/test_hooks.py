"""Prolog and epilog of the site around every attempt."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import users
from tests.agent.agent_process import AgentProcess, alive, eventually
from wire.agent.orders import Stop

Run = Callable[..., AgentProcess]


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def policy(**keys: object) -> tuple[str, str]:
    return "--jobs", json.dumps(keys)


def test_prolog_and_epilog_run_around_the_job_with_its_identity(run: Run, tmp_path: Path) -> None:
    report = "echo $CORRAL_HOOK $CORRAL_JOB_ID.$CORRAL_ATTEMPT $CORRAL_USER $*"
    hook = script(tmp_path / "hook", f"{report} >> {tmp_path}/order")
    agent = run(*policy(prolog=[hook, "a"], epilog=[hook, "b"]))
    agent.start(
        7, "sh", "-c", f"echo job >> {tmp_path}/order; exit 3", user="ada", env={"CORRAL_USER": "root"}
    )
    assert agent.ended(7).code == 3
    assert (tmp_path / "order").read_text().splitlines() == ["prolog 7.1 ada a", "job", "epilog 7.1 ada b"]


def test_job_does_not_start_when_its_prolog_fails(run: Run, tmp_path: Path) -> None:
    hook = script(tmp_path / "hook", "echo no room; exit 4")
    agent = run(*policy(prolog=[hook]))
    agent.start(1, "touch", str(tmp_path / "ran"))
    place = agent.spool / "attempts" / "1.1"
    assert agent.ended(1).why == f"launch_failed: the prolog failed with exit code 4; see {place}/hooks"
    assert (place / "hooks").read_text() == "no room\n"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        (["/no/such/hook"], "the prolog /no/such/hook cannot run: No such file or directory"),
        (["/bin/sleep", "1000"], "the prolog took longer than 0.2 s"),
    ],
)
def test_prolog_that_cannot_run_or_hangs_is_reported(run: Run, hook: list[str], why: str) -> None:
    agent = run(*policy(prolog=hook, hook_s=0.2))
    agent.start(1, "true")
    assert agent.ended(1).why == f"launch_failed: {why}"


def test_stop_does_not_wait_for_the_prolog(run: Run, tmp_path: Path) -> None:
    hook = script(
        tmp_path / "hook", f"setsid sleep 1000 & echo $! > {tmp_path}/pid; touch {tmp_path}/on; wait"
    )
    agent = run(*policy(prolog=[hook], hook_s=1000.0))
    agent.start(1, "true")
    eventually((tmp_path / "on").exists)
    agent.send(Stop(1, 1))
    ended = agent.ended(1)
    assert (ended.why, ended.pid) == ("cancelled", None)
    assert not alive(int((tmp_path / "pid").read_text()))


def test_failed_epilog_is_logged_and_changes_no_outcome(run: Run, tmp_path: Path) -> None:
    agent = run(*policy(epilog=[script(tmp_path / "hook", "exit 5")]))
    agent.start(1, "true")
    assert (agent.ended(1).code, agent.ended(1).why) == (0, "")
    assert "1.1: the epilog failed with exit code 5" in (agent.spool / "nursery.log").read_text()


def test_epilog_runs_after_a_lost_supervisor(run: Run, tmp_path: Path) -> None:
    agent = run(*policy(epilog=[script(tmp_path / "hook", f"echo $CORRAL_HOOK >> {tmp_path}/order")]))
    agent.start(1, "sleep", "1000")
    agent.started(1)
    os.kill(agent.supervisor(1), 9)
    assert agent.ended(1).why == "supervisor_lost"
    assert (tmp_path / "order").read_text() == "epilog\n"


@users.as_other_users
def test_hooks_run_as_the_agent_without_the_environment_of_the_user(run: Run, tmp_path: Path) -> None:
    hook = script(tmp_path / "hook", f"id -u > {tmp_path}/id; env > {tmp_path}/env")
    agent = run(*policy(prolog=[hook]), run_as_self=False)
    user = pwd.getpwnam("nobody")
    agent.start(1, "id", "-u", user=user.pw_name, env={"LD_PRELOAD": "/evil.so", "BASH_ENV": "/evil"})
    assert agent.ended(1).code == 0
    assert agent.log(1).decode() == f"{user.pw_uid}\n"
    assert (tmp_path / "id").read_text() == "0\n"
    assert "evil" not in (tmp_path / "env").read_text()
