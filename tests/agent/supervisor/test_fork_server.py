"""Jobs whose supervisor is killed or stopped: real processes, without the help of control groups."""

from __future__ import annotations

import json
import os
import pwd
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.attempts import lease
from agent.attempts.launch_spec import LaunchSpec
from agent.isolation.attempt_cgroup import AttemptCgroup
from agent.supervisor import process_tree
from agent.supervisor.task_process import TaskNotStarted, start_task
from tests.agent.attempts.test_leases import say
from tests.agent.driving import Driven, alive, eventually

Run = Callable[..., Driven]
NO_GROUPS = ("--jobs", json.dumps({"limits": "none"}))
ESCAPE = "(env -i setsid /bin/sleep {0} &); (env -i setsid /bin/sleep {0} &); echo gone; sleep 600"
"""Two daemons without session, environment and parent of the job."""


def escaped(agent: Driven, seconds: int, **order: object) -> tuple[int, list[int]]:
    """Start a job that leaves daemons behind; the pid of its supervisor, and all pids below that."""
    agent.start(1, "bash", "-c", ESCAPE.format(seconds), **order)
    eventually(lambda: agent.log(1) == b"gone\n")
    supervisor = agent.supervisor(1)

    def all_there() -> list[int]:
        below = process_tree.descendants(supervisor)
        sleeping = [pid for pid in below if f"sleep\0{seconds}".encode() in words(pid)]
        return below if len(sleeping) == 2 else []

    return supervisor, eventually(all_there)


def words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_daemon_of_a_lost_supervisor_is_gone_before_its_end_is_told(run: Run) -> None:
    agent = run(*NO_GROUPS)
    supervisor, below = escaped(agent, 8_881)
    os.kill(supervisor, signal.SIGKILL)
    assert agent.ended(1).why == "supervisor_lost"
    assert [pid for pid in below if alive(pid)] == []


def test_nothing_lives_on_without_agent_and_supervisor(run: Run) -> None:
    """Neither is there to hold the job to its lease, so it must not go on at all."""
    first = run(*NO_GROUPS)
    say(first, first.hello().clock)
    supervisor, below = escaped(first, 8_882, lease_s=600.0)
    first.kill()
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: not any(map(alive, below)))
    second = run(*NO_GROUPS)
    told = [status for status in second.hello().attempts if status.ended_at] or [second.ended(1)]
    assert told[0].why == "supervisor_lost"


def test_the_next_agent_waits_for_what_the_nursery_before_has_not_ended(run: Run) -> None:
    first = run(*NO_GROUPS)
    nursery = first.nursery()
    supervisor, below = escaped(first, 8_883)
    os.kill(nursery, signal.SIGSTOP)
    first.kill()
    os.kill(supervisor, signal.SIGKILL)
    assert run(*NO_GROUPS).ended(1).why == "supervisor_lost"
    assert [pid for pid in below if alive(pid)] == []
    os.kill(nursery, signal.SIGCONT)
    eventually(lambda: not alive(nursery))  # it has nothing to see to any more


@pytest.mark.parametrize("with_agent", [True, False])
def test_a_lease_holds_though_the_supervisor_is_stopped(run: Run, with_agent: bool) -> None:
    first = run(*NO_GROUPS)
    say(first, first.hello().clock)
    supervisor, below = escaped(first, 8_884, lease_s=1.0, grace_s=0.1)
    os.kill(supervisor, signal.SIGSTOP)
    if not with_agent:
        first.kill()
    eventually(lambda: not any(map(alive, [*below, supervisor])))
    agent = first if with_agent else run(*NO_GROUPS)
    told = [status for status in agent.hello().attempts if status.ended_at] or [agent.ended(1)]
    assert told[0].why == lease.LEASE_EXPIRED


def test_a_supervisor_in_its_epilog_is_given_its_time(run: Run, tmp_path: Path) -> None:
    """The job is gone in time; what the site does after it has its own limit."""
    epilog = tmp_path / "epilog"
    epilog.write_text(f"#!/bin/sh\nsleep 5\necho done > {tmp_path}/done\n")
    epilog.chmod(0o755)
    agent = run("--jobs", json.dumps({"limits": "none", "epilog": [str(epilog)]}))
    say(agent, agent.hello().clock)
    agent.start(1, "sleep", "600", lease_s=0.5, grace_s=0.1)
    assert agent.ended(1).why == lease.LEASE_EXPIRED
    assert (tmp_path / "done").read_text() == "done\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
def test_the_first_process_ends_with_its_supervisor_whoever_else_is_dead(run: Run) -> None:
    agent = run(*NO_GROUPS, run_as_self=False)
    agent.start(1, "sleep", "600", user=pwd.getpwnam("nobody").pw_name)
    pid = agent.started(1).pid
    assert pid is not None
    supervisor, nursery = agent.supervisor(1), agent.nursery()
    agent.kill()
    for each in (nursery, supervisor):
        os.kill(each, signal.SIGKILL)
    eventually(lambda: not alive(pid))


def test_a_nursery_goes_when_its_agent_and_its_last_job_have_gone(run: Run) -> None:
    agent = run(*NO_GROUPS)
    agent.start(1, "sleep", "600")
    agent.started(1)
    nursery, supervisor = agent.nursery(), agent.supervisor(1)
    agent.kill()
    second = run(*NO_GROUPS)
    assert alive(nursery)
    second.start(2, "true")
    assert second.ended(2).code == 0
    assert alive(nursery)
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: not alive(nursery))
    assert second.ended(1).why == "supervisor_lost"


@pytest.mark.parametrize("what", ["directory", "link"])
def test_the_end_of_a_job_whose_record_is_replaced_is_not_its_own(
    run: Run, tmp_path: Path, what: str
) -> None:
    """Its supervisor lives, sees it die with signal 9, and must not tell that as the job's own end."""
    first = run(*NO_GROUPS)
    first.start(1, "sleep", "600")
    pid = first.started(1).pid
    first.kill()
    path = first.spool / "attempts" / "1.1" / "record"
    path.rename(path.with_name("moved"))
    if what == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    second = run(*NO_GROUPS)
    told = [status for status in second.hello().attempts if status.ended_at] or [second.ended(1)]
    assert (told[0].signal, told[0].why.partition(":")[0]) == (None, "supervisor_lost")
    assert pid is not None
    eventually(lambda: not alive(pid))
    assert not (tmp_path / "elsewhere").exists()


def test_a_group_that_cannot_be_entered_is_the_hosts_trouble(tmp_path: Path) -> None:
    launch = LaunchSpec("1.1", str(tmp_path))
    launch.argv, launch.cwd = ["true"], os.getcwd()
    group = AttemptCgroup([(str(tmp_path / "no" / "group"), str(tmp_path), [])])
    with pytest.raises(TaskNotStarted) as told:
        start_task(launch, group, launch.argv, {})
    assert told.value.unfit
