"""scancel against a running Corral: which jobs it ends, its output and its exit codes."""

from __future__ import annotations

from tests.cli.slurm.submit.conftest import SlurmFace
from wire.names import JobState


def test_scancel_of_unknown_and_ended_jobs(slurm: SlurmFace) -> None:
    job = slurm.submit("-W", "--wrap", "true")
    for words in (["99999"], [str(job)]):
        done = slurm.run("scancel", *words)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = slurm.run("scancel", "--signal=USR1", "--state=RUNNING", "99999")
    assert done.returncode == 1
    assert done.stderr == "scancel: error: Kill job error on job id 99999: Invalid job id specified\n"
    assert slurm.run("scancel").stderr == "scancel: error: No job identification provided\n"
    assert slurm.run("scancel", "7x").stderr == "scancel: error: Invalid job id 7x\n"


def test_scancel_of_elements_and_by_state(slurm: SlurmFace) -> None:
    array = slurm.submit("-a", "1-4", "--hold", "--wrap", "sleep 100")
    assert slurm.run("scancel", f"{array}_[1-2]").returncode == 0
    jobs = slurm.cluster.jobs()
    states = {job.index: job.state for job in jobs.values() if job.array == array}
    assert states == {1: "CANCELLED", 2: "CANCELLED", 3: "QUEUED", 4: "QUEUED"}
    done = slurm.run("scancel", "-v", "-t", "PENDING", str(array))
    assert done.stderr == f"scancel: Terminating job {array}_3\nscancel: Terminating job {array}_4\n"
    assert not [job for job in slurm.cluster.jobs().values() if not job.state.terminal]


def test_signal_reaches_the_batch_script_only_if_wanted(slurm: SlurmFace) -> None:
    script = slurm.script(
        "trap.sh", "#!/bin/bash\ntrap 'echo told; exit 5' TERM\ntouch up\nwhile :; do sleep .1; done\n"
    )
    job = slurm.submit(script)
    slurm.cluster.until((slurm.place / "up").exists, "the script runs")
    # The script is no step, so this signal goes nowhere, as in Slurm.
    assert slurm.run("scancel", "--signal=TERM", str(job)).returncode == 0
    other = slurm.submit("-W", "--wrap", "true")
    assert slurm.cluster.jobs()[other].state is JobState.COMPLETED
    assert slurm.cluster.jobs()[job].state is JobState.RUNNING
    assert slurm.run("scancel", "-b", "--signal=TERM", str(job)).returncode == 0
    assert slurm.output(job) == "told\n"
    assert slurm.cluster.jobs()[job].exit_code == 5


def test_range_with_a_gap(slurm: SlurmFace) -> None:
    """The array has no element 7. scancel ends the others of the range and says nothing about 7."""
    array = slurm.submit("-a", "2,6,8", "--hold", "--wrap", "sleep 100")
    done = slurm.run("scancel", f"{array}_[6-8]")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    states = {job.index: job.state for job in slurm.cluster.jobs().values() if job.array == array}
    assert states == {2: "QUEUED", 6: "CANCELLED", 8: "CANCELLED"}
    assert slurm.run("scancel", f"{array}_[3-5]").returncode == 0
    assert slurm.run("scancel", str(array)).returncode == 0


def test_state_leaves_out_a_named_job_without_an_error(slurm: SlurmFace) -> None:
    waits = slurm.submit("--hold", "--wrap", "true")
    done = slurm.run("scancel", "-t", "RUNNING", str(waits))
    assert (done.returncode, done.stderr) == (0, "")
    assert slurm.cluster.jobs()[waits].state is JobState.QUEUED
    unknown = slurm.run("scancel", "-t", "PENDING", str(waits), "99999")
    assert unknown.returncode == 1
    assert unknown.stderr == "scancel: error: Kill job error on job id 99999: Invalid job id specified\n"
    assert slurm.cluster.jobs()[waits].state is JobState.CANCELLED


def test_empty_word_is_no_job(slurm: SlurmFace) -> None:
    """A script with an empty variable, as in `scancel "$JOB"`, must not cancel all jobs."""
    waits = slurm.submit("--hold", "--wrap", "true")
    done = slurm.run("scancel", "")
    assert (done.returncode, done.stderr) == (1, "scancel: error: Invalid job id \n")
    assert slurm.cluster.jobs()[waits].state is JobState.QUEUED
    assert slurm.run("scancel", str(waits)).returncode == 0
