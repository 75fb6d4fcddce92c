"""corral gpus, and single GPUs of corral nodes."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from tests.cli.conftest import Corral
from tests.cli.fake_controller import FakeController, node
from wire.agent.reports import GpuProcess
from wire.api.nodes import GpuView
from wire.names import GpuHealth


def gpu(host: str, index: int, health: GpuHealth = GpuHealth.OK, *found: GpuProcess) -> GpuView:
    """A GPU of a node."""
    return GpuView(index, f"GPU-{host}-{index}", "H100", 81_920, 0, health, 1_000, node=host, processes=found)


@pytest.fixture
def filled(fake: FakeController) -> FakeController:
    """Two nodes; one GPU is lost, and a process outside the queue runs on another."""
    stranger = GpuProcess("GPU-b-0", 99, "mallory", "python mine.py", 4_096)
    ours = GpuProcess("GPU-b-0", 42, "ada", "python train.py", 8_192, 7)
    hour_ago = replace(gpu("a", 1, GpuHealth.CORDONED), idle_since=time.time() - 3_600)
    fake.nodes["a"] = node("a", gpus=(gpu("a", 0), hour_ago))
    fake.nodes["b"] = node("b", gpus=(gpu("b", 0, GpuHealth.OK, ours, stranger),))
    return fake


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("gpus -o name", ["GPU-a-0", "GPU-a-1", "GPU-b-0"]),
        ("gpus b -o name", ["GPU-b-0"]),
        ("gpus --sick -o name", ["GPU-a-1"]),
        ("gpus --sick b -o name", []),
        ("gpus --processes -o name", ["42", "99"]),
        ("gpus --off-queue -o name", ["99"]),
        ("gpus --idle 30m -o name", ["GPU-a-1"]),
        ("gpus --idle 2h -o name", []),
    ],
)
def test_which_gpus_are_shown(filled: FakeController, corral: Corral, words: str, names: list[str]) -> None:
    assert corral(*words.split(), url=filled.url).stdout.split() == names


def test_json_is_the_apis_own(filled: FakeController, corral: Corral) -> None:
    shown = json.loads(corral("gpus", "b", "-o", "json", url=filled.url).stdout)
    assert shown["gpus"][0]["processes"][1]["user"] == "mallory"
    assert shown["seq"] == 9


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("nodes cordon a:1 --why noisy", ["/v1/nodes/a/gpus/1/cordon"]),
        ("nodes resume a:1 b", ["/v1/nodes/a/gpus/1/resume", "/v1/nodes/b/resume"]),
        ("nodes cordon a:1 --dry-run", []),
    ],
)
def test_single_gpus_are_cordoned_and_resumed(
    filled: FakeController, corral: Corral, words: str, asked: list[str]
) -> None:
    done = corral(*words.split(), url=filled.url)
    assert done.returncode == 0
    told = "would be cordoned" if "--dry-run" in words else "cordoned"
    assert done.stderr.splitlines()[0] == f"GPU a:1: {told}"
    assert filled.asked() == asked


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("gpus c", 3, "there is no node 'c' with GPUs"),
        ("gpus --idle soon", 2, "'--idle': 'soon' is not a time"),
        ("nodes cordon a", 2, "Write a:0"),
        ("nodes cordon a:x", 2, "Write NODE:GPU"),
    ],
)
def test_gpu_command_errors_are_reported(
    filled: FakeController, corral: Corral, words: str, code: int, told: str
) -> None:
    done = corral(*words.split(), url=filled.url)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
