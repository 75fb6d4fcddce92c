"""corral quota: its arguments and its table."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from cli.commands.policy.quota import limits_text, quota_of, quota_table
from cli.exit_codes import CommandError
from wire.api.policy.quotas import QuotaView
from wire.cluster.quota import UNLIMITED, GpuLimit, Limits, Quota


@pytest.mark.parametrize(
    ("words", "quota"),
    [
        (["gpus=8"], Quota(Limits(gpus=8))),
        (["gpus=0.5", "cpus=1.5", "memory=2G"], Quota(Limits(gpus=0.5, cpu_milli=1500, memory_mib=2048))),
        (["running=0", "queued=none"], Quota(Limits(running=0, queued=UNLIMITED))),
        (["gpu-hours=12.5", "gpu_hours=13"], Quota(Limits(gpu_hours=13))),
        (
            ["gpus.H100=16", "gpus.A100=25%", "soft.gpus.H100=none"],
            Quota(
                Limits(gpus_per_model={"H100": GpuLimit(16), "A100": GpuLimit(percent=25)}),
                Limits(gpus_per_model={"H100": GpuLimit(UNLIMITED)}),
            ),
        ),
        (["gpus=50%", "soft.gpus=12.5%"], Quota(Limits(gpus_percent=50), Limits(gpus_percent=12.5))),
        (["soft.gpus=4", "borrow.cpus=2"], Quota(Limits(), Limits(gpus=4), Limits(cpu_milli=2000))),
    ],
)
def test_quota_arguments_are_parsed(words: list[str], quota: Quota) -> None:
    assert quota_of(words) == quota
    assert quota_of(limits_text(quota).split()) == quota


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("gpus", "'gpus' is not a limit"),
        ("gpsu=8", "'gpsu=8' is not a limit"),
        ("gpus=x", "gpus: 'x' is not a number of GPUs"),
        ("memory=8", "memory: '8' has no unit"),
        ("running=1.5", "running: '1.5' is not a whole number"),
        ("hardly.gpus=8", "is not a limit"),
        ("gpus.H100=x", "gpus.H100: 'x' is not a number of GPUs"),
        ("gpus.=4", "is not a limit"),
        ("cpus.H100=4", "is not a limit"),
        ("gpus=150%", "gpus: '150%' is not a percentage from 0% to 100%"),
    ],
)
def test_invalid_quota_arguments_are_refused(word: str, told: str) -> None:
    with pytest.raises(CommandError, match=re.escape(told)):
        quota_of([word])


def test_quota_table_shows_usage_and_limits() -> None:
    def view(scope: str, name: str, quota: Quota, edited: bool = False, **used: Any) -> QuotaView:
        amounts = {"cpu_milli": 0, "memory_mib": 0, "gpus": 0.0, "running": 0, "queued": 0, "gpu_hours": 0.0}
        return QuotaView(scope, name, quota, Limits(**{**amounts, **used}), edited)

    rows = [
        view("user", "*", Quota(Limits(gpus=8, running=UNLIMITED))),
        view("project", "vision", Quota(Limits(gpus=8), borrow=Limits(gpus=4)), True, gpus=9.5, running=3),
        view(
            "project",
            "llm",
            Quota(Limits(gpus_per_model={"H100": GpuLimit(16), "A100": GpuLimit(2.5, 25)})),
            gpus_per_model={"H100": GpuLimit(12), "A100": GpuLimit(0)},
        ),
    ]
    hours = view("user", "ada", Quota(Limits(gpu_hours=100)), gpu_hours=12.5)
    rows.append(replace(hours, gpu_hours_planned=30.25))
    rows.append(replace(rows[1], gpu_hours_planned=30.25))
    lines = [line.split() for line in quota_table().lines(rows, None)]
    assert lines[4][7] == "12.5+30.2/100"
    few = view("user", "ada", Quota(), gpu_hours=0.000159)
    assert [*quota_table().lines([few], None)][1].split()[7] == "<0.001"
    assert lines[5] == lines[2], "without a limit, only the GPU-hours that were used are shown"
    assert lines[1] == ["user", "*", "-/8", "-", "-", "-", "-", "-"]
    assert lines[2][:8] == ["project", "vision", "9.5/8", "0", "0M", "3", "0", "0"]
    assert lines[2][8:] == ["borrow.gpus=4", "yes"]
    assert lines[3][8:] == ["A100", "0/2.5,", "H100", "12/16"]
