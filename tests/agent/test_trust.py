"""A root agent in directories that users can write to: real users and real agents."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.isolation import cgroup_detection
from controller.nodes.agent.zipapp import bundle
from tests import users
from tests.agent.agent_process import HERE, AgentProcess, alive, carriers, end_all, eventually
from tests.limits import PATIENCE_S
from wire.agent.orders import Ping, Stop

Run = Callable[..., AgentProcess]

pytestmark = [
    users.as_other_users,
    pytest.mark.skipif(shutil.which("useradd") is None, reason="needs useradd"),
]


@pytest.fixture(scope="module")
def bob() -> Iterator[pwd.struct_passwd]:
    """A malicious user of this host."""
    name = f"ctrust{os.getpid()}"
    subprocess.run(["useradd", "-M", "-p", "*", "-d", "/", name], check=True, capture_output=True)
    entry = pwd.getpwnam(name)
    yield entry
    users.remove(name, entry.pw_uid)


@pytest.fixture
def shared(bob: pwd.struct_passwd) -> Iterator[Path]:
    """A directory that users can reach, unlike those of pytest."""
    made = Path(tempfile.mkdtemp(prefix="corral-trust-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def precious(shared: Path) -> Path:
    """Directories of another user's, with a file in each."""
    made = shared / "home"
    (made / "thesis").mkdir(parents=True)
    (made / "thesis" / "chapter").write_text("years of work")
    (made / "1.1").mkdir()  # even if it has the name of an attempt
    (made / "1.1" / "data").write_text("more of it")
    for each in (made, made / "thesis", made / "1.1"):
        os.chown(each, 65_534, 65_534)
    return made


def contents(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


def as_user(user: pwd.struct_passwd, *command: str) -> None:
    subprocess.run(command, check=True, user=user.pw_uid, group=user.pw_gid, extra_groups=(), cwd="/")


def root_of(spool: Path, parent: Path) -> Path:
    """The scratch root that an agent prefers, as users can work it out."""
    return parent / f"corral-{cgroup_detection.cgroup_tag('gpu01', spool)}"


@pytest.mark.parametrize("mode", [0o1777, 0o777])
def test_directories_of_others_are_not_deleted_through_a_scratch_root_link(
    run: Run, bob: pwd.struct_passwd, shared: Path, precious: Path, mode: int
) -> None:
    """The name of the scratch root is known, and a user creates it while no agent runs."""
    parent = shared / "scratch"
    parent.mkdir()
    parent.chmod(mode)
    spool = shared / "spool"
    before = contents(precious)
    as_user(bob, "ln", "-s", str(precious), str(root_of(spool, parent)))
    with Agents(spool, "--scratch-dir", str(parent), "--scratch", "1G") as begin:
        agent = begin()
        agent.start(5, "sh", "-c", 'echo "$CORRAL_SCRATCH"', user=bob.pw_name, scratch_mib=10)
        ended = agent.ended(5)
        agent.kill()
        begin().answered_once()
    assert contents(precious) == before
    if mode == 0o777:
        assert ended.why.startswith(f"node_unfit: no scratch: {parent} can be written to by others")
        assert f"chmod +t {parent}" in ended.why
    else:
        assert ended.code == 0


def test_directories_of_others_are_not_deleted_through_a_link_in_var_tmp(
    bob: pwd.struct_passwd, shared: Path, precious: Path
) -> None:
    spool = shared / "spool"
    link = root_of(spool, Path("/var/tmp"))
    before = contents(precious)
    as_user(bob, "ln", "-s", str(precious), str(link))
    try:
        with Agents(spool) as begin:
            begin().answered_once()
        assert contents(precious) == before
    finally:
        link.unlink()


def test_occupied_scratch_root_name_does_not_block_jobs(bob: pwd.struct_passwd, shared: Path) -> None:
    parent, spool = shared / "scratch", shared / "spool"
    parent.mkdir()
    parent.chmod(0o1777)
    as_user(bob, "mkdir", "-p", f"{root_of(spool, parent)}/in-the-way")
    with Agents(spool, "--scratch-dir", str(parent), "--scratch", "1G") as begin:
        agent = begin()
        show = 'echo "$CORRAL_SCRATCH"; stat -c "%a %u" "$CORRAL_SCRATCH"; touch "$CORRAL_SCRATCH/x"'
        agent.start(1, "sh", "-c", show, user="nobody", scratch_mib=10)
        assert (agent.ended(1).code, agent.ended(1).why) == (0, "")
        place, access = agent.log(1).decode().splitlines()
        assert access == f"700 {pwd.getpwnam('nobody').pw_uid}"
        root = Path(place).parent
        assert (root.parent, root.stat().st_uid, root.stat().st_mode & 0o777) == (parent, 0, 0o711)
        assert list(root.iterdir()) == []  # the root stays, so that its name cannot be taken now
        agent.kill()
        again = begin()
        again.start(2, "sh", "-c", 'echo "$CORRAL_SCRATCH"', user="nobody", scratch_mib=10)
        assert again.ended(2).code == 0
        assert Path(again.log(2).decode().strip()).parent == root


def test_forged_marks_kill_no_job_of_others(bob: pwd.struct_passwd, shared: Path) -> None:
    """A job forges the mark of another job after the pattern of its own mark."""
    spool = shared / "spool"
    with Agents(spool) as begin:
        first = begin()
        forge = (
            'for id in $(seq 2 20); do env CORRAL_SPOOL="${CORRAL_SPOOL%/*}/$id.1" sleep 600 & done; '
            "echo forged; wait"
        )
        first.start(1, "bash", "-c", forge, user=bob.pw_name)
        eventually(lambda: first.log(1) == b"forged\n")
        eventually(lambda: len(list(carriers(f"CORRAL_SPOOL={spool}/attempts/20.1\0"))) == 1)
        first.kill()
        second = begin()
        assert [status.job for status in second.hello().attempts] == [1]
        for job in (2, 3, 20):
            second.start(job, "true", user="nobody")
        assert [(second.ended(job).code, second.ended(job).why) for job in (2, 3, 20)] == [(0, "")] * 3
        assert second.reports(1) == []  # the job that forged them runs on
        second.send(Stop(1, 1, 0.0))
        second.ended(1)


def test_processes_of_a_lost_record_are_found_by_their_mark(bob: pwd.struct_passwd, shared: Path) -> None:
    """A true mark counts although its process belongs to a user."""
    spool = shared / "spool"
    with Agents(spool) as begin:
        first = begin()
        first.start(1, "sleep", "600", user=bob.pw_name)
        pid = first.started(1).pid
        supervisor = first.supervisor(1)
        first.kill()
        os.kill(supervisor, signal.SIGSTOP)  # so that it reports nothing
        shutil.rmtree(spool / "attempts" / "1.1")
        second = begin()
        arguments = [status for status in second.hello().attempts if status.job == 1]
        assert len(arguments) == 1
        ended = arguments[0] if arguments[0].ended_at is not None else second.ended(1)
        assert ended.why.startswith("supervisor_lost")
        assert pid is not None
        assert not alive(pid)


def test_spool_prepared_by_a_user_is_refused(bob: pwd.struct_passwd, shared: Path) -> None:
    """Every user can write to the parent of the spool. A user who creates the spool first could decide which
    program root runs.
    """
    parent, spool = shared / "disk", shared / "disk" / "corral"
    parent.mkdir()
    parent.chmod(0o1777)
    for name in ("attempts", "settled", "unreadable"):
        as_user(bob, "mkdir", "-p", str(spool / name))
    as_user(bob, "chmod", "-R", "777", str(spool))
    refusals(spool, f"{spool} belongs to {bob.pw_name} (uid {bob.pw_uid}), not to root", f"rm -r {spool}")
    # The advice followed in part: the directory belongs to root now, its content does not.
    os.chown(spool, 0, 0)
    refusals(spool, f"{spool} can be written to by others (mode 0777)", f"chmod go-w {spool}")
    spool.chmod(0o755)
    refusals(spool, f"{spool}/attempts belongs to {bob.pw_name}", f"rm -r {spool}/attempts")
    shutil.rmtree(spool)
    with Agents(spool) as begin:
        begin().answered_once()


def test_spool_below_a_directory_of_others_is_refused(bob: pwd.struct_passwd, shared: Path) -> None:
    below = shared / "bobs"
    below.mkdir()
    os.chown(below, bob.pw_uid, bob.pw_gid)
    refusals(below / "corral", f"{below} belongs to {bob.pw_name}", f"chown root {below}")
    assert list(below.iterdir()) == []
    os.chown(below, 0, 0)
    below.chmod(0o777)
    refusals(below / "corral", f"{below} can be written to by others", f"chmod +t {below}")
    below.chmod(0o1777)
    as_user(bob, "ln", "-s", "/etc", str(below / "corral"))
    refusals(below / "corral", f"{below}/corral is a symbolic link that {bob.pw_name}", "rm ")
    (below / "corral").unlink()
    (below / "corral").symlink_to(shared / "elsewhere")  # the administrator's own, to another disk
    (shared / "elsewhere").mkdir(mode=0o700)
    with Agents(below / "corral") as begin:
        begin().answered_once()
    assert (shared / "elsewhere" / "attempts").is_dir()


def test_agent_bundle_is_stored_where_no_user_can_change_it(bob: pwd.struct_passwd, shared: Path) -> None:
    """In another directory, a user could replace the verified file before the host runs it."""
    shared.chmod(0o1777)
    home = shared / "corral"
    as_user(bob, "mkdir", "-p", str(home / "agents"))
    made = bundle()
    arguments = {"word": ["ab", "cd"], "name": made.name, "size": 0, "digest": made.digest, "home": str(home)}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{made.bootstrap}\nreceive_agent(**{arguments!r})"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert f'abcd ["failed", "{home} belongs to {bob.pw_name}' in done.stdout
    assert "Traceback" not in done.stderr


def test_a_prolog_that_a_user_can_change_is_not_run(bob: pwd.struct_passwd, shared: Path) -> None:
    prolog, jobs = shared / "prolog", json.dumps({"prolog": [str(shared / "prolog")]})
    prolog.write_text(f"#!/bin/sh\ntouch {shared}/ran\n")
    prolog.chmod(0o777)
    with Agents(shared / "spool", "--jobs", jobs) as begin:
        agent = begin()
        agent.start(1, "true", user="nobody")
        assert f"{prolog} can be written to by others (mode 0777)" in agent.ended(1).why
        prolog.chmod(0o755)
        os.chown(prolog, bob.pw_uid, bob.pw_gid)
        agent.start(2, "true", user="nobody")
        assert f"{prolog} belongs to {bob.pw_name}" in agent.ended(2).why
        assert not (shared / "ran").exists()
        os.chown(prolog, 0, 0)
        agent.start(3, "true", user="nobody")
        assert agent.ended(3).code == 0
        assert (shared / "ran").exists()


def test_a_preflight_of_a_spool_that_a_user_prepared_writes_nothing(
    bob: pwd.struct_passwd, shared: Path
) -> None:
    spool, target = shared / "spool", shared / "target"
    shared.chmod(0o1777)
    as_user(bob, "mkdir", "-m", "777", str(spool))
    as_user(bob, "ln", "-s", str(target), str(spool / "lock"))
    [line] = [each for each in preflight(spool)["checks"] if each["name"] == "spool"]
    assert line["verdict"] == "failed"
    assert f"{spool} belongs to {bob.pw_name}" in line["found"]
    assert not target.exists()


def test_a_preflight_does_not_wait_for_a_pipe_that_a_user_made(bob: pwd.struct_passwd, shared: Path) -> None:
    """A process of the user looks like an agent. The preflight reads its lock file to find the name of its
    node.
    """
    home = shared / "home"
    for node in ("a", "b"):
        (home / "nodes" / node).mkdir(parents=True)
    subprocess.run(["chown", "-R", bob.pw_name, str(home)], check=True)
    as_user(bob, "mkfifo", str(home / "nodes" / "a" / "lock"))
    as_user(bob, "ln", "-s", "/dev/zero", str(home / "nodes" / "b" / "lock"))
    named = f"{home}/agents/agent-{'0123456789' * 2}.pyz"
    likeness = subprocess.Popen(
        ["sh", "-c", "sleep 600; :", named, "-"], user=bob.pw_uid, group=bob.pw_gid, extra_groups=(), cwd="/"
    )
    try:
        assert [each["name"] for each in preflight(shared / "spool")["checks"]][2] == "spool"
    finally:
        likeness.kill()
        likeness.wait()


def preflight(spool: Path) -> Any:
    """The report of `--check`."""
    words = ["--name", "gpu01", "--spool", str(spool), "--gpus", "none", "--check"]
    done = subprocess.run(
        [sys.executable, "-m", "agent", *words], check=True, capture_output=True, cwd=HERE, timeout=PATIENCE_S
    )
    return json.loads(done.stdout)


def refusals(spool: Path, *messages: str) -> None:
    """Return the refusals that the agent reports instead of starting."""
    agent = AgentProcess(spool, run_as_self=False)
    try:
        assert agent.wait_exit() == 1
    finally:
        agent.process.kill()
    assert agent.received == []
    for each in messages:
        assert each in agent.stderr_text


class Agents:
    """Agents one after the other on the same spool, run by root, who can switch users."""

    def __init__(self, spool: Path, *options: str) -> None:
        self._spool, self._options = spool, options
        self._begun: list[Begun] = []

    def __enter__(self) -> Callable[[], Begun]:
        return self._begin

    def _begin(self) -> Begun:
        self._begun.append(Begun(self._spool, *self._options, run_as_self=False))
        self._begun[-1].hello()
        return self._begun[-1]

    def __exit__(self, *_: object) -> None:
        for agent in self._begun:
            agent.process.kill()
            agent.wait_exit()
        end_all(self._spool.resolve())


class Begun(AgentProcess):
    """Starts an agent and waits for its hello."""

    def answered_once(self) -> None:
        """Wait until the agent has completed its start."""
        self.send(Ping(77))
        self.await_pong(77)
