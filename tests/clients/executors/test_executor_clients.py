"""Programs that run functions or commands as jobs of Slurm, unmodified."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from tests.clients.scripts import run

SCRIPTS = Path(__file__).parent
CLIENTS = {
    "cluster_tools": (
        ("cluster_tools",),
        [
            "array [0, 1, 4, 9, 16]",
            "failed RemoteException",
            "died RemoteException",
            "memory RemoteOutOfMemoryException",
            "none left",
        ],
    ),
    "executorlib": (
        ("executorlib", "pysqa", "h5py"),
        ["sum 6", "state True", "row held True", "deleted"],
    ),
    "hpc_connect": (
        ("hpc_connect", "hpcc_slurm"),
        ["nodes 2 [64, 8]", "codes 0 3 GPUs 8", "cancelled 1", "srun 0"],
    ),
    "ipyparallel": (("ipyparallel",), ["squares [0, 1, 4, 9, 16, 25]", "engines 3 jobs 1 True"]),
    "parsl": (
        ("parsl",),
        ["nodes ['n1', 'n2']", "failed True", "one job True", "state RUNNING", "state CANCELLED"],
    ),
    "slurminade": (("slurminade",), ["jobs 2", "parts 4 code 0"]),
    "torchx": (
        ("torchx",),
        ["states ['SUCCEEDED', 'FAILED']", "listed True", "output ['hello']", "cancelled"],
    ),
}
"""For each client: the modules that its script needs, and what the script prints."""


@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_executor_client(slurm: SlurmFace, name: str) -> None:
    modules, lines = CLIENTS[name]
    printed = run(slurm, SCRIPTS / f"use_{name}.py", modules).splitlines()
    # simple-slurm, which slurminade uses, prints the answers of sbatch.
    assert [line for line in printed if line and not line.startswith("Submitted batch job")] == lines


def test_hydra_submitit_launcher(slurm: SlurmFace) -> None:
    """A sweep runs as one array."""
    options = ("partition=gpu", "mem_gb=1", "timeout_min=5", "cpus_per_task=1")
    words = (
        "-m",
        "hydra/launcher=submitit_slurm",
        "+lr=1,2,3",
        *(f"hydra.launcher.{word}" for word in options),
    )
    run(slurm, SCRIPTS / "use_hydra.py", ("hydra_plugins.hydra_submitit_launcher",), *words)
    results = {path.name: path.read_text() for path in slurm.place.glob("result-*")}
    assert results == {"result-1": "10 0", "result-2": "20 1", "result-3": "30 2"}
