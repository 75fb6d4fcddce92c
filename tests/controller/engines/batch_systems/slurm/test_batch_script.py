"""The scripts for sbatch. CORRAL_RENEW_GOLDEN=1 renews the file; read the difference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.engines.batch_systems.batch_job import BatchJob
from controller.engines.batch_systems.slurm.batch_script import batch_script

GOLDEN = Path(__file__).parents[4] / "golden" / "engines" / "batch_systems"
PLAIN = BatchJob("corral-0f3a9c112233-7-1-0", ("python", "train.py"))
FULL = BatchJob(
    "corral-0f3a9c112233-8-2-0",
    ("python", "train.py", "--name", "it's"),
    title="résumé $(touch x)",
    cpus=4,
    memory_mib=16_384,
    gpus=2,
    gres="gpu:a100",
    node="n1",
    time_limit_s=93_784,
    partition="gpu",
    account="proj-a",
    qos="tight",
    constraint="nvlink&hbm3",
    env={"EPOCHS": "3", "PROMPT": "a\nb"},
    workdir="/data/my project",
    output="/data/out.log",
    error="/data/out.log",
    append=True,
    umask=0o027,
    extra=("licenses=matlab:1", "exclusive"),
)


@pytest.mark.parametrize(("name", "job"), [("plain", PLAIN), ("full", FULL)])
def test_scripts(name: str, job: BatchJob) -> None:
    path = GOLDEN / f"slurm-{name}.sh"
    if os.environ.get("CORRAL_RENEW_GOLDEN"):
        path.write_text(batch_script(job))
    assert batch_script(job) == path.read_text()


@pytest.mark.parametrize("value", ["a b", "x\n#SBATCH --uid=0", 'x"', "x;rm", "$(x)"])
def test_no_value_can_add_an_option_or_a_command(value: str) -> None:
    with pytest.raises(ValueError, match="need quoting"):
        batch_script(BatchJob("t", ("true",), account=value))


def test_the_title_is_reduced_to_harmless_characters() -> None:
    [line] = [line for line in batch_script(FULL).splitlines() if "comment" in line]
    assert line == '#SBATCH --comment="r_sum_ __touch x_"'
