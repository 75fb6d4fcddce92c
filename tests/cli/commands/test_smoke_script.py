"""The program of `corral nodes test`, with a CUDA driver whose GPUs are in main memory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.commands.nodes.smoke_script import SCRIPT, WAITS
from tests.limits import PATIENCE_S

SOURCE = Path(__file__).parent / "libcuda.c"
ASKED = {"cpus": 1, "gpus": 2, "memory_mib": 4, "disk_mib": 2, "gpu_mib": 1}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the driver."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    place = tmp_path_factory.mktemp("driver")
    library = place / "libcuda.so.1"
    subprocess.run([compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return place


def checks(asked: dict[str, int], **environment: str) -> dict[str, tuple[str, str]]:
    """The verdict and the finding of each check. The program gets its signal."""
    words = [sys.executable, "-c", SCRIPT, json.dumps(asked)]
    found = {}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as program:
        assert program.stdout is not None
        for line in program.stdout:
            said = json.loads(line)
            if said["name"] == WAITS:
                program.send_signal(signal.SIGUSR1)
            else:
                found[said["name"]] = (said["verdict"], said["found"])
        assert program.wait(PATIENCE_S) == 0
    return found


def test_every_part_of_a_healthy_node_passes(driver: Path) -> None:
    found = checks(ASKED, LD_LIBRARY_PATH=str(driver), GPUS="2")
    assert list(found) == ["CPU", "memory", "local disk", "GPU 0", "GPU 1", "GPUs", "orders"]
    assert {verdict for verdict, _ in found.values()} == {"ok"}
    assert found["GPU 1"][1].startswith("GPU in memory 1, ")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("memory", "the memory of the GPU holds another value than was written"),
        ("lost", "cuCtxCreate_v2: CUDA_ERROR_DEVICE_UNAVAILABLE"),
    ],
)
def test_broken_gpu_is_named(driver: Path, fault: str, told: str) -> None:
    found = checks(ASKED, LD_LIBRARY_PATH=str(driver), GPUS="2", FAULT=fault)
    assert found["GPU 0"][0] == "ok"
    assert found["GPU 1"] == ("failed", told)
    assert found["orders"][0] == "ok"


def test_missing_gpu_and_missing_cpus_are_named(driver: Path) -> None:
    found = checks({**ASKED, "cpus": 100_000}, LD_LIBRARY_PATH=str(driver), GPUS="1")
    assert found["GPUs"] == ("failed", "the job sees 1 GPUs and has requested 2")
    assert found["CPU"][0] == "failed"
    assert found["CPU"][1].endswith("and has requested 100000")


def test_missing_memory_is_named_and_gpus_are_tested_only_on_request() -> None:
    found = checks({**ASKED, "gpus": 0, "memory_mib": 1 << 40})
    assert (found["memory"][0], "GPUs" in found) == ("failed", False)
    assert found["local disk"][0] == "ok"
