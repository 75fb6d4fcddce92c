"""Jobs in images on a real dockerd that is killed, restarted, or refuses; all reports stay true."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent_process import AgentProcess, alive, carriers, eventually
from tests.agent.dockerd import DockerDaemon, docker_daemon, dying_at
from tests.agent.fake_nvml import FakeNvml, uuid
from tests.agent.images import IMAGE
from tests.limits import PATIENCE_S
from wire.agent.frames import Frame
from wire.agent.orders import GpuHold, Signal, Stop
from wire.agent.reports import GpuProcesses

Run = Callable[..., AgentProcess]
BEAT = "echo up; while [ ! -e go ]; do echo beat >> beats; sleep 0.05; done; exit 5"


@pytest.fixture(scope="module")
def shared_daemon() -> Iterator[DockerDaemon]:
    with docker_daemon() as daemon:
        yield daemon


@pytest.fixture
def daemon(shared_daemon: DockerDaemon) -> Iterator[DockerDaemon]:
    """A daemon that works when the test begins; afterwards it works again and has no container."""
    yield shared_daemon
    if shared_daemon.process is None or shared_daemon.process.poll() is not None:
        shared_daemon.start()
    left = shared_daemon.names()
    if left:
        shared_daemon.ask("rm", "--force", *left)
    assert left == []


def jobs(daemon: DockerDaemon) -> tuple[str, str]:
    """The option by which an agent learns how images are run."""
    return "--jobs", json.dumps({"containers": {"command": daemon.command, "options": ["--pull=never"]}})


def settled(agent: AgentProcess, job: int) -> bool:
    return bool(agent.reports(job)) and agent.reports(job)[-1].ended_at is not None


def begin(agent: AgentProcess, daemon: DockerDaemon, place: Path, **order: Any) -> None:
    """Start the beating job, and wait until the daemon knows that it runs."""
    agent.start(1, "sh", "-c", BEAT, image=IMAGE, workdir=str(place), **order)
    eventually((place / "beats").exists)
    eventually(lambda: daemon.ask("ps", "--format", "{{.Names}}").stdout.split())


def beating(place: Path) -> bool:
    """Return whether the job in the container still runs."""
    before = (place / "beats").stat().st_size
    for _ in range(30):  # A busy host may keep the container waiting for seconds.
        time.sleep(0.1)
        if (place / "beats").stat().st_size > before:
            return True
    return False


def test_job_keeps_running_while_dockerd_is_down(run: Run, daemon: DockerDaemon, tmp_path: Path) -> None:
    agent = run(*jobs(daemon))
    assert agent.hello().facts.runtime.startswith("docker ")
    begin(agent, daemon, tmp_path)
    daemon.kill()
    assert beating(tmp_path)
    eventually(lambda: b"the job waits for it" in agent.log(1, "stderr"))
    assert not settled(agent, 1)
    daemon.start()
    assert beating(tmp_path)
    assert not settled(agent, 1)
    (tmp_path / "go").touch()
    ended = agent.ended(1)
    assert (ended.code, ended.why) == (5, "")
    assert daemon.names() == []


def test_exit_code_is_kept_when_a_job_ends_while_dockerd_is_down(
    run: Run, daemon: DockerDaemon, tmp_path: Path
) -> None:
    agent = run(*jobs(daemon))
    begin(agent, daemon, tmp_path)
    inside = list(carriers(f"CORRAL_SPOOL={agent.spool}/attempts/1.1\0"))
    daemon.kill()
    (tmp_path / "go").touch()
    eventually(lambda: not any(map(alive, inside[1:])) and not beating(tmp_path))
    assert not settled(agent, 1)
    daemon.start()
    ended = agent.ended(1)
    # On a busy host dockerd itself can lose the exit code and report 137. The attempt then counts as lost.
    lost = (ended.code, ended.why.partition(":")[0]) == (137, "supervisor_lost")
    assert lost or (ended.code, ended.why) == (5, "")


def test_stop_while_dockerd_is_down_ends_when_the_container_is_gone(
    run: Run, daemon: DockerDaemon, tmp_path: Path
) -> None:
    agent = run(*jobs(daemon))
    begin(agent, daemon, tmp_path)
    daemon.kill()
    agent.send(Stop(1, 1, grace_s=0.2))
    eventually(lambda: not beating(tmp_path))  # killed at once
    assert not settled(agent, 1)  # but only dockerd can tell that no container is left
    daemon.start()
    assert agent.ended(1).why == "cancelled"
    assert daemon.names() == []


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (rb"create\?", "node_unfit: docker cannot run jobs here: error during connect: "),
        (
            rb"[0-9a-f]+/start",
            "supervisor_lost: the daemon of docker ended while it started the container",
        ),
        (
            rb"[0-9a-f]+/attach",
            "supervisor_lost: the daemon of docker ended while it started the container",
        ),
    ],
    ids=["create", "start", "attach"],
)
def test_a_daemon_that_dies_while_it_starts_a_job_costs_another_start_at_most(
    run: Run, daemon: DockerDaemon, request_: bytes, why: str
) -> None:
    with dying_at(daemon, request_) as command:
        agent = run("--jobs", json.dumps({"containers": {"command": command, "options": ["--pull=never"]}}))
        agent.start(1, "sh", "-c", "exit 7", image=IMAGE, workdir="/")
        assert daemon.process is not None
        daemon.process.wait(PATIENCE_S)
        assert not settled(agent, 1)
        daemon.start()
        assert agent.ended(1).why.startswith(why)
        assert daemon.names() == []


@pytest.mark.parametrize("notices", [True, False], ids=["long", "short"])
def test_a_container_that_docker_loses_while_it_is_away_is_no_failure_of_the_program(
    run: Run, daemon: DockerDaemon, tmp_path: Path, notices: bool
) -> None:
    """The supervisor notices that the daemon is away, or only its client does, because the time is short."""
    agent = run(*jobs(daemon))
    begin(agent, daemon, tmp_path)
    if not notices:
        os.kill(agent.supervisor(1), signal.SIGSTOP)
    inside = int(daemon.ask("inspect", "--format", "{{.State.Pid}}", *daemon.names()).stdout)
    shim = int(Path(f"/proc/{inside}/stat").read_text().rpartition(")")[2].split()[1])
    daemon.kill()
    for pid in (shim, inside):
        os.kill(pid, 9)
    daemon.start()
    if not notices:
        os.kill(agent.supervisor(1), signal.SIGCONT)
    assert (
        agent.ended(1).why == "supervisor_lost: docker was restarted and lost the exit code of the container"
    )


def test_killed_docker_client_does_not_affect_the_job(run: Run, daemon: DockerDaemon, tmp_path: Path) -> None:
    agent = run(*jobs(daemon))
    begin(agent, daemon, tmp_path)
    os.kill(agent.started(1).pid or 0, 9)
    assert beating(tmp_path)
    (tmp_path / "go").touch()
    assert agent.ended(1).code == 5


def test_lost_supervisor_leaves_no_container_although_dockerd_is_down(
    run: Run, daemon: DockerDaemon, tmp_path: Path
) -> None:
    agent = run(*jobs(daemon))
    begin(agent, daemon, tmp_path)
    daemon.kill()
    os.kill(agent.supervisor(1), 9)
    eventually(lambda: not beating(tmp_path))
    assert not settled(agent, 1)
    daemon.start()
    assert agent.ended(1).why == "supervisor_lost"
    assert daemon.names() == []


def test_only_orphaned_containers_of_this_spool_are_removed(
    run: Run, daemon: DockerDaemon, tmp_path: Path, spool: Path
) -> None:
    def orphan(name: str, of: Path) -> None:
        labels = ("--label", f"corral.spool={of}", "--label", "corral.attempt=9.1")
        done = daemon.ask(
            "run", "--detach", "--network=host", *labels, "--name", name, IMAGE, "sleep", "1000"
        )
        assert done.returncode == 0, done.stderr

    orphan("corral-ours-9.1-0", spool)
    orphan("corral-of-another-9.1-0", tmp_path / "other")
    run(*jobs(daemon))
    eventually(lambda: daemon.names() == ["corral-of-another-9.1-0"])
    daemon.ask("rm", "--force", "corral-of-another-9.1-0")


def test_docker_errors_name_the_cause(run: Run, daemon: DockerDaemon) -> None:
    agent = run(*jobs(daemon))
    agent.start(1, "true", image="localhost/no-such:1")
    agent.start(2, "no-such-program", image=IMAGE)
    agent.start(3, "sh", "-c", "exit 127", image=IMAGE)
    why = agent.ended(1).why
    assert why.startswith("launch_failed: docker cannot run the image: ")
    assert "no-such:1" in why
    assert "--help" not in why
    assert agent.ended(2).why == (
        "launch_failed: docker cannot run no-such-program: the image has no such program"
    )
    assert (agent.ended(3).code, agent.ended(3).why) == (127, "")


def test_user_without_access_to_the_docker_socket_gets_a_reason(run: Run, daemon: DockerDaemon) -> None:
    agent = run(*jobs(daemon), run_as_self=False)
    agent.start(1, "true", image=IMAGE, user="nobody", workdir="/")
    why = agent.ended(1).why
    assert "permission denied" in why.lower()
    assert "--help" not in why


def test_signals_reach_the_program_in_the_container(run: Run, daemon: DockerDaemon) -> None:
    agent = run(*jobs(daemon))
    script = "trap 'echo told' USR1; trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.1; done"
    agent.start(1, "sh", "-c", script, image=IMAGE, workdir="/")
    eventually(lambda: agent.log(1) == b"up\n")
    sent_at = 0.0

    def told() -> bool:
        nonlocal sent_at
        if time.monotonic() - sent_at > 5:  # A user repeats a signal that is lost: signals are not stored.
            agent.send(Signal(1, 1, "USR1"))
            sent_at = time.monotonic()
        return b"told" in agent.log(1)

    eventually(told)
    agent.send(Stop(1, 1, grace_s=20.0))
    assert agent.ended(1).code == 3
    lines = agent.log(1).split()
    assert (lines[0], set(lines[1:-1]), lines[-1]) == (b"up", {b"told"}, b"asked")


def test_checkpoint_signal_saves_in_the_container_before_the_end(
    run: Run, daemon: DockerDaemon, tmp_path: Path
) -> None:
    agent = run(*jobs(daemon))
    script = (
        "trap 'echo state > $CORRAL_CHECKPOINT_DIR/one; exit 0' USR2; echo up; while :; do sleep 0.1; done"
    )
    agent.start(1, "sh", "-c", script, image=IMAGE, workdir=str(tmp_path), checkpoint_signal="USR2")
    eventually(lambda: agent.log(1) == b"up\n")
    agent.send(Stop(1, 1, grace_s=15.0, why="preempted", checkpoint_s=15.0))
    saved = agent.ended(1).checkpoint
    assert saved is not None
    assert saved.path.endswith("/one")


def test_groups_of_the_user_are_passed_to_the_container(run: Run, daemon: DockerDaemon) -> None:
    name, group = f"corral{os.getpid()}", f"corralg{os.getpid()}"
    subprocess.run(["groupadd", group], check=True)
    gid = subprocess.run(["getent", "group", group], capture_output=True, text=True, check=True)
    number = gid.stdout.split(":")[2]
    sock = daemon.place / "sock"
    subprocess.run(["useradd", "-M", "-p", "*", "-G", group, name], check=True)
    mode, owner = sock.stat().st_mode, sock.stat().st_gid
    daemon.place.chmod(0o755)
    os.chown(sock, 0, int(number))
    try:
        agent = run(*jobs(daemon), run_as_self=False)
        agent.start(1, "id", "-G", image=IMAGE, user=name, workdir="/")
        assert agent.ended(1).code == 0, agent.log(1, "stderr")
        assert set(agent.log(1).split()) == {str(pwd.getpwnam(name).pw_gid).encode(), number.encode()}
    finally:
        os.chown(sock, 0, owner)
        sock.chmod(mode & 0o777)
        subprocess.run(["userdel", "--force", name], check=True, capture_output=True)
        subprocess.run(["groupdel", "--force", group], check=False, capture_output=True)


def test_processes_in_a_container_count_as_the_jobs_on_its_gpu(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test uses a substitute for the program with which the NVIDIA Container Toolkit adds the devices."""
    hook = tmp_path / "nvidia-container-runtime-hook"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    nvml = FakeNvml(tmp_path)
    for variable, value in nvml.environment.items():
        monkeypatch.setenv(variable, value)
    with docker_daemon() as daemon:
        agent = run("--gpus", "nvml", *jobs(daemon))
        assert agent.hello().facts.image_gpus == ""
        begin(agent, daemon, tmp_path, gpus=(GpuHold(uuid(0), 1_000),))
        inside = daemon.ask("inspect", "--format", "{{.State.Pid}}", *daemon.names()).stdout.strip()
        nvml.set_answers(0, processes=f"{inside}:700")

        def on_gpu(said: list[Frame]) -> list[int | None] | None:
            lists = [frame.processes for frame in said if isinstance(frame, GpuProcesses)]
            return [each.job for each in lists[-1]] or None if lists else None

        assert agent.until(on_gpu) == [1]
        daemon.kill()
        agent.kill()
        agent = run("--gpus", "nvml", *jobs(daemon))
        assert agent.hello().facts.runtime == ""
        assert agent.until(on_gpu) == [1], "also while docker is away"
        daemon.start()
        (tmp_path / "go").touch()
        assert agent.ended(1).code == 5


def test_host_without_gpus_for_containers_reports_it_and_returns_the_job(
    run: Run, daemon: DockerDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in FakeNvml(tmp_path).environment.items():
        monkeypatch.setenv(variable, value)
    agent = run("--gpus", "nvml", *jobs(daemon))
    facts = agent.hello().facts
    assert facts.image_gpus.startswith("docker has no NVIDIA runtime: install nvidia-container-toolkit")
    assert "no GPUs for containers" in facts.handling["containers"]
    agent.start(1, "true", image=IMAGE, gpus=(GpuHold(uuid(0), 1_000),))
    why = agent.ended(1).why
    assert why.startswith("node_unfit: docker cannot run jobs here: could not select device driver")
