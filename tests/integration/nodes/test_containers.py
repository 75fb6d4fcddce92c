"""A job in an image, through the command line, a controller, an agent and podman."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent import images
from tests.agent.agent_process import eventually
from tests.agent.dockerd import docker_daemon
from tests.systems import System


@pytest.fixture
def store() -> Iterator[Path]:
    with images.place() as place:
        yield place


def test_image_job_runs_on_a_node_with_a_runtime(build: Callable[..., System], store: Path) -> None:
    command = images.podman(store)
    images.bring_image(command, store)
    system = build("gpu01")
    system.sections["jobs"] = {"containers": {"command": list(command), "options": ["--pull=never"]}}
    system.start()
    assert re.search(r"jobs: containers +podman ", system.corral("nodes", "show", "gpu01"))
    words = ("--image", images.IMAGE, "--gpus", "1", "--mount", f"{store}:/data:ro", "--workdir", "/")
    job = system.corral("submit", *words, "--", "sh", "-c", "ls /data; exit 7").strip()
    system.await_jobs([int(job)])
    shown = system.corral("job", "show", job)
    assert images.IMAGE in shown
    assert f"{store}:/data:ro" in shown
    assert "exit code 7" in shown
    assert "root.tar" in system.corral("job", "logs", job)
    lost = system.corral("submit", "--image", "localhost/no-such:1", "--workdir", "/", "--", "true").strip()
    system.await_jobs([int(lost)])
    assert "podman cannot run the image: localhost/no-such:1: image not known" in system.corral(
        "job", "show", lost
    )


def test_gpus_are_not_reused_while_dockerd_is_down(build: Callable[..., System], tmp_path: Path) -> None:
    with docker_daemon() as daemon:
        system = build("gpu01")
        options = ["--pull=never"]
        system.sections["jobs"] = {"containers": {"command": list(daemon.command), "options": options}}
        system.start()
        beat = f"while [ ! -e {tmp_path}/go ]; do echo beat >> {tmp_path}/beats; sleep 0.1; done"
        words = ("--image", images.IMAGE, "--gpus", "8", "--workdir", str(tmp_path))
        first = int(system.corral("submit", *words, "--", "sh", "-c", beat).strip())
        eventually((tmp_path / "beats").exists)
        eventually(lambda: daemon.ask("ps", "--quiet").stdout)
        daemon.kill()
        second = int(system.corral("submit", "--gpus", "8", "--", "true").strip())
        eventually(lambda: "the job waits for it" in system.corral("job", "logs", str(first), "--stderr"))
        assert "QUEUED" in system.corral("job", "show", str(second))
        assert "RUNNING" in system.corral("job", "show", str(first))
        daemon.start()
        (tmp_path / "go").touch()
        system.await_jobs([first, second])
        assert "COMPLETED" in system.corral("job", "show", str(first))
        assert "COMPLETED" in system.corral("job", "show", str(second))
