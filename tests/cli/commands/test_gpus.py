"""Which GPUs `corral gpus --empty` and `--hung` list."""

from __future__ import annotations

from typing import Any

import pytest

from cli.commands.nodes.gpus import is_empty, seems_hung
from wire.agent.reports import GpuProcess
from wire.api.nodes import GpuView
from wire.names import GpuHealth


def gpu(**more: Any) -> GpuView:
    return GpuView(
        0, "GPU-0", "H100", 81_559, 0, GpuHealth.OK, 0, **{"jobs": (7,), "power_limit_w": 700} | more
    )


@pytest.mark.parametrize(
    ("shown", "empty"),
    [
        (gpu(), True),
        (gpu(jobs=()), False),
        (gpu(heard=False), False),
        (gpu(processes=(GpuProcess("GPU-0", 100, "ada", "python", 1_024, 7),)), False),
        (gpu(processes=(GpuProcess("GPU-0", 100, "eve", "miner", 1_024, None),)), True),
    ],
    ids=["no process", "not allocated", "node away", "its own process", "only a process without a job"],
)
def test_empty_gpus_are_held_without_a_process_of_a_job(shown: GpuView, empty: bool) -> None:
    assert is_empty(shown) == empty


@pytest.mark.parametrize(
    ("shown", "hung"),
    [
        (gpu(utilisation=100, power_w=170), True),
        (gpu(utilisation=100, power_w=650), False),
        (gpu(utilisation=20, power_w=120), False),
        (gpu(utilisation=100, power_w=170, mig="1g.10gb"), False),
        (gpu(utilisation=100, power_w=0, power_limit_w=0), False),
    ],
    ids=["spins", "computes", "waits", "a MIG instance", "power unknown"],
)
def test_hung_gpus_have_load_and_little_power(shown: GpuView, hung: bool) -> None:
    assert seems_hung(shown) == hung
