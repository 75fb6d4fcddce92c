"""The README's first cluster, its commands run as they are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from agent.attempts.launch.environment import BASE_PATH
from tests.limits import PATIENCE_S
from wire.http.client import Client, Refused, Unreachable
from wire.names import JobState, NodeState

ROOT = Path(__file__).parents[3]


def blocks() -> list[list[str]]:
    """The commands of each indented block under "The first cluster"."""
    text = (ROOT / "README.md").read_text().partition("## The first cluster\n")[2].partition("\n## ")[0]
    found = re.findall(r"(?:^    .+\n)+", text, re.MULTILINE)
    return [[line.strip() for line in block.splitlines()] for block in found]


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory like a clone after `make demo`: examples, and the command in .venv/bin."""
    place = Path(tmp_path_factory.mktemp("c"))
    shutil.copytree(ROOT / "examples", place / "examples")
    training = place / "examples/train.py"
    assert "default=1.0" in training.read_text()  # seconds of computing for each epoch
    training.write_text(training.read_text().replace("default=1.0", "default=0.2"))
    (place / ".venv" / "bin").mkdir(parents=True)
    command = place / ".venv" / "bin" / "corral"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m cli "$@"\n')
    command.chmod(0o755)
    return place


def test_readme_quickstart_ends_in_a_completed_job_with_its_log(place: Path) -> None:
    if shutil.which("python3", path=BASE_PATH) is None:
        pytest.skip("python3 is not in the PATH that jobs have")
    first, second, simulated = blocks()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CORRAL_")}
    kept.pop("VIRTUAL_ENV", None)
    # Only where the controller keeps its state differs from a reader's machine.
    own = {
        "CORRAL_CONTROLLER__STATE_DIR": f"{place}/state",
        "CORRAL_CONTROLLER__SOCKET": f"{place}/s",
        "CORRAL_URL": f"unix://{place}/s",
    }
    environment = {**kept, **own}

    def run(lines: list[str]) -> str:
        done = subprocess.run(
            ["/bin/sh", "-ec", "\n".join(lines)],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    controller = subprocess.Popen(
        ["/bin/sh", "-ec", "\n".join([*first[:-1], f"exec {first[-1]}"])], cwd=place, env=environment
    )
    try:
        with Client(environment["CORRAL_URL"]) as client:
            await_node(client, controller)
            told = run(second)
            assert "epoch 5/5" in told
            assert "done: y = 3." in told or "done: y = 2.9" in told
            [job] = client.jobs().jobs
            assert (job.state, job.exit_code) == (JobState.COMPLETED, 0)
            assert job.memory_mib > 1
            if not any(node.gpus for node in client.nodes().nodes):
                words = [*second[:1], "corral submit --gpus 1 -- python3 examples/train.py"]
                with pytest.raises(AssertionError) as refused:
                    run(words)
                assert "no NVIDIA driver (NVML) was found on gpu01" in str(refused.value)
                assert 'gpus = "simulated:8xH100"' in str(refused.value)
        assert len(simulated) == 1
        run(simulated)
        assert 'gpus = "simulated:8xH100"' in (place / "scheduler.toml").read_text()
    finally:
        controller.terminate()
        controller.wait(PATIENCE_S)


def await_node(client: Client, controller: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert controller.poll() is None
        with suppress(Unreachable, Refused):
            if any(node.state is NodeState.UP for node in client.nodes().nodes):
                return
        time.sleep(0.05)
    raise AssertionError("the controller has no node")
