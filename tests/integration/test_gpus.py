"""GPUs through the whole system: the true pynvml below a real agent, controller and command line."""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.rig import Rig, uuid
from tests.systems import System
from wire.api import GpuView
from wire.words import GpuHealth


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """The GPUs of the node of a test."""
    return Rig(tmp_path)


@pytest.fixture
def rigged(build: Callable[..., System], rig: Rig, tmp_path: Path) -> System:
    """A running system with one node whose NVML is the rig."""
    made = build("gpu01")
    made.sections["nodes"]["gpu01"].update(gpus="nvml", python=str(interpreter(tmp_path, rig)))
    return made.start()


def interpreter(place: Path, rig: Rig) -> Path:
    """A Python that finds the rig's library: a real host has its own in the usual place."""
    script = place / "python"
    words = [f"{name}={shlex.quote(value)}" for name, value in rig.environment.items()]
    script.write_text(f'#!/bin/sh\nexec env {" ".join(words)} {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    return script


def gpu(system: System, index: int) -> GpuView:
    """A GPU of the node, as the API shows it now."""
    with system.client() as client:
        return client.gpus().gpus[index]


def test_what_nvml_says_is_what_people_see(rigged: System, rig: Rig) -> None:
    rig.say(1, busy=91, used_mib=9_000, power_w=655, celsius=74, corrected=5, throttle=0x20, mhz=1_700)
    rig.say(1, processes=f"{os.getpid()}:8192", links=18, links_down=2)
    rigged.until(lambda: gpu(rigged, 1).utilisation == 91 and gpu(rigged, 1).processes, "the reading")
    seen = gpu(rigged, 1)
    assert (seen.memory_used_mib, seen.power_w, seen.temperature_c, seen.clock_mhz) == (9_000, 655, 74, 1_700)
    assert (seen.ecc_corrected, seen.throttle, seen.links_up, seen.links_there) == (5, ("too hot",), 16, 18)
    [stranger] = seen.processes
    assert (stranger.pid, stranger.user, stranger.job) == (
        os.getpid(),
        pwd.getpwuid(os.getuid()).pw_name,
        None,
    )
    shown = corral(rigged, "nodes", "show", "gpu01", "-o", "wide")
    assert "driver      550.90.07, CUDA 12.4" in shown
    assert "off-queue" in shown
    assert str(os.getpid()) in corral(rigged, "gpus", "--off-queue")
    assert uuid(1) in corral(rigged, "gpus", "-o", "json")


def test_one_gpu_that_is_lost_leaves_the_pool_alone(rigged: System, rig: Rig) -> None:
    rig.say(0, lost=1)
    rigged.until(lambda: gpu(rigged, 0).health is not GpuHealth.OK, "GPU 0 is sick")
    sick, well = gpu(rigged, 0), gpu(rigged, 1)
    assert (sick.free_milli, well.free_milli, well.health) == (0, 1000, GpuHealth.OK)
    assert "GPU is lost" in sick.why


def corral(system: System, *words: str) -> str:
    """What the command prints."""
    asked = [sys.executable, "-m", "cli", "--url", f"unix://{system.socket}", *words]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout
