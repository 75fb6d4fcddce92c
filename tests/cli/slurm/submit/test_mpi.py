"""srun starts real programs that use MPICH, and the library of Slurm for PMI-2, if these are installed."""

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


PROGRAM_2 = r"""
#include <slurm/pmi2.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    int spawned, size, rank, appnum, other, length, found;
    char key[64], value[1024], job[256], mapping[1024], node[64];
    if (PMI2_Init(&spawned, &size, &rank, &appnum)) return 1;
    if (argc > 1 && rank == 1) PMI2_Abort(1, "gives up");
    PMI2_Job_GetId(job, sizeof job);
    PMI2_Info_GetJobAttr("PMI_process_mapping", mapping, sizeof mapping, &found);
    sprintf(key, "card-%d", rank);
    sprintf(value, "tcp://%d with = and spaces", rank);
    if (PMI2_KVS_Put(key, value)) return 2;
    if (PMI2_KVS_Fence()) return 3;
    other = (rank + 1) % size;
    sprintf(key, "card-%d", other);
    if (PMI2_KVS_Get(job, PMI2_ID_NULL, key, value, sizeof value, &length)) return 4;
    if (rank % 2 == 0) {
        sprintf(node, "set by %d", rank);
        if (PMI2_Info_PutNodeAttr("leader", node)) return 5;
    }
    if (PMI2_Info_GetNodeAttr("leader", node, sizeof node, &found, 1)) return 6;
    printf("rank %d of %d: %s, %s, %s\n", rank, size, value, node, mapping);
    return PMI2_Finalize();
}
"""


@pytest.fixture(scope="module")
def program_2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that uses PMI version 2 through the library of Slurm."""
    folder = tmp_path_factory.mktemp("pmi2")
    (folder / "ring.c").write_text(PROGRAM_2)
    compiler = shutil.which("cc")
    words = [compiler or "", "-o", "ring", "ring.c", "-lpmi2"]
    if compiler is None or subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode:
        pytest.skip("the library of PMI-2 is not installed: apt-get install gcc libpmi2-0-dev")
    return folder / "ring"


def test_a_program_with_pmi_2_on_two_nodes(slurm: SlurmFace, program_2: Path) -> None:
    job = slurm.submit("-N2", "-n4", "--wrap", f"srun --mpi=pmi2 {program_2}")
    cards = [f"tcp://{rank} with = and spaces" for rank in (1, 2, 3, 0)]
    assert sorted(slurm.output(job).splitlines()) == [
        f"rank {rank} of 4: {card}, set by {rank // 2 * 2}, (vector,(0,2,2))"
        for rank, card in enumerate(cards)
    ]


def test_abort_with_pmi_2_ends_the_step(slurm: SlurmFace, program_2: Path) -> None:
    job = slurm.submit("-n2", "--wrap", f"srun {program_2} abort; echo code $?")
    assert "has called MPI_Abort" in slurm.output(job)


def test_the_commands_of_version_2() -> None:
    """Messages may arrive in parts, and a semicolon in a value is doubled."""
    said: list[tuple[int, bytes]] = []
    aborted: list[tuple[int, int]] = []
    server = PmiServer("7.0", [1, 1], lambda *what: said.append(what), lambda *how: aborted.append(how))

    def send(rank: int, body: str) -> list[tuple[int, str]]:
        said.clear()
        for byte in f"{len(body):<6}{body}".encode():
            server.take(rank, bytes([byte]))
        for _, data in said:
            assert int(data[:6]) == len(data) - 6
        return [(each, data[6:].decode()) for each, data in said]

    for rank in (0, 1):
        server.take(rank, b"cmd=init pmi_version=2 pmi_subversion=0\n")
    assert said == [(rank, b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n") for rank in (0, 1)]
    [(to, full)] = send(1, "cmd=fullinit;pmijobid=7.0;pmirank=1;threaded=FALSE;")
    assert (to, full) == (
        1,
        "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=0;debugged=FALSE;"
        "pmiverbose=FALSE;",
    )
    assert send(0, "cmd=kvs-put;thrid=5;key=a;value=x;;y=1;;;") == [(0, "cmd=kvs-put-response;thrid=5;rc=0;")]
    assert send(0, "cmd=kvs-fence;") == []
    assert send(1, "cmd=kvs-fence;") == [
        (0, "cmd=kvs-fence-response;rc=0;"),
        (1, "cmd=kvs-fence-response;rc=0;"),
    ]
    assert send(1, "cmd=kvs-get;jobid=7.0;srcid=-1;key=a;") == [
        (1, "cmd=kvs-get-response;rc=0;found=TRUE;value=x;;y=1;;;")
    ]
    assert send(1, "cmd=kvs-get;key=none;") == [(1, "cmd=kvs-get-response;rc=0;found=FALSE;")]
    assert send(0, "cmd=info-getnodeattr;key=b;wait=TRUE;") == []
    assert send(1, "cmd=info-putnodeattr;key=b;value=2;") == [(1, "cmd=info-putnodeattr-response;rc=0;")]
    assert send(0, "cmd=info-putnodeattr;key=b;value=1;") == [
        (0, "cmd=info-putnodeattr-response;rc=0;"),
        (0, "cmd=info-getnodeattr-response;rc=0;found=TRUE;value=1;"),
    ]
    assert send(0, "cmd=spawn;ncmds=1;") == [(0, "cmd=spawn-response;rc=1;errmsg=not_supported;")]
    assert send(1, "cmd=abort;isworld=TRUE;msg=x;") == []
    assert aborted == [(1, 1)]


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
