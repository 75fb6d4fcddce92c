"""Words that careless and hostile users write: no command crashes, and each error says what to do next."""

from __future__ import annotations

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from wire.names import JobState

NAME = "first\n999 root\x1b[31m"
HUGE = "9" * 20
NOT_HERE = "This controller has the cluster 'corral'; choose another controller with CORRAL_URL."


def test_names_of_jobs_add_no_lines_and_no_escape_codes(slurm: SlurmFace) -> None:
    """A user names a job so that the list of another user shows a second job, or changes the terminal."""
    job = str(slurm.submit("--hold", "-J", NAME, "--wrap", "true"))
    for words in (
        ["squeue", "-h", "-j", job, "-o", "%j"],
        ["squeue", "-h", "-j", job, "-O", "name:40"],
        ["sacct", "-n", "-X", "-P", "-j", job, "-o", "JobName"],
        ["sacct", "-n", "-X", "-j", job, "-o", "JobName%40"],
        ["scontrol", "-o", "show", "job", job],
    ):
        printed = slurm.run(*words).stdout
        assert printed.count("\n") == 1, words
        assert "first\ufffd999 root\ufffd[31m" in printed, words
    assert slurm.run("scancel", job).returncode == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["scancel", "8_[0-99999999999]"], "Invalid job id 8_[0-99999999999]: cannot read '0-99999999999'"),
        (["scancel", "8_[3-1]"], "Invalid job id 8_[3-1]: '3-1' counts backwards"),
        (["scancel", "0"], "Invalid job id 0"),
        (["scancel", "8.x"], "Invalid job id 8.x"),
        (["scancel", "-w", "n[1-"], "'n[1-' is not a list of hosts; write gpu[01-16]"),
        (["scancel", "-M", "other", "8"], NOT_HERE),
        (["squeue", "-M", "other"], NOT_HERE),
        (["squeue", "-w", "n[1-"], "'n[1-' is not a list of hosts"),
        (
            ["squeue", "-w", "n1,nowhere"],
            "'sinfo -N' lists the nodes\nsqueue: error: Invalid node name nowhere",
        ),
        (
            ["squeue", "-i", HUGE],
            f"Write a number of seconds, such as -i 10\nsqueue: error: --iterate={HUGE}",
        ),
        (["squeue", "-S", "i,nope"], "Invalid sort specification: nope; write letters of --format"),
        (["squeue", "-j", ","], "Invalid job id: ,"),
        (["sacct", "-X", "-N", "n["], "'n[' is not a list of hosts"),
        (["sacct", "-X", "-g", "nogroup-here"], "Invalid group id: nogroup-here"),
        (["sacct", "8"], "Unrecognized word: 8; write -j 8 for a job"),
        (["sinfo", "-n", "n[1-"], "'n[1-' is not a list of hosts"),
        (["sinfo", "-M", "other"], NOT_HERE),
        (["scontrol", "-M", "other", "show", "node"], NOT_HERE),
        (
            ["scontrol", "update", "JobId=8", f"TimeLimit={HUGE}"],
            "--time: 5999999999999999999940 is too large",
        ),
        (["scontrol", "update", "JobId=8", f"NumNodes={HUGE}"], "is not a whole number above zero; write 2"),
        (["scontrol", "suspend", "8"], "Corral has no 'scontrol suspend'. Corral does not suspend jobs."),
        (["srun", "--multi-prog", "ranks.conf"], "ranks.conf: cannot read 'x'; write indices like 0-9"),
        (["srun", "--multi-prog", "missing.conf"], "missing.conf: No such file or directory\n"),
        (["srun", "-o", "%99999j", "true"], "'%99999j' has %9, which is no pattern; write %j, %J"),
        (["sbatch", "/dev/zero"], "This does not look like a batch script."),
        (["sbatch", "latin.sh"], "Batch script is not UTF-8 text in line 2"),
        (["sbatch", "long.sh"], "Batch script has more than 131,069 bytes"),
        (
            ["sbatch", "missing.sh"],
            "missing.sh: No such file or directory\nsbatch: error: Unable to open file missing.sh",
        ),
    ],
)
def test_errors(slurm: SlurmFace, words: list[str], sentence: str) -> None:
    (slurm.place / "latin.sh").write_bytes(b"#!/bin/sh\n# caf\xe9\n")
    (slurm.place / "ranks.conf").write_text("x true\n")
    (slurm.place / "long.sh").write_text("#!/bin/sh\n" + "#" * 200_000)
    done = slurm.run(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["squeue", "-h", "-o", "%99999999999999i"],
        ["squeue", "-h", "-O", "jobid:99999999999999"],
        ["sacct", "-n", "-X", "-o", "jobid%-99999999999999"],
        ["sinfo", "-h", "-o", "%99999999999999N"],
    ],
)
def test_greatest_width_of_a_column(slurm: SlurmFace, words: list[str]) -> None:
    job = slurm.submit("--hold", "--wrap", "true")
    done = slurm.run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) in (65_536, 65_537)
    assert slurm.run("scancel", str(job)).returncode == 0


def test_a_pipe_is_a_script(slurm: SlurmFace) -> None:
    """Process substitution, <(…), names a pipe."""
    done = slurm.run("bash", "-c", "sbatch --parsable <(printf '#!/bin/sh\\necho piped\\n')")
    job = int(done.stdout)
    assert slurm.output(job) == "piped\n"
    assert slurm.cluster.jobs()[job].state is JobState.COMPLETED


def test_tasks_without_cpus_are_refused(slurm: SlurmFace) -> None:
    script = """#!/bin/sh
srun -n 3 true; echo $?
srun -n 1 -c 3 true; echo $?
srun -n 99999999999 true; echo $?
srun -n 3 --overcommit sh -c 'exit 5'; echo $?
srun true; echo $?
"""
    job = slurm.submit("-n", "2", "-o", "codes.txt", "-e", "errors.txt", slurm.script("job.sh", script))
    assert slurm.output(job, "codes.txt").split() == ["1", "1", "1", "5", "0"]
    errors = (slurm.place / "errors.txt").read_text()
    assert errors.count("Unable to create step for job: More processors requested than permitted") == 3
    assert "the step needs 3 CPUs, and the job has 2 on 1 nodes; write fewer tasks, or --overcommit" in errors


def test_no_controller_says_what_to_do(slurm: SlurmFace) -> None:
    done = slurm.run("squeue", CORRAL_URL="unix:///etc/passwd")
    assert done.returncode == 1
    assert "no process listens there. Start one with 'corral controller'" in done.stderr
