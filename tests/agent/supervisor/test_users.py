"""The user account of jobs, and the settings of the agent that jobs can see."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.attempts.launch.start_order import UnixAccounts
from tests import users
from tests.agent.agent_process import AgentProcess

Run = Callable[..., AgentProcess]
as_root = users.as_other_users
SHOW = "id -u; id -g; id -G; echo $HOME $USER $LOGNAME; pwd; umask; echo again >> /dev/stdout"


@pytest.fixture
def other() -> pwd.struct_passwd:
    """A user other than root that exists on every system."""
    return pwd.getpwnam("nobody")


@as_root
def test_a_job_runs_as_its_user(run: Run, other: pwd.struct_passwd) -> None:
    agent = run(run_as_self=False)
    agent.start(1, "sh", "-c", SHOW, user=other.pw_name, env={"HOME": "/mine"})
    assert agent.ended(1).why == ""
    uid, gid, groups, names, folder, umask, again = agent.log(1).decode().splitlines()
    assert (int(uid), int(gid)) == (other.pw_uid, other.pw_gid)
    assert [int(group) for group in groups.split()] == os.getgrouplist(other.pw_name, other.pw_gid)
    assert names == f"/mine {other.pw_name} {other.pw_name}"
    assert folder == (other.pw_dir if os.path.isdir(other.pw_dir) else "/")
    assert umask == "0022"
    assert again == "again"
    log = agent.spool / "attempts" / "1.1" / "stdout"
    assert (log.stat().st_uid, log.stat().st_mode & 0o777) == (other.pw_uid, 0o600)


@as_root
@pytest.mark.parametrize("user", ["no-such-user", "", "root; true", "../root", "\x1b[31m", "nul\0"])
def test_an_unknown_user_runs_nothing(run: Run, user: str) -> None:
    agent = run(run_as_self=False)
    agent.start(1, "true", user=user)
    ended = agent.ended(1)
    assert ended.why == f"launch_failed: there is no user {user!r} on this host"
    assert ended.pid is None


@as_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
@pytest.mark.parametrize("right", ["setuid", "setgid"])
def test_failed_user_switch_never_runs_as_root(run: Run, other: pwd.struct_passwd, right: str) -> None:
    agent = run(run_as_self=False, prefix=("setpriv", f"--bounding-set=-{right}"))
    agent.start(1, "id", user=other.pw_name)
    ended = agent.ended(1)
    assert ended.why.startswith(f"launch_failed: cannot become user {other.pw_uid}: ")
    assert agent.log(1) == b""


@as_root
def test_directories_are_entered_as_the_user(run: Run, other: pwd.struct_passwd, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    (secret / "program").write_text("#!/bin/sh\n")
    (secret / "program").chmod(0o755)
    agent = run(run_as_self=False)
    agent.start(1, "true", user=other.pw_name, workdir=str(secret))
    agent.start(2, str(secret / "program"), user=other.pw_name)
    assert (
        agent.ended(1).why == f"launch_failed: cannot enter the working directory {secret}: Permission denied"
    )
    assert agent.ended(2).why == f"launch_failed: cannot run {secret}/program: Permission denied"


@as_root
def test_jobs_of_other_users_can_be_stopped(run: Run, other: pwd.struct_passwd) -> None:
    agent = run(run_as_self=False)
    agent.start(1, "sleep", "1000", user=other.pw_name, time_limit_s=0.1)
    assert agent.ended(1).why == "time_limit"


@pytest.fixture
def not_root(monkeypatch: pytest.MonkeyPatch, other: pwd.struct_passwd) -> str:
    monkeypatch.setattr("os.geteuid", lambda: other.pw_uid)
    return other.pw_name


def test_agent_that_cannot_switch_users_runs_all_jobs_as_itself(not_root: str) -> None:
    account = UnixAccounts(run_as_self=False).account_of("somebody-else")
    assert (account.name, account.switch) == (not_root, None)


def test_run_as_self_runs_all_jobs_as_the_agent() -> None:
    account = UnixAccounts(run_as_self=True).account_of("somebody-else")
    assert (account.name, account.switch) == (pwd.getpwuid(os.geteuid()).pw_name, None)


@pytest.fixture
def fresh() -> Iterator[str]:
    """A user and a group of the same name, made for this test."""
    name = f"cgroups{os.getpid()}"
    if shutil.which("useradd") is None or shutil.which("groupadd") is None:
        pytest.skip("needs useradd and groupadd")
    for command in (("useradd", "-M", "-p", "*", name), ("groupadd", f"{name}p")):
        subprocess.run(command, check=True, capture_output=True)
    uid = pwd.getpwnam(name).pw_uid
    yield name
    users.remove(name, uid)
    subprocess.run(["groupdel", f"{name}p"], check=True, capture_output=True)


@as_root
def test_new_group_membership_applies_to_the_next_job(run: Run, fresh: str) -> None:
    agent = run(run_as_self=False)

    def groups_of(job: int) -> set[str]:
        agent.start(job, "id", "-Gn", user=fresh)
        assert agent.ended(job).code == 0
        return {*agent.log(job).decode().split()}

    assert groups_of(1) == {fresh}
    subprocess.run(["usermod", "-aG", f"{fresh}p", fresh], check=True, capture_output=True)
    assert groups_of(2) == {fresh, f"{fresh}p"}
    subprocess.run(["gpasswd", "-d", fresh, f"{fresh}p"], check=True, capture_output=True)
    assert groups_of(3) == {fresh}


def test_nothing_of_the_agent_leaks_into_a_job(run: Run) -> None:
    """A job inherits no environment, descriptors, signal settings or directory of the agent."""
    agent = run()
    env = {"MINE": "a b\n\x1b[2J", "PATH": "/bin:/usr/bin", "LD_PRELOAD": "", "B[": "]"}
    agent.start(1, "env", "-0", env=env, name="$(touch /tmp/x)\n[/]")
    agent.start(
        2,
        "sh",
        "-c",
        "ls -l /proc/self/fd/ | awk '{print $9, $11}'; grep -E 'Sig(Blk|Ign)' /proc/self/status",
    )
    assert agent.ended(1).code == agent.ended(2).code == 0
    seen = dict(pair.split("=", 1) for pair in agent.log(1).decode().split("\0") if pair)
    assert seen.items() >= env.items()
    base = {"HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "CUDA_VISIBLE_DEVICES"}
    ours = {"CORRAL_SPOOL", "CORRAL_MARK", "CORRAL_GPUS", "CORRAL_CPU_MILLI", "CORRAL_MEMORY_MIB"}
    slurms = {"SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_NODE", "SLURM_GPUS_ON_NODE"}
    slurms |= {"SLURM_JOB_UID", "SLURM_JOB_GID", "SLURM_CLUSTER_NAME", "SLURM_WORKING_CLUSTER"}
    assert seen.keys() - env.keys() == base | ours | slurms
    assert seen["CUDA_VISIBLE_DEVICES"] == ""
    *descriptors, blocked, ignored = agent.log(2).decode().split("\n")[:-1]
    numbers = [line.split()[0] for line in descriptors if line.strip() and not line.endswith("/fd")]
    assert sorted(numbers)[:3] == ["0", "1", "2"]
    assert all(
        "/proc/" in line for line in descriptors if line.split() and line.split()[0] not in ("0", "1", "2")
    )
    assert int(blocked.split()[1], 16) == 0
    usual = {1 << number - 1 for number in signal.valid_signals()}
    assert not any(int(ignored.split()[1], 16) & bit for bit in usual)


def test_arguments_are_passed_unchanged(run: Run) -> None:
    """No shell changes the arguments: quotes, newlines, empty strings, bytes that are not UTF-8."""
    agent = run()
    hostile = [
        "",
        " ",
        "a'b\"c",
        "$(id)",
        "`id`",
        "\n",
        "\x1b]0;x\x07",
        "ü\u202e",
        os.fsdecode(b"\xff\xfe"),
        "-n",
    ]
    agent.start(1, "printf", "%s\\0", *hostile)
    assert agent.ended(1).code == 0
    assert agent.log(1).split(b"\0")[:-1] == [os.fsencode(each) for each in hostile]


def test_arguments_that_cannot_be_encoded_are_refused(run: Run) -> None:
    agent = run()
    agent.start(1, "echo", "\ud800")
    assert "cannot run" in agent.ended(1).why
    agent.kill()
    assert run().hello().attempts[0].why == agent.ended(1).why


@as_root
def test_output_files_are_opened_as_the_user(run: Run, other: pwd.struct_passwd, tmp_path: Path) -> None:
    """A file of root's stays as it is, also behind a link that the user made."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, other.pw_uid, other.pw_gid)
    for parent in (tmp_path, *tmp_path.parents):
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o001)
    secret = tmp_path / "secret"
    secret.write_text("root's own\n")
    secret.chmod(0o600)
    (theirs / "link").symlink_to(secret)
    agent = run(run_as_self=False)
    place = {"user": other.pw_name, "workdir": str(theirs)}
    agent.start(1, "sh", "-c", "echo hello; umask", output="own.out", umask=0o027, **place)
    agent.start(2, "echo", "taken", output=str(secret), **place)
    agent.start(3, "echo", "taken", error="link", **place)
    assert agent.ended(1).why == ""
    written = theirs / "own.out"
    assert written.read_text() == "hello\n0027\n"
    assert (written.stat().st_uid, written.stat().st_mode & 0o777) == (other.pw_uid, 0o640)
    assert agent.ended(2).why == f"launch_failed: cannot write stdout to {secret}: Permission denied"
    assert agent.ended(3).why == "launch_failed: cannot write stderr to link: Permission denied"
    assert secret.read_text() == "root's own\n"


@as_root
def test_variables_of_the_user_reach_no_site_program(
    run: Run, other: pwd.struct_passwd, tmp_path: Path
) -> None:
    """The prolog runs as root, so a user must not be able to set any of its variables."""
    found = tmp_path / "found"
    prolog = {"prolog": ["/bin/sh", "-c", f"env > {found}"]}
    agent = run("--jobs", json.dumps(prolog), run_as_self=False)
    evil = {
        "LD_PRELOAD": "/tmp/evil.so",
        "LD_LIBRARY_PATH": "/tmp",
        "PYTHONPATH": "/tmp",
        "PATH": "/tmp/evil",
    }
    agent.start(1, "/bin/true", user=other.pw_name, env=evil)
    agent.ended(1)
    told = dict(line.partition("=")[::2] for line in found.read_text().splitlines())
    assert not {"LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH"} & told.keys()
    assert "/tmp/evil" not in told["PATH"]
