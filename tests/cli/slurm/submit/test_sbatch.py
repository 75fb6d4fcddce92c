"""sbatch against a running Corral: outputs, exit codes and files as those of Slurm."""

from __future__ import annotations

import time

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from wire.cluster.reservation import ReservationSpec
from wire.names import JobState


def test_prints_the_id_and_runs_the_script_where_it_was_submitted(slurm: SlurmFace) -> None:
    script = slurm.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -J from-script -t 5 -n 3 -N 2\n#SBATCH --comment='two words'\n"
        'pwd; echo "$1 $SLURM_JOB_NAME $SLURM_NTASKS $SLURM_TASKS_PER_NODE $SLURM_JOB_NODELIST $COLOUR"\n'
        "echo $SLURM_SUBMIT_DIR $SLURM_JOB_PARTITION >&2\n",
    )
    done = slurm.run("sbatch", "-p", "debug", script, "a b", SBATCH_JOB_NAME="mine", COLOUR="red")
    assert done.stderr == ""
    said, _, job = done.stdout.strip().rpartition(" ")
    assert said == "Submitted batch job"
    # An edit of the file after sbatch has no effect.
    slurm.script("job.sh", "#!/bin/bash\necho changed\n")
    assert slurm.output(int(job)).splitlines() == [
        str(slurm.place),
        "a b mine 3 2,1 n[1-2] red",
        f"{slurm.place} debug",
    ]


def test_array_from_stdin(slurm: SlurmFace) -> None:
    text = "#!/bin/bash\necho $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_STEP\n"
    done = slurm.run("sbatch", "--parsable", "--array=2-8:3%2", "--wait", stdin=text)
    array = int(done.stdout)
    for index in (2, 5, 8):
        assert (slurm.place / f"slurm-{array}_{index}.out").read_text() == f"{array} {index} 3\n"


@pytest.mark.parametrize(
    ("text", "step"), [("0,2,8-10:2", "2"), ("1-3,7", "1"), ("4", "1"), ("1-9:4,20%1", "4")]
)
def test_step_of_the_indices_is_the_first_one_in_the_list(slurm: SlurmFace, text: str, step: str) -> None:
    done = slurm.run(
        *("sbatch", "-W", "-a", text, "-o", "steps", "--open-mode=append"),
        *("--wrap", "echo $SLURM_ARRAY_TASK_STEP"),
    )
    assert (done.returncode, set((slurm.place / "steps").read_text().split())) == (0, {step})


def test_bash_reports_the_signal_that_ended_the_last_command(slurm: SlurmFace) -> None:
    """bash -c TEXT would replace itself by the last command. The job would then end by the signal itself."""
    text = "#!/bin/bash\n#SBATCH -o last.txt\necho begins\nbash -c 'kill -SEGV $$'"
    job = slurm.submit(slurm.script("last.sh", text))
    slurm.cluster.await_jobs([job])
    printed = (slurm.place / "last.txt").read_text()
    assert printed.startswith("begins\nlast.sh: line 4:")
    assert "Segmentation fault" in printed
    shown = slurm.run("sacct", "-j", str(job), "-nP", "-o", "JobName,State,ExitCode").stdout
    # 139 - 128, as in Slurm's sacct
    assert shown == "last.sh|FAILED|11:0\nbatch|FAILED|11:0\n"
    assert "ExitCode=139:0" in slurm.run("scontrol", "show", "job", str(job)).stdout
    assert slurm.run("squeue", "-h", "-t", "all", "-j", str(job), "-O", "exit_code:9").stdout == "35584    \n"
    assert slurm.run("scontrol", "write", "batch_script", str(job), "-").stdout == text


def test_requested_memory_and_disk_are_shown(slurm: SlurmFace) -> None:
    job = str(slurm.submit("-H", "--mem-per-cpu=300M", "-c", "2", "--tmp=100", "--wrap", "true"))
    assert slurm.run("squeue", "-h", "-j", job, "-o", "%m %d %C").stdout == "300M 100M 2\n"
    assert "MinMemoryCPU=300M MinTmpDiskNode=100M" in slurm.run("scontrol", "show", "job", job).stdout
    slurm.run("scancel", job)
    job = str(slurm.submit("-H", "--mem=300M", "-c", "2", "--wrap", "true"))
    assert slurm.run("squeue", "-h", "-j", job, "-o", "%m %d %C").stdout == "300M 0 2\n"
    assert "MinMemoryNode=300M MinTmpDiskNode=0" in slurm.run("scontrol", "show", "job", job).stdout
    slurm.run("scancel", job)


def test_wrapped_command_and_its_exit_code(slurm: SlurmFace) -> None:
    done = slurm.run(
        "sbatch", "-W", "-o", "out-%x-%a-%J", "-e", "err-%u", "--wrap", "echo x; echo y >&2; exit 3"
    )
    assert done.returncode == 3
    job = done.stdout.split()[-1]
    assert (slurm.place / f"out-wrap-4294967294-{job}").read_text() == "x\n"
    assert next(slurm.place.glob("err-*")).read_text() == "y\n"


def test_tasks_are_counted_only_if_the_user_has_counted_them(slurm: SlurmFace) -> None:
    one = slurm.submit("--wrap", 'echo "${SLURM_NTASKS-unset} ${SLURM_STEP_ID-unset} $SLURM_JOB_QOS"')
    two = slurm.submit("-n1", "--export=NONE", "--wrap", 'echo "$SLURM_NTASKS ${COLOUR-unset}"', COLOUR="red")
    assert slurm.output(one) == "unset unset normal\n"
    assert slurm.output(two) == "1 unset\n"


def test_script_for_another_interpreter(slurm: SlurmFace) -> None:
    script = slurm.script("sum.awk", "#!/usr/bin/awk -f\nBEGIN { print ARGV[1] + ARGV[2] }\n")
    assert slurm.output(slurm.submit(script, "3", "4")) == "7\n"


def test_missing_folder_of_the_output_is_made(slurm: SlurmFace) -> None:
    """submitit makes the folder after sbatch has answered, and the job may run already."""
    job = slurm.submit("-o", "logs/%j/out", "--wrap", "echo here")
    assert slurm.output(job, "logs/{}/out") == "here\n"


def test_singleton_waits_for_jobs_of_the_same_name(slurm: SlurmFace) -> None:
    first = slurm.submit("-J", "alone", "--hold", "--wrap", "true")
    second = slurm.submit("-J", "alone", "-d", "singleton", "--wrap", "true")
    with slurm.cluster.client() as client:
        assert [each.job for each in client.job(second).spec.after] == [str(first)]
    assert slurm.run("scancel", "--name=alone", "--me").returncode == 0
    slurm.cluster.await_jobs([first, second], JobState.CANCELLED)


@pytest.mark.parametrize(
    ("words", "code", "lines"),
    [
        (["x.sh"], 1, ["x.sh: No such file or directory", "Unable to open file x.sh"]),
        (["--wrap", "true", "x"], 1, ["Script arguments not permitted with --wrap option"]),
        (
            ["-N", "99", "--wrap", "true"],
            1,
            [
                "can never be placed",
                "Batch job submission failed: Requested node configuration is not available",
            ],
        ),
        (
            ["-d", "afterok:99999", "--wrap", "true"],
            1,
            ["after: there is no job 99999", "Batch job submission failed: Job dependency problem"],
        ),
        (
            ["--reservation=unknown", "--wrap", "true"],
            1,
            [
                "there is no reservation 'unknown': scontrol show reservation lists them",
                "Batch job submission failed: Requested reservation is invalid",
            ],
        ),
        (
            ["--mem=x", "-t", "soon", "--input=f", "--wrap", "true"],
            255,
            [
                "Invalid --time specification: 'soon'",
                "command line: Corral has no counterpart for #SBATCH --input. Redirect it",
                "Invalid --mem specification: 'x'",
            ],
        ),
    ],
)
def test_refusals(slurm: SlurmFace, words: list[str], code: int, lines: list[str]) -> None:
    done = slurm.run("sbatch", *words)
    assert (done.returncode, done.stdout) == (code, "")
    said = done.stderr.splitlines()
    assert sorted(said) == sorted(
        next(each for each in said if each.startswith(f"sbatch: error: {line}")) for line in lines
    ), done.stderr


def test_job_waits_for_the_known_reservation_that_it_names(slurm: SlurmFace) -> None:
    with slurm.cluster.client() as client:
        client.reserve(ReservationSpec("course", time.time() + 86_400, 3_600.0, count=1, users=("ada",)))
        done = slurm.run("sbatch", "--reservation=course", "--parsable", "--wrap", "true")
        assert (done.returncode, done.stderr) == (0, "")
        job = done.stdout.strip()
        assert "\n   Reservation=course\n" in slurm.run("scontrol", "show", "job", job).stdout
        row = ("-h", "-o", "%v", "-j", job)
        assert slurm.run("squeue", *row).stdout == "course\n"
        assert slurm.run("squeue", *row, "-R", "course").stdout == "course\n"
        assert slurm.run("squeue", *row, "-R", "other").stdout == ""
        sacct = slurm.run("sacct", "-n", "-P", "-X", "-o", "Reservation", "-j", job)
        assert sacct.stdout == "course\n"
        refused = slurm.run("scontrol", "update", f"JobId={job}", "ReservationName=unknown")
        assert "Requested reservation is invalid" in refused.stderr
        assert slurm.run("scancel", "-R", "other").returncode == 0
        assert slurm.run("squeue", *row).stdout == "course\n"
        assert slurm.run("scancel", "-R", "course").returncode == 0
        assert slurm.run("squeue", "-h", "-t", "pending", "-R", "course").stdout == ""
        client.cancel_reservation("course")


@pytest.mark.parametrize(
    ("program", "words"),
    [("salloc", "Job submit/allocate failed"), ("srun", "Unable to allocate resources")],
)
def test_allocation_in_an_unknown_reservation_is_refused(slurm: SlurmFace, program: str, words: str) -> None:
    done = slurm.run(program, "--reservation=unknown", "true")
    assert done.returncode == 1
    assert done.stderr.endswith(f"{program}: error: {words}: Requested reservation is invalid\n")


def test_script_without_interpreter(slurm: SlurmFace) -> None:
    done = slurm.run("sbatch", stdin="echo hello\n")
    assert done.returncode == 1
    assert done.stderr.startswith("sbatch: error: This does not look like a batch script.  The first\n")


def test_test_only_submits_nothing(slurm: SlurmFace) -> None:
    before = len(slurm.cluster.jobs())
    done = slurm.run("sbatch", "--test-only", "-N2", "-n4", "--wrap", "true")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.endswith("using 4 processors on nodes n[1-2] in partition default\n")
    assert len(slurm.cluster.jobs()) == before


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ["-N", "99"],
            ["can never be placed", "allocation failure: Requested node configuration is not available"],
        ),
        (
            ["-d", "afterok:99999"],
            ["after: there is no job 99999", "allocation failure: Job dependency problem"],
        ),
        (
            ["--reservation=unknown"],
            ["there is no reservation 'unknown'", "allocation failure: Requested reservation is invalid"],
        ),
        (["-t", "soon"], ["Invalid --time specification: 'soon'"]),
    ],
)
def test_test_only_refuses_what_sbatch_refuses(slurm: SlurmFace, words: list[str], lines: list[str]) -> None:
    done = slurm.run("sbatch", "--test-only", *words, "--wrap", "true")
    said = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1 if len(lines) > 1 else 255, "")
    assert len(said) == len(lines)
    assert said[0].startswith(f"sbatch: error: {lines[0]}")
    assert said[1:] == lines[1:]


def test_no_controller(slurm: SlurmFace) -> None:
    done = slurm.run("sbatch", "--wrap", "true", CORRAL_URL=f"unix://{slurm.place}/none.sock")
    assert done.returncode == 1
    first = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
    assert done.stderr.splitlines()[0] == first
