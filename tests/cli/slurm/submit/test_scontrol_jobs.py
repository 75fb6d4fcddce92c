"""scontrol's changes of jobs against a running Corral."""

from __future__ import annotations

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from wire.names import JobState


def test_scontrol_holds_changes_and_requeues(slurm: SlurmFace) -> None:
    held = slurm.submit("--begin=now+1hour", "--wrap", "true")
    for words in (["hold"], ["release"], ["hold"]):
        assert slurm.run("scontrol", *words, str(held)).returncode == 0
    changed = slurm.run("scontrol", "update", f"JobId={held}", "TimeLimit=5", "Name=other", "StartTime=now")
    assert (changed.returncode, changed.stderr) == (0, "")
    with slurm.cluster.client() as client:
        spec = client.job(held).spec
        assert (spec.name, spec.time_limit_s, client.job(held).job.reason.value) == ("other", 300.0, "held")
    unknown = slurm.run("scontrol", "hold", "99999")
    assert (unknown.returncode, unknown.stderr.splitlines()[0]) == (
        1,
        "Invalid job id specified for job 99999",
    )
    wrong = slurm.run("scontrol", "update", f"jobid={held}", "foo=1")
    assert wrong.stderr == "Update of this parameter is not supported: foo=1\nRequest aborted\n"
    runs = slurm.submit("--wrap", "echo $SLURM_RESTART_COUNT; sleep 600")
    slurm.cluster.await_jobs([runs], JobState.RUNNING)
    assert slurm.run("scontrol", "requeue", str(runs)).returncode == 0
    slurm.cluster.until(lambda: slurm.cluster.jobs()[runs].attempt == 2, "the second attempt")
    assert slurm.run("scancel", "--me", "-t", "RUNNING").returncode == 0
    assert slurm.run("scancel", str(held)).returncode == 0


@pytest.mark.parametrize(
    ("pair", "field", "value"),
    [
        ("MinMemoryNode=300", "memory_mib", 300),
        ("MinMemoryNode=1G", "memory_mib", 1_024),
        ("MinMemoryCPU=200M", "memory_mib", 200),
        ("NumNodes=2", "nodes", 2),
        ("NumTasks=3", "tasks_per_node", 3),
        ("Partition=other", "queue", "other"),
    ],
)
def test_changes_of_sizes(slurm: SlurmFace, pair: str, field: str, value: object) -> None:
    job = slurm.submit("--hold", "--mem=100M", "--wrap", "true")
    done = slurm.run("scontrol", "update", f"JobId={job}", pair)
    assert (done.returncode, done.stderr) == (0, "")
    with slurm.cluster.client() as client:
        assert getattr(client.job(job).spec, field) == value
    assert slurm.run("scancel", str(job)).returncode == 0


def test_changes_that_are_refused(slurm: SlurmFace) -> None:
    job = slurm.submit("--hold", "--wrap", "true")
    wrong = slurm.run("scontrol", "update", f"JobId={job}", "MinMemoryNode=lots")
    assert wrong.returncode == 1
    assert "--mem: 'lots' is not an amount of memory" in wrong.stderr
    nothing = slurm.run("scontrol", "update", "TimeLimit=5")
    assert nothing.stderr.splitlines()[-1] == "No valid entity in update command"
    assert slurm.run("scancel", str(job)).returncode == 0


def test_restart_count_is_set_only_after_a_restart(slurm: SlurmFace) -> None:
    """Scripts test whether the variable exists, to see whether they must resume."""
    job = slurm.submit(
        "-o", "count.txt", "--wrap", 'echo "${SLURM_RESTART_COUNT-unset}"; test -e go || sleep 600'
    )
    count = slurm.place / "count.txt"
    slurm.cluster.until(lambda: count.exists() and count.read_text() == "unset\n", "the first attempt")
    (slurm.place / "go").touch()
    assert slurm.run("scontrol", "requeue", str(job)).returncode == 0
    assert slurm.output(job, "count.txt").splitlines()[-1] == "1"
