"""The scripts for qsub. CORRAL_RENEW_GOLDEN=1 renews the files; read the difference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.engines.batch_systems.batch_job import BatchJob
from controller.engines.batch_systems.pbs.job_script import job_script, walltime

GOLDEN = Path(__file__).parents[4] / "golden" / "engines" / "batch_systems"
JOB = BatchJob(
    "corral-0f3a9c112233-8-2-0",
    ("python", "train.py"),
    cpus=4,
    memory_mib=16_384,
    gpus=2,
    node="gpu01",
    time_limit_s=93_784,
    partition="gpuq",
    account="proj-a",
    workdir="/data/my project",
    extra=("l place=excl",),
)


@pytest.mark.parametrize(("name", "select"), [("openpbs", True), ("torque", False)])
def test_scripts(name: str, select: bool) -> None:
    path = GOLDEN / f"{name}-full.sh"
    if os.environ.get("CORRAL_RENEW_GOLDEN"):
        path.write_text(job_script(JOB, select=select))
    assert job_script(JOB, select=select) == path.read_text()


def test_hours_of_a_time_limit_are_not_cut_at_a_day() -> None:
    assert [walltime(each) for each in (1, 3_600, 93_784)] == ["00:00:01", "01:00:00", "26:03:04"]


@pytest.mark.parametrize("value", ["x\n#PBS -u root", 'x"', "x;rm", "$(x)"])
def test_no_value_can_add_an_option_or_a_command(value: str) -> None:
    with pytest.raises(ValueError, match="need quoting"):
        job_script(BatchJob("t", ("true",), account=value), select=True)
