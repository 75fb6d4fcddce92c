"""Jobs whose supervisor is killed or stopped: real processes, without control groups."""

from __future__ import annotations

import json
import os
import pwd
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.attempts import lease
from agent.attempts.launch.launch_spec import LaunchSpec
from agent.isolation.attempt_cgroup import AttemptCgroup
from agent.processes import process_tree
from agent.supervisor.task_process import TaskNotStarted, start_task
from tests import users
from tests.agent.agent_process import AgentProcess, alive, eventually
from tests.agent.attempts.test_leases import renew

Run = Callable[..., AgentProcess]
NO_GROUPS = ("--jobs", json.dumps({"limits": "none"}))
ESCAPE = "(env -i setsid /bin/sleep {0} &); (env -i setsid /bin/sleep {0} &); echo gone; sleep 600"
"""Two daemons without session, environment and parent of the job."""


def escaped(agent: AgentProcess, seconds: int, **order: object) -> tuple[int, list[int]]:
    """Start a job that leaves daemons behind; the pid of its supervisor, and all pids below that."""
    agent.start(1, "bash", "-c", ESCAPE.format(seconds), **order)
    eventually(lambda: agent.log(1) == b"gone\n")
    supervisor = agent.supervisor(1)

    def all_alive() -> list[int]:
        below = process_tree.descendants(supervisor)
        sleeping = [pid for pid in below if f"sleep\0{seconds}".encode() in words(pid)]
        return below if len(sleeping) == 2 else []

    return supervisor, eventually(all_alive)


def words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_background_process_of_a_lost_supervisor_is_killed_before_the_end_is_reported(run: Run) -> None:
    agent = run(*NO_GROUPS)
    supervisor, below = escaped(agent, 8_881)
    os.kill(supervisor, signal.SIGKILL)
    assert agent.ended(1).why == "supervisor_lost"
    assert [pid for pid in below if alive(pid)] == []


def test_job_is_killed_without_agent_and_supervisor(run: Run) -> None:
    """No supervisor and no agent can enforce the lease of the job, so the job must not continue."""
    first = run(*NO_GROUPS)
    renew(first, first.hello().clock)
    supervisor, below = escaped(first, 8_882, lease_s=600.0)
    first.kill()
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: not any(map(alive, below)))
    second = run(*NO_GROUPS)
    told = [status for status in second.hello().attempts if status.ended_at] or [second.ended(1)]
    assert told[0].why == "supervisor_lost"


def test_next_agent_waits_until_the_old_fork_server_has_ended_its_jobs(run: Run) -> None:
    first = run(*NO_GROUPS)
    nursery = first.fork_server()
    supervisor, below = escaped(first, 8_883)
    os.kill(nursery, signal.SIGSTOP)
    first.kill()
    os.kill(supervisor, signal.SIGKILL)
    assert run(*NO_GROUPS).ended(1).why == "supervisor_lost"
    assert [pid for pid in below if alive(pid)] == []
    os.kill(nursery, signal.SIGCONT)
    eventually(lambda: not alive(nursery))  # it has nothing to see to any more


@pytest.mark.parametrize("with_agent", [True, False])
def test_lease_expires_although_the_supervisor_is_stopped(run: Run, with_agent: bool) -> None:
    first = run(*NO_GROUPS)
    renew(first, first.hello().clock)
    supervisor, below = escaped(first, 8_884, lease_s=1.0, grace_s=0.1)
    os.kill(supervisor, signal.SIGSTOP)
    if not with_agent:
        first.kill()
    eventually(lambda: not any(map(alive, [*below, supervisor])))
    agent = first if with_agent else run(*NO_GROUPS)
    told = [status for status in agent.hello().attempts if status.ended_at] or [agent.ended(1)]
    assert told[0].why == lease.LEASE_EXPIRED


def test_supervisor_in_its_epilog_gets_its_full_time(run: Run, tmp_path: Path) -> None:
    """The job ends in time; the epilog of the site has its own limit."""
    epilog = tmp_path / "epilog"
    epilog.write_text(f"#!/bin/sh\nsleep 5\necho done > {tmp_path}/done\n")
    epilog.chmod(0o755)
    agent = run("--jobs", json.dumps({"limits": "none", "epilog": [str(epilog)]}))
    renew(agent, agent.hello().clock)
    agent.start(1, "sleep", "600", lease_s=0.5, grace_s=0.1)
    assert agent.ended(1).why == lease.LEASE_EXPIRED
    assert (tmp_path / "done").read_text() == "done\n"


@users.as_other_users
def test_first_process_ends_with_its_supervisor_even_without_a_fork_server(run: Run) -> None:
    agent = run(*NO_GROUPS, run_as_self=False)
    agent.start(1, "sleep", "600", user=pwd.getpwnam("nobody").pw_name)
    pid = agent.started(1).pid
    assert pid is not None
    supervisor, nursery = agent.supervisor(1), agent.fork_server()
    agent.kill()
    for each in (nursery, supervisor):
        os.kill(each, signal.SIGKILL)
    eventually(lambda: not alive(pid))


def test_fork_server_ends_with_its_agent_and_its_last_job(run: Run) -> None:
    agent = run(*NO_GROUPS)
    agent.start(1, "sleep", "600")
    agent.started(1)
    nursery, supervisor = agent.fork_server(), agent.supervisor(1)
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
def test_exit_of_a_job_with_a_replaced_record_is_not_reported_as_its_own(
    run: Run, tmp_path: Path, what: str
) -> None:
    """The agent kills the job with signal 9. The supervisor must not report this signal as the job's own
    exit.
    """
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


def test_cgroup_that_cannot_be_entered_is_a_host_failure(tmp_path: Path) -> None:
    launch = LaunchSpec("1.1", str(tmp_path))
    launch.argv, launch.cwd = ["true"], os.getcwd()
    group = AttemptCgroup([(str(tmp_path / "no" / "group"), str(tmp_path), [])])
    with pytest.raises(TaskNotStarted) as told:
        start_task(launch, group, launch.argv, {})
    assert told.value.unfit
