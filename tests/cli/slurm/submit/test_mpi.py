"""srun starts a real MPI program: MPICH, if its compiler is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cli.slurm.steps.pmi import PmiServer
from tests.cli.slurm.submit.conftest import SlurmFace

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d, sum %d, %s\n", rank, size, sum, getenv("SLURMD_NODENAME"));
    MPI_Finalize();
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MPI program."""
    compiler = shutil.which("mpicc.mpich") or shutil.which("mpicc")
    if compiler is None:
        pytest.skip("MPICH is not installed: apt-get install mpich libmpich-dev")
    folder = tmp_path_factory.mktemp("mpi")
    (folder / "hello.c").write_text(PROGRAM)
    subprocess.run([compiler, "-o", "hello", "hello.c"], cwd=folder, check=True)
    return folder / "hello"


def test_an_mpi_program_on_one_node(slurm: SlurmFace, program: Path) -> None:
    job = slurm.submit("-n3", "--wrap", f"srun {program}")
    assert sorted(slurm.output(job).splitlines()) == [f"rank {rank} of 3, sum 3, n1" for rank in range(3)]


def test_an_mpi_program_on_two_nodes(slurm: SlurmFace, program: Path) -> None:
    """The tasks on n2 reach the PMI server of srun by the agents."""
    job = slurm.submit("-N2", "-n4", "--wrap", f"srun {program}")
    lines = [f"rank {rank} of 4, sum 6, n{1 + rank // 2}" for rank in range(4)]
    assert sorted(slurm.output(job).splitlines()) == lines


def test_abort_ends_the_step(slurm: SlurmFace, program: Path) -> None:
    job = slurm.submit("-n2", "--wrap", f"srun {program} abort; echo code $?")
    assert "has called MPI_Abort" in slurm.output(job)


def test_without_pmi_each_task_is_alone(slurm: SlurmFace, program: Path) -> None:
    job = slurm.submit("-n2", "--wrap", f"srun --mpi=none {program}")
    assert slurm.output(job).splitlines() == ["rank 0 of 1, sum 0, n1"] * 2


def test_kinds_of_mpi(slurm: SlurmFace) -> None:
    listed = slurm.run("srun", "--mpi=list")
    assert (listed.returncode, listed.stdout) == (0, "MPI plugin types are...\n\tnone\n\tpmi1\n\tpmi2\n")
    refused = slurm.run("srun", "--mpi=pmix", "true")
    assert refused.returncode == 1
    assert refused.stderr.startswith("srun: error: Corral has no --mpi=pmix.")
    assert "mpirun" in refused.stderr


def test_the_key_value_space() -> None:
    """Two processes exchange a key, and meet at the barrier. Commands may arrive in parts."""
    said: list[tuple[int, str]] = []
    aborted: list[tuple[int, int]] = []
    server = PmiServer(
        "7.0", [1, 1], lambda rank, data: said.append((rank, data.decode())), lambda *how: aborted.append(how)
    )
    server.take(0, b"cmd=init pmi_version=1 pmi_sub")
    assert said == []
    server.take(0, b"version=1\ncmd=get_my_kvsname\n")
    server.take(0, b"cmd=put kvsname=7.0 key=card value=tcp$host with spaces\ncmd=barrier_in\n")
    server.take(1, b"cmd=get kvsname=7.0 key=PMI_process_mapping\ncmd=barrier_in\n")
    server.take(1, b"cmd=get kvsname=7.0 key=card\ncmd=get kvsname=7.0 key=none\ncmd=spawn\ncmd=finalize\n")
    server.take(1, b"cmd=abort exitcode=5\n")
    assert said == [
        (0, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"),
        (0, "cmd=my_kvsname kvsname=7.0\n"),
        (0, "cmd=put_result rc=0 msg=success\n"),
        (1, "cmd=get_result rc=0 msg=success value=(vector,(0,2,1))\n"),
        (0, "cmd=barrier_out\n"),
        (1, "cmd=barrier_out\n"),
        (1, "cmd=get_result rc=0 msg=success value=tcp$host with spaces\n"),
        (1, "cmd=get_result rc=-1 msg=key_none_not_found value=unknown\n"),
        (1, "cmd=spawn_result rc=-1 msg=not_supported\n"),
        (1, "cmd=finalize_ack\n"),
    ]
    assert aborted == [(1, 5)]
