"""Jobs in images, run by the installed podman, have the same guarantees as all other jobs."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.isolation import container_runtimes
from tests import users
from tests.agent import images
from tests.agent.agent_process import AgentProcess, alive, carriers, eventually
from tests.agent.fake_nvml import FakeNvml, uuid
from tests.agent.images import IMAGE
from wire.agent.job_policy import ContainerPolicy, JobPolicy
from wire.agent.orders import GpuHold, OpenShell, Signal, Start, Stop
from wire.agent.reports import ShellEnded, ShellOutput

Run = Callable[..., AgentProcess]
as_root = users.as_other_users


@pytest.fixture(scope="module")
def podman() -> Iterator[tuple[str, ...]]:
    with images.place() as place:
        command = images.podman(place)
        images.bring_image(command, place)
        yield command


@pytest.fixture
def user() -> Iterator[str]:
    """A user with subordinate ids, as useradd assigns them."""
    name = f"corral{os.getpid()}"
    subprocess.run(["useradd", "-M", "-p", "*", name], check=True)
    yield name
    uid = pwd.getpwnam(name).pw_uid
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # podman leaves one that keeps namespaces
            if process.stat().st_uid == uid:
                os.kill(int(process.name), signal.SIGKILL)
    subprocess.run(["userdel", "--force", name], check=True, capture_output=True)


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that every user may enter, unlike tmp_path."""
    with tempfile.TemporaryDirectory(prefix="corral-home-", dir="/tmp") as place:
        yield Path(place)


@pytest.fixture
def agent(run: Run, podman: tuple[str, ...]) -> Iterator[AgentProcess]:
    """An agent; checks after the test that no container is left."""
    yield run(*jobs(podman))
    assert names(podman) == []


def jobs(command: tuple[str, ...], **more: object) -> tuple[str, str]:
    """The option by which an agent learns how images are run."""
    return "--jobs", json.dumps({"containers": {"command": command, **more}})


def test_job_runs_in_its_image(agent: AgentProcess, podman: tuple[str, ...], tmp_path: Path) -> None:
    assert agent.hello().facts.runtime.startswith("podman ")
    script = "pwd; echo $FOO $CORRAL_JOB_ID; ls /data; echo oh >&2; echo done > made; exit 7"
    agent.start(
        1, "sh", "-c", script, image=IMAGE, workdir=str(tmp_path), env={"FOO": "bar", "CORRAL_JOB_ID": "1"}
    )
    ended = agent.ended(1)
    assert (ended.code, ended.why) == (7, "")
    assert agent.log(1).decode().split("\n") == [str(tmp_path), "bar 1", ""]
    assert agent.log(1, "stderr") == b"oh\n"
    assert (tmp_path / "made").read_text() == "done\n"
    assert names(podman) == []


def names(podman: tuple[str, ...]) -> list[str]:
    done = subprocess.run(
        [*podman, *images.MANAGER, "ps", "-a", "--format", "{{.Names}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_container_sees_only_mounted_directories_of_the_host(
    run: Run, podman: tuple[str, ...], tmp_path: Path
) -> None:
    for name in ("site", "own", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    agent = run(*jobs(podman, mounts=[f"{tmp_path}/site:/data:ro"]))
    script = "cat /data/file /mine/file; touch /mine/new; touch /data/new; ls " + str(tmp_path / "secret")
    agent.start(1, "sh", "-c", script, image=IMAGE, mounts=(f"{tmp_path}/own:/mine",), workdir="/")
    assert agent.ended(1).code != 0
    assert agent.log(1) == b"siteown"
    said = agent.log(1, "stderr").decode()
    assert "Read-only" in said
    assert "No such file" in said
    assert (tmp_path / "own/new").exists()


def test_image_that_cannot_run_is_reported_with_a_cause(run: Run, podman: tuple[str, ...]) -> None:
    agent = run(*jobs(podman, options=["--pull=never"]))
    agent.start(1, "true", image="localhost/no-such:1")
    agent.start(2, "no-such-program", image=IMAGE)
    assert "cannot run the image: localhost/no-such:1: image not known" in agent.ended(1).why
    why = agent.ended(2).why
    assert why.startswith("launch_failed: podman cannot run the image: ")
    assert "no-such-program" in why


def test_exit_code_125_of_a_program_is_not_a_runtime_failure(agent: AgentProcess) -> None:
    agent.start(1, "sh", "-c", "exit 125", image=IMAGE)
    assert (agent.ended(1).code, agent.reports(1)[-1].why) == (125, "")


def test_host_without_a_container_runtime_reports_it(run: Run) -> None:
    agent = run(*jobs(("no-such-runtime",)))
    assert agent.hello().facts.runtime == ""
    agent.start(1, "true", image=IMAGE)
    assert agent.ended(1).why.startswith("launch_failed: no container runtime on this host")


def test_stop_reaches_the_program_in_the_container_and_removes_it(
    agent: AgentProcess, podman: tuple[str, ...]
) -> None:
    agent.start(
        1, "sh", "-c", "trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.1; done", image=IMAGE
    )
    eventually(lambda: agent.log(1) == b"up\n")
    agent.send(Stop(1, 1, grace_s=15.0))
    ended = agent.ended(1)
    assert (ended.code, ended.why) == (3, "cancelled")
    assert agent.log(1) == b"up\nasked\n"
    assert names(podman) == []


def test_container_that_ignores_sigterm_is_killed(agent: AgentProcess, podman: tuple[str, ...]) -> None:
    script = "trap '' TERM; (sleep 1000 &); echo up; sleep 1000 & wait; wait; sleep 1000"
    agent.start(1, "sh", "-c", script, image=IMAGE)
    eventually(lambda: agent.log(1) == b"up\n")
    inside = list(carriers(f"CORRAL_SPOOL={agent.spool}/attempts/1.1\0"))
    assert len(inside) >= 3
    agent.send(Stop(1, 1, grace_s=0.2))
    assert agent.ended(1).why == "cancelled"
    assert not any(map(alive, inside))
    assert names(podman) == []


def test_a_lost_supervisor_leaves_no_container(agent: AgentProcess, podman: tuple[str, ...]) -> None:
    agent.start(1, "sleep", "1000", image=IMAGE)
    agent.started(1)
    eventually(lambda: names(podman))
    inside = list(carriers(f"CORRAL_SPOOL={agent.spool}/attempts/1.1\0"))
    os.kill(agent.supervisor(1), 9)
    assert agent.ended(1).why == "supervisor_lost"
    assert not any(map(alive, inside))
    assert names(podman) == []


def test_container_survives_its_agent(run: Run, podman: tuple[str, ...], tmp_path: Path) -> None:
    first = run(*jobs(podman))
    go = tmp_path / "go"
    first.start(
        1, "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 5", image=IMAGE, workdir=str(tmp_path)
    )
    first.started(1)
    eventually(lambda: names(podman))
    first.kill()
    second = run(*jobs(podman))
    go.touch()
    assert second.ended(1).code == 5


def test_signals_reach_only_container_programs_with_a_handler(agent: AgentProcess) -> None:
    deaf = "echo up; sleep 0.3; while [ ! -e /tmp/go ]; do sleep 0.1; done"
    agent.start(
        1, "sh", "-c", "trap 'echo told; exit 4' USR1; echo up; while :; do sleep 0.1; done", image=IMAGE
    )
    agent.start(2, "sh", "-c", deaf, image=IMAGE)
    eventually(lambda: agent.log(1) == b"up\n" and agent.log(2) == b"up\n")
    agent.send(Signal(1, 1, "USR1"), Signal(2, 1, "USR1"))
    assert agent.ended(1).code == 4
    agent.send(Stop(2, 1, grace_s=0.1))
    assert agent.ended(2).why == "cancelled"


def test_checkpoint_command_runs_in_the_container(agent: AgentProcess, tmp_path: Path) -> None:
    agent.start(
        1,
        *("sh", "-c", "echo up; while :; do sleep 0.1; done"),
        image=IMAGE,
        workdir=str(tmp_path),
        checkpoint_command=("sh", "-c", "echo state > $CORRAL_CHECKPOINT_DIR/one"),
    )
    eventually(lambda: agent.log(1) == b"up\n")
    agent.send(Stop(1, 1, grace_s=15.0, why="preempted", checkpoint_s=15.0))
    saved = agent.ended(1).checkpoint
    assert saved is not None
    assert saved.path == f"{tmp_path}/corral-checkpoints/1/one"


def test_exec_session_runs_in_the_container(agent: AgentProcess) -> None:
    agent.start(1, "sh", "-c", "touch /tmp/mark; echo up; while :; do sleep 0.1; done", image=IMAGE)
    eventually(lambda: agent.log(1) == b"up\n")
    variables = {"SLURM_PROCID": "4", "PATH": "/nowhere"}
    script = "ls /tmp; test $SLURM_PROCID = 4 || exit 5; case $PATH in /nowhere) exit 4;; esac; exit 6"
    agent.send(OpenShell(9, 1, 1, ("sh", "-c", script), variables=variables))
    ended = agent.until(lambda said: next((each for each in said if isinstance(each, ShellEnded)), None))
    assert (ended.code, ended.error) == (6, "")
    assert any(isinstance(each, ShellOutput) and "bWFyawo" in each.data for each in agent.received)
    agent.send(Stop(1, 1, grace_s=0.0))
    assert agent.ended(1).why == "cancelled"


def test_several_tasks_are_several_containers(agent: AgentProcess) -> None:
    agent.start(1, "sh", "-c", "echo $RANK of $WORLD_SIZE", image=IMAGE, tasks=2)
    assert agent.ended(1).code == 0
    assert sorted(agent.log(1).decode().splitlines()) == ["0 of 2", "1 of 2"]


@as_root
def test_container_is_limited_to_its_memory(agent: AgentProcess) -> None:
    agent.start(1, "sh", "-c", "x=0123456789abcdef; while :; do x=$x$x; done", image=IMAGE)
    why = agent.ended(1).why
    assert why.startswith("out_of_memory: 100 MiB of memory were not enough for the job (its peak was ")
    assert "--memory" in why


CDI = """exec unshare -m sh -c 'mount --bind {place} /etc/cdi && exec "$@"' sh "$@"
"""


@pytest.fixture
def cdi(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """A prefix that runs the agent where /etc/cdi names the GPUs of the fake NVML, as nvidia-ctk writes
    it."""
    devices = [
        {"name": uuid(index), "containerEdits": {"env": [f"CDI_GPU_{index}=given"]}} for index in range(2)
    ]
    place, real = tmp_path / "cdi", Path("/etc/cdi")
    place.mkdir()
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": {}}
    (place / "nvidia.json").write_text(json.dumps(spec))
    script = tmp_path / "inside"
    script.write_text("#!/bin/sh\n" + CDI.format(place=place))
    script.chmod(0o755)
    ours = not real.exists()
    real.mkdir(exist_ok=True)
    yield (str(script),)
    if ours:
        with suppress(OSError):
            real.rmdir()


@as_root
def test_container_gets_only_its_gpus(
    run: Run, podman: tuple[str, ...], cdi: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in FakeNvml(tmp_path).environment.items():
        monkeypatch.setenv(name, value)
    agent = run("--gpus", "nvml", *jobs(podman), prefix=cdi)
    show = "echo $CUDA_VISIBLE_DEVICES ${CDI_GPU_0:-none} ${CDI_GPU_1:-none}"
    agent.start(1, "sh", "-c", show, image=IMAGE, gpus=(GpuHold(uuid(1), 1_000),))
    assert agent.ended(1).code == 0, agent.log(1, "stderr")
    assert agent.log(1).decode().split() == [uuid(1), "none", "given"]


@as_root
@pytest.mark.skipif(shutil.which("newuidmap") is None, reason="no newuidmap here: users cannot run podman")
def test_container_runs_as_the_user_of_the_job(
    run: Run, user: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/tmp")  # one of our own is closed to others
    other = pwd.getpwnam(user)
    os.chown(home, other.pw_uid, other.pw_gid)
    command = images.podman(home)
    images.bring_image(command, home, ("runuser", "-u", other.pw_name, "--", "env", f"HOME={home}"))
    agent = run(*jobs(command), run_as_self=False)
    script = f"id -u; cat /proc/self/cgroup > {home}/groups; touch {home}/made"
    agent.start(
        1, "sh", "-c", script, image=IMAGE, user=other.pw_name, workdir=str(home), env={"HOME": str(home)}
    )
    assert agent.ended(1).code == 0, agent.log(1, "stderr")
    assert agent.log(1).decode().split() == [str(other.pw_uid)]
    assert (home / "made").stat().st_uid == other.pw_uid
    assert not list(carriers(f"CORRAL_SPOOL={agent.spool}/attempts/1.1\0"))
    if "by cgroup" in agent.hello().facts.handling["limits"]:
        assert "1.1" in (home / "groups").read_text()


# --- command lines ---


def launch_spec(kind: str, **order: object) -> LaunchSpec:
    runtime = container_runtimes.ContainerRuntime(
        kind, (f"/bin/{kind}",), "1", JobPolicy(containers=ContainerPolicy(mounts=("/data",))), devices=True
    )
    asked = Start(1, 1, ("train",), "ada", 2_000, 512, image="python:3.12", **order)  # type: ignore[arg-type]
    launch = LaunchSpec("1.1", "/spool/attempts/1.1")
    launch.argv, launch.env, launch.cwd = ["train"], {"PATH": "/bin", "A": "1"}, "/home/ada"
    launch.user = (1_000, 100, [])
    runtime.add_container(launch, asked)
    return launch


GPUS = (GpuHold("GPU-1", 1_000), GpuHold("GPU-2", 1_000))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("podman", ["--device=nvidia.com/gpu=GPU-1", "--device=nvidia.com/gpu=GPU-2", "--userns=keep-id"]),
        ("docker", ['--gpus="device=GPU-1,GPU-2"', "--user=1000:100", "--cpus=2", "--memory=512m"]),
        ("apptainer", ["--nv", "docker://python:3.12", "--cleanenv"]),
    ],
)
def test_command_line_of_each_runtime(kind: str, words: list[str]) -> None:
    [wrap] = launch_spec(kind, gpus=GPUS).container_commands
    assert wrap[0] == f"/bin/{kind}"
    assert set(words) <= set(wrap)
    assert any("source=/home/ada,target=/home/ada" in word for word in wrap)
    assert any("source=/data,target=/data" in word for word in wrap)
    assert not any(word == "--env=PATH" for word in wrap)


def test_apptainer_gets_variables_under_its_own_names() -> None:
    launch = launch_spec("apptainer")
    assert launch.env["APPTAINERENV_A"] == "1"
    assert "APPTAINERENV_PATH" not in launch.env
    assert launch.container_names == []


@pytest.mark.parametrize("path", ["/a,b", '/a"b', "/a\nb"])
def test_mount_path_with_separators_is_refused(path: str) -> None:
    with pytest.raises(container_runtimes.CannotUseContainer, match="cannot be mounted"):
        str(container_runtimes.Mount(path, "/data"))
