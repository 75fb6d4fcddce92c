"""Sixty-five batch scripts after the habits of public clusters, submitted unmodified and run to their end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from tests.systems import System, system
from wire.names import JobState

SCRIPTS = Path(__file__).parent / "sbatch_scripts"
REFUSED = {
    "hetjob": ["#SBATCH hetjob. Submit a job for each kind of node"],
    "other_cluster": [
        "#SBATCH --clusters. Choose the controller",
        "#SBATCH --bb. Write #CORRAL --scratch SIZE",
    ],
    "refused_lines": [
        "line 3: Corral has no counterpart for #SBATCH --clusters. Choose the controller with",
        "line 4: Corral has no counterpart for #SBATCH --bb. Write #CORRAL --scratch SIZE",
        "line 5: Corral has no counterpart for #SBATCH --uid. An operator submits for others",
        "line 6: Corral has no counterpart for #SBATCH --priority. Write #CORRAL --priority HIGH",
        "line 7: Corral has no counterpart for #SBATCH --input. Redirect it in the script",
        "--constraint specification: 'haswell' is a node feature; Corral has labels instead",
        "--gres specification: 'craynetwork:1,gpu:1' requests something other than GPUs",
        "line 10: Corral has no counterpart for #SBATCH --container. Write #CORRAL --image",
        "line 11: Corral has no counterpart for #SBATCH --tres-per-task. Write --gpus-per-task",
        "--mem-per-cpu specification: --mem and --mem-per-cpu exclude each other",
        "--dependency specification: 'afterok:12+5' requests a delay after a start",
        "line 14: Corral has no counterpart for #SBATCH --export-file. Write --export=NAME=VALUE",
    ],
}
"""Scripts that are refused, with what each refused line says."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Two nodes with scratch space, and a licence."""
    with system("n1", "n2") as found:
        for name in ("n1", "n2"):
            place = tmp_path_factory.mktemp(f"scratch-{name}")
            found.sections["nodes"][name] |= {"scratch": "50G", "scratch_dir": str(place)}
        found.sections["licences"] = {"ansys": 2}
        yield found.start()


def test_scripts_are_accepted_and_end_well(slurm: SlurmFace) -> None:
    scripts = sorted(path for path in SCRIPTS.glob("*.sh") if path.stem not in REFUSED)
    assert len(scripts) == 62
    jobs = {}
    for path in scripts:
        done = slurm.run("sbatch", str(path))
        assert done.returncode == 0, (path.name, done.stderr)
        words = done.stdout.split()
        jobs[path.stem] = int(words[-1])
        assert words[:-1] in (["Submitted", "batch", "job"], []), path.name
    ids = {job.id: job for job in slurm.cluster.jobs().values()}
    ended = slurm.cluster.await_jobs(ids)
    wrong = {
        name: slurm.cluster.corral("job", "logs", str(job))
        for name, job in jobs.items()
        if ended[job].state is not JobState.COMPLETED
    }
    assert not wrong
    outputs = {name: (slurm.place / f"slurm-{job}.out") for name, job in jobs.items()}
    assert outputs["mpi_like"].read_text().count("\n") == 17
    assert outputs["gpus_per_task"].read_text() == "4\n"
    assert sorted(outputs["pipeline_steps"].read_text().split()) == ["one", "two"]
    assert outputs["python_script"].read_text() == f"job {jobs['python_script']}\n"
    assert outputs["ddp_srun_tasks"].read_text().count("rank") == 8
    assert outputs["multi_prog"].read_text().splitlines() == [
        *("client 3", "client 5", "master 0 of 6", "server 1 is number 0", "server 2 is number 1", "spare 4"),
    ]
    assert outputs["conda_modules"].read_text().endswith("threads 8, wandb offline, memory 3900\n")
    assert outputs["singleton_chain"].read_text() == "PD JobHeldUser\n"
    assert (slurm.place / f"vasp.o{jobs['mpi_pmi2']}").read_text() == "0: 0\n1: 1\n2: 2\n3: 3\n"
    array = jobs["array_parameters"]
    rows = [(slurm.place / f"array_parameters.sh_{array}_{n}.txt").read_text() for n in (2, 4, 6)]
    assert rows == ["small 0.1 of 2..6\n", "middle 0.01 of 2..6\n", "large 0.001 of 2..6\n"]
    chain = [f"{name}|COMPLETED|0:0" for name in ("pre", "train", "wrap")]
    assert outputs["chain_of_jobs"].read_text().splitlines()[-4:] == ["epochs 3", *chain]
    assert outputs["gpu_tasks_heredoc"].read_text() == "job True GPUs 2\n0: 1\n1: 1\n"
    assert outputs["whole_node_farm"].read_text() == "abcdef"
    ranks = [(slurm.place / f"rank-{jobs['rendezvous_port']}-{n}.txt").read_text() for n in (0, 1)]
    assert [text.split(" at ")[0] for text in ranks] == ["rank 0 of 2", "rank 1 of 2"]
    assert (slurm.place / f"result.{jobs['tmpdir_results']}").read_text() == "84\n"
    assert outputs["variable_time"].read_text().splitlines() == [
        *("restarts: 0, Restarts=0", "restarts: 1, Restarts=1"),
    ]
    farm, restarted = (f"farm-{jobs['job_farm']}.out", f"restartable-{jobs['requeue_checkpoint']}.out")
    assert (slurm.place / farm).read_text() == "12 144\n8 CPUs, RUNNING\n"
    told, requeued, resumed = (slurm.place / restarted).read_text().splitlines()
    assert (told, resumed) == ("USR2 in attempt 0", "resumed in attempt 1 from saved")
    assert requeued.endswith(" DUE TO JOB REQUEUE ***")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_lines_name_their_counterparts(slurm: SlurmFace, name: str) -> None:
    done = slurm.run("sbatch", str(SCRIPTS / f"{name}.sh"))
    assert (done.returncode, done.stdout) == (255, "")
    for sentence in REFUSED[name]:
        assert sentence in done.stderr
