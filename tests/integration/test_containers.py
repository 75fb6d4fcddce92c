"""A job in an image, through the command line, a controller, an agent and podman."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent import images
from tests.systems import System


@pytest.fixture
def store() -> Iterator[Path]:
    with images.place() as place:
        yield place


def test_an_image_is_run_where_it_can_be(build: Callable[..., System], store: Path) -> None:
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
