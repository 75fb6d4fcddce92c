"""scontrol's changes of jobs against a running Corral."""

from __future__ import annotations

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from wire.job.spec import JobSpec
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


def test_orders_for_ended_and_unknown_jobs_fail_as_in_slurm(slurm: SlurmFace) -> None:
    """The outputs were compared with those of a real Slurm. Two cases differ: Slurm requeues an ended job,
    and names a whole array as `3_0-1`.
    """
    ended, array = slurm.submit("--wrap", "true"), slurm.submit("--array=0-1", "--wrap", "true")
    waits = slurm.submit("--begin=now+1hour", "--wrap", "true")
    slurm.cluster.await_jobs([ended, array, array + 1])
    finished, unknown = "Job has already finished", "Invalid job id specified"
    for verb in ("hold", "release", "uhold", "requeue", "requeuehold"):
        for job, reason in ((ended, finished), (99_999, unknown)):
            done = slurm.run("scontrol", verb, str(job))
            second = f"slurm_suspend error: {reason}\n" if "requeue" not in verb else ""
            assert (done.returncode, done.stderr) == (1, f"{reason} for job {job}\n{second}"), verb
        done = slurm.run("scontrol", verb, f"{array}_0")
        assert (done.returncode, done.stderr) == (1, f"{array}_0: {finished}\n"), verb
    for change in ("TimeLimit=10", "TimeLimit=+5", "Nice=5", "Comment=c", "Partition=nope"):
        for job, reason in ((ended, finished), (99_999, unknown)):
            done = slurm.run("scontrol", "update", f"JobId={job}", change)
            assert (done.returncode, done.stderr) == (1, f"{reason} for job {job}\n"), change
    done = slurm.run("scontrol", "hold", f"{waits},{ended}")
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, f"{finished} for job {ended}")
    done = slurm.run("scontrol", "requeue", str(waits))
    assert (done.returncode, done.stderr) == (1, f"Job is pending execution for job {waits}\n")
    assert slurm.run("scancel", str(waits)).returncode == 0


def test_a_job_with_no_requeue_is_not_requeued(slurm: SlurmFace) -> None:
    """A script that requeues itself would otherwise run for ever."""
    job = slurm.submit("--no-requeue", "--wrap", "sleep 600")
    slurm.cluster.await_jobs([job], JobState.RUNNING)
    for verb in ("requeue", "requeuehold"):
        refused = slurm.run("scontrol", verb, str(job))
        said = f"Requested operation is presently disabled for job {job}\n"
        assert (refused.returncode, refused.stderr) == (1, said)
    assert slurm.cluster.jobs()[job].attempt == 1
    assert slurm.run("scancel", str(job)).returncode == 0


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


def test_the_script_of_a_job_is_written(slurm: SlurmFace) -> None:
    text = "#!/bin/bash\n#SBATCH --hold\necho one\n"
    job = slurm.submit(slurm.script("job.sh", text))
    assert slurm.run("scontrol", "write", "batch_script", str(job), "-").stdout == text
    done = slurm.run("scontrol", "write", "batch_script", str(job))
    assert done.stdout == f"batch script for job {job} written to slurm-{job}.sh\n"
    assert (slurm.place / f"slurm-{job}.sh").read_text() == text
    python = slurm.submit(slurm.script("job.py", "#!/usr/bin/env python3\n#SBATCH --hold\nprint(1)\n"))
    assert "print(1)" in slurm.run("scontrol", "write", "batch_script", str(python), "-").stdout
    unknown = slurm.run("scontrol", "write", "batch_script", "99999")
    assert (unknown.returncode, unknown.stderr) == (
        *(1, "job script retrieval failed: Invalid job id specified\n"),
    )
    with slurm.cluster.client() as client:
        other = client.submit(JobSpec(("true",), hold=True)).ids[0]
    none = slurm.run("scontrol", "write", "batch_script", str(other))
    assert (none.returncode, none.stderr.splitlines()[-1]) == (
        1,
        f"job {other} has no batch script, or is a job of another user",
    )
    assert slurm.run("scancel", str(job), str(python), str(other)).returncode == 0


def test_a_time_limit_grows_and_shrinks(slurm: SlurmFace) -> None:
    job = slurm.submit("--hold", "-t", "10", "--wrap", "true")
    for change, limit in (("+10", "20:00"), ("-5", "15:00"), ("+1-00:00:00", "1-00:15:00")):
        done = slurm.run("scontrol", "update", f"jobid={job}", f"timelimit={change}")
        assert (done.returncode, done.stderr) == (0, "")
        assert slurm.run("squeue", "-h", "-j", str(job), "-o", "%l").stdout.strip() == limit
    much = slurm.run("scontrol", "update", f"jobid={job}", "timelimit=-2-00:00:00")
    assert (much.returncode, much.stderr.startswith("Requested time limit is invalid")) == (1, True)
    wrong = slurm.run("scontrol", "update", f"jobid={job}", "timelimit=+x")
    assert (wrong.returncode, "'x' is not a time" in wrong.stderr) == (1, True)
    assert slurm.run("scancel", str(job)).returncode == 0


def test_nodes_are_drained_and_resumed(slurm: SlurmFace) -> None:
    def states() -> str:
        return slurm.run("sinfo", "-h", "-N", "-p", "default", "-o", "%N %t %E").stdout

    reason = slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN")
    assert (reason.returncode, reason.stderr.splitlines()[0]) == (
        *(1, "You must specify a reason when DOWNING or DRAINING a node. Request denied"),
    )
    assert slurm.run("scontrol", "update", "NodeName=n[1-2]", "State=DRAIN", "Reason=bad fan").returncode == 0
    assert states() == "n1 drain bad fan\nn2 drain bad fan\n"
    for _ in range(2):
        done = slurm.run("scontrol", "update", "NodeName=n[1-2]", "State=RESUME")
        assert (done.returncode, done.stderr) == (0, "")
    assert states() == "n1 idle none\nn2 idle none\n"
    unknown = slurm.run("scontrol", "update", "NodeName=nope", "State=drain", "Reason=x")
    assert (unknown.returncode, unknown.stderr) == (1, "slurm_update error: Invalid node name specified\n")
    down = slurm.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=x")
    assert (down.returncode, "corral nodes lost NODE" in down.stderr) == (1, True)


def test_forms_of_show_job(slurm: SlurmFace) -> None:
    job = slurm.submit("--hold", "-a", "0-1", "--wrap", "true")
    for words in ([f"jobid={job}"], [f"Job={job}"], ["jobid", str(job)]):
        assert f"JobId={job} ArrayJobId={job} " in slurm.run("scontrol", "show", *words).stdout
    missing = slurm.run("scontrol", "show", "job", f"{job}_7")
    assert (missing.returncode, missing.stdout) == (1, f"Job {job}_7 not found\n")
    assert slurm.run("scancel", str(job)).returncode == 0


@pytest.mark.parametrize(
    ("name", "interpreter", "shown"),
    [("job.sh", "/bin/bash", "job.sh"), ("job.pl", "/usr/bin/perl", "job.pl"), ("wrap", "/bin/sh", "(null)")],
)
def test_the_name_of_the_script_is_shown(slurm: SlurmFace, name: str, interpreter: str, shown: str) -> None:
    job = str(slurm.submit("--hold", slurm.script(name, f"#!{interpreter}\n"), "argument"))
    assert f"   Command={shown}\n" in slurm.run("scontrol", "show", "job", job).stdout
    assert slurm.run("squeue", "-h", "-j", job, "-o", "%o").stdout == f"{shown}\n"
    assert slurm.run("scancel", job).returncode == 0
