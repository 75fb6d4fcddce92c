"""Details on which clients of Slurm depend, beyond the plain output of the commands."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from tests.limits import PATIENCE_S
from wire.names import JobState

BATCH_VARIABLES = """
SLURMD_NODENAME SLURM_CLUSTER_NAME SLURM_CONF SLURM_CPUS_ON_NODE SLURM_GTIDS SLURM_JOBID
SLURM_JOB_ACCOUNT SLURM_JOB_CPUS_PER_NODE SLURM_JOB_GID SLURM_JOB_ID SLURM_JOB_NAME
SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION SLURM_JOB_QOS SLURM_JOB_UID
SLURM_JOB_USER SLURM_LOCALID SLURM_MEM_PER_NODE SLURM_NNODES SLURM_NODEID SLURM_NODELIST
SLURM_PRIO_PROCESS SLURM_PROCID SLURM_SUBMIT_DIR SLURM_SUBMIT_HOST SLURM_TASKS_PER_NODE
SLURM_WORKING_CLUSTER
"""
STEP_VARIABLES = """
SLURM_NTASKS SLURM_NPROCS SLURM_DISTRIBUTION SLURM_STEP_ID SLURM_STEPID SLURM_STEP_NODELIST
SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE SLURM_LAUNCH_NODE_IPADDR
SLURM_UMASK SRUN_DEBUG
"""


def sacct(slurm: SlurmFace, job: int, fields: str) -> str:
    return slurm.run("sacct", "-n", "-X", "-P", "-j", str(job), "-o", fields).stdout.strip()


def test_sacct_and_squeue_know_a_job_at_once(slurm: SlurmFace) -> None:
    """Traps 1 and 2: clients take a job that sacct does not know for COMPLETED, or fail at half a row."""
    for _ in range(3):
        job = slurm.submit("-t", "5", "--mem=200", "--wrap", "true")
        state, limit, memory = sacct(slurm, job, "State,Timelimit,ReqMem").split("|")
        assert state in ("PENDING", "RUNNING", "COMPLETED")
        assert (limit, memory) == ("00:05:00", "200M")
        assert slurm.run("squeue", "-h", "-j", str(job)).returncode == 0


def test_unknown_and_ended_jobs(slurm: SlurmFace) -> None:
    """Traps 5, 6 and 7."""
    job = slurm.submit("--wrap", "exit 3")
    slurm.cluster.await_jobs([job])
    gone = slurm.run("squeue", "-h", "-j", str(job))
    assert (gone.returncode, gone.stdout, gone.stderr) == (0, "", "")
    assert slurm.run("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T").stdout == "FAILED\n"
    two = slurm.run("squeue", "-h", "-j", "88888,99999")
    assert (two.returncode, two.stdout, two.stderr) == (0, "", "")
    for words in (["99999"], [str(job)]):
        done = slurm.run("scancel", *words)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    waits = slurm.submit("--begin=now+1hour", "--wrap", "true")
    assert slurm.run("scancel", str(waits)).returncode == 0
    assert sacct(slurm, waits, "State,ExitCode") == f"CANCELLED by {os.geteuid()}|0:0"
    assert sacct(slurm, job, "State,ExitCode") == "FAILED|3:0"


def test_a_signal_to_a_job_without_steps(slurm: SlurmFace) -> None:
    """Trap 8: TERM reaches only steps, so that the script lives on; KILL ends the job."""
    script = slurm.script("alone.sh", "#!/bin/bash\ntouch up\nwhile :; do sleep .1; done\n")
    job = slurm.submit(script)
    slurm.cluster.until((slurm.place / "up").exists, "the script")
    assert slurm.run("scancel", "--signal=TERM", str(job)).returncode == 0
    assert slurm.run("squeue", "-h", "-j", str(job), "-o", "%T").stdout == "RUNNING\n"
    assert slurm.run("scancel", "--signal=KILL", str(job)).returncode == 0
    slurm.cluster.await_jobs([job], JobState.CANCELLED)


def test_refusals_have_two_lines_and_print_no_id(slurm: SlurmFace) -> None:
    """Traps 9 and 10."""
    done = slurm.run("sbatch", "--mem=900T", "--wrap", "true")
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("sbatch: error: ") for line in lines)
    assert "Batch job submission failed: " in lines[1]
    good = slurm.run("sbatch", "--wrap", "true")
    assert re.fullmatch(r"Submitted batch job \d+\n", good.stdout)


@pytest.mark.parametrize(
    ("text", "limit"),
    [("3", "00:03:00"), ("0:2:0", "00:02:00"), ("0:180", "00:03:00"), ("1-02:03:04", "1-02:04:00")],
)
def test_forms_of_times(slurm: SlurmFace, text: str, limit: str) -> None:
    """Trap 12: toil writes 0:180, aiida 00:02:00. A limit is shown in whole minutes."""
    job = slurm.submit("--begin=now+1hour", "-t", text, "--wrap", "true")
    assert sacct(slurm, job, "Timelimit") == limit
    slurm.run("scancel", str(job))


@pytest.mark.parametrize(
    ("text", "memory"), [("307MB", "307M"), ("382M", "382M"), ("200", "200M"), ("1g", "1G")]
)
def test_forms_of_memory(slurm: SlurmFace, text: str, memory: str) -> None:
    """Trap 12; and trap 13: the variable SBATCH_MEM_PER_NODE is an option, too."""
    job = slurm.submit("--begin=now+1hour", f"--mem={text}", "--wrap", "true")
    other = slurm.submit("--begin=now+1hour", "--wrap", "true", SBATCH_MEM_PER_NODE=text)
    assert [sacct(slurm, each, "ReqMem") for each in (job, other)] == [memory, memory]
    slurm.run("scancel", str(job), str(other))


def test_waiting_elements_of_an_array_are_one_line(slurm: SlurmFace) -> None:
    """Traps 3 and 14."""
    job = slurm.submit("--begin=now+1hour", "--array=0-3%2", "--wrap", "true")
    assert slurm.run("squeue", "--me", "-h", "-j", str(job), "-o", "%i").stdout == f"{job}_[0-3%2]\n"
    rows = slurm.run("squeue", "--me", "-h", "-r", "-j", str(job), "-o", "%i").stdout.split()
    assert sorted(rows) == [f"{job}_{index}" for index in range(4)]
    assert sacct(slurm, job, "JobID") == f"{job}_[0-3%2]"
    slurm.run("scancel", str(job))


def test_variables_of_the_script_and_of_steps(slurm: SlurmFace) -> None:
    """Traps 15 and 17: the names that a real Slurm sets, and the environment of the submitter."""
    job = slurm.submit("--mem=200", "--wrap", "env; echo ====; srun -n1 env", MINE="two words")
    batch, step = slurm.output(job).split("====\n")
    names = {line.partition("=")[0] for line in batch.splitlines()}
    assert set(BATCH_VARIABLES.split()) - names == set()
    assert "SLURM_NTASKS" not in names, "the user has named no number of tasks"
    found = dict(line.partition("=")[::2] for line in step.splitlines())
    assert set(STEP_VARIABLES.split()) - found.keys() == set()
    assert found["MINE"] == "two words"


def test_options_that_clients_always_write(slurm: SlurmFace) -> None:
    """Trap 18: the script of submitit, with quoted values."""
    script = slurm.script(
        "submitit.sh",
        "#!/bin/bash\n#SBATCH --comment='by submitit'\n#SBATCH --wckey=submitit\n#SBATCH --open-mode=append\n"
        "#SBATCH --signal=USR2@90\n#SBATCH --ntasks-per-node=1\n#SBATCH --job-name='a name'\n"
        "srun --unbuffered --output log_%j_%t.out --error log_%j_%t.err echo done\n",
    )
    job = slurm.submit(script)
    slurm.output(job)
    assert (slurm.place / f"log_{job}_0.out").read_text() == "done\n"
    assert sacct(slurm, job, "JobName,Comment") == "a name|by submitit"


def test_jobs_are_found_by_name_on_all_clusters(slurm: SlurmFace) -> None:
    """Trap 23: snakemake gives its jobs one name, and asks for all of them."""
    jobs = [slurm.submit("-J", "one-uuid", "--comment=rule_a", "--wrap", "true") for _ in range(2)]
    slurm.cluster.await_jobs(jobs)
    words = ["sacct", "-X", "-P", "-n", "--name", "one-uuid", "--starttime", "now-2days", "--endtime", "now"]
    done = slurm.run(*words, "--clusters", "all", "--format=JobIdRaw,State")
    assert done.stdout.splitlines() == [f"{job}|COMPLETED" for job in jobs]


def test_a_login_shell_finds_the_commands_of_a_system_directory(slurm: SlurmFace) -> None:
    """Trap 16: a login shell resets PATH. The commands must not need anything else of the environment."""
    where = slurm.environment["PATH"].partition(":")[0]
    job = slurm.submit("--wrap", f"env -i CORRAL_URL=$CORRAL_URL {where}/squeue -h -j $SLURM_JOB_ID -o %T")
    assert slurm.output(job) == "RUNNING\n"


def test_versions(slurm: SlurmFace) -> None:
    """Trap 20: the second word is the version."""
    for name in (
        "sinfo",
        "sbatch",
        "srun",
        "squeue",
        "sacct",
        "scancel",
        "scontrol",
        "salloc",
        "sprio",
        "sbcast",
    ):
        assert slurm.run(name, "-V").stdout == "slurm-wlm 22.05.8\n"


def test_patterns_of_output_files(slurm: SlurmFace) -> None:
    """Trap 11: the files are relative to --chdir, and %a outside of an array is 4294967294."""
    (slurm.place / "there").mkdir()
    array = slurm.submit(
        "-D", "there", "-J", "name", "-a", "3", "-o", "%A_%a-%x-%u-%n-%t-%N", "--wrap", "true"
    )
    user = slurm.run("id", "-un").stdout.strip()
    slurm.cluster.await_jobs([array])
    [file] = (slurm.place / "there").iterdir()
    assert re.fullmatch(rf"{array}_3-name-{user}-0-0-n[12]", file.name)
    file.unlink()
    steps = "srun -N2 -n2 -o %j-%J-%s-%t-%n-%N-%a true"
    job = slurm.submit("-D", "there", "-N2", "-o", "%j-%J-%a", "--wrap", steps)
    slurm.cluster.await_jobs([job])
    assert sorted(each.name for each in (slurm.place / "there").iterdir()) == sorted(
        [
            f"{job}-{job}-4294967294",
            f"{job}-{job}.0-0-0-0-n1-4294967294",
            f"{job}-{job}.0-0-1-1-n2-4294967294",
        ]
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_srun_outside_of_a_job_takes_its_job_along(slurm: SlurmFace, number: signal.Signals) -> None:
    """Trap 24: clients end by Ctrl-C or SIGTERM, and their jobs must not stay. A shell ignores SIGINT for
    processes in the background; the process of the test does not."""
    with subprocess.Popen(
        ["srun", "-J", "outside", "sh", "-c", "touch up; exec sleep 600"],
        cwd=slurm.place,
        env=slurm.environment,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as srun:
        slurm.cluster.until((slurm.place / "up").exists, "the task")
        srun.send_signal(number)
        assert srun.wait(PATIENCE_S) != 0
    left = ["squeue", "-h", "--me", "-n", "outside", "-o", "%T"]
    slurm.cluster.until(lambda: slurm.run(*left).stdout == "", "the job of srun has ended")


def test_submits_at_the_same_time(slurm: SlurmFace) -> None:
    """Trap 25: scripts of one user run at the same time, and some count all jobs of the user."""
    words = ["sbatch", "--parsable", "--begin=now+1hour", "--wrap", "true"]
    running = [
        subprocess.Popen(words, cwd=slurm.place, env=slurm.environment, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    ids = [each.communicate(timeout=PATIENCE_S)[0].strip() for each in running]
    array = slurm.submit("--begin=now+1hour", "-a", "0-2", "--wrap", "true")
    user = slurm.run("id", "-un").stdout.strip()
    listed = slurm.run("squeue", "-h", "-u", user, "-t", "PD", "-o", "%A").stdout.split()
    assert len(set(ids)) == 8
    assert set(ids) <= set(listed)
    assert slurm.run("squeue", "-h", "-r", "-u", user, "-t", "PD").stdout.count("\n") == len(listed) - 1 + 3
    assert slurm.run("scancel", *ids, str(array)).returncode == 0


def test_a_daemon_that_a_job_has_left_ends_with_the_job(slurm: SlurmFace) -> None:
    """Trap 26: myqueue leaves a daemon behind."""
    daemon = "setsid sh -c 'echo $$ > pid; exec sleep 600' > /dev/null 2>&1 < /dev/null &"
    job = slurm.submit("--wrap", f"{daemon} while [ ! -s pid ]; do sleep .05; done")
    slurm.cluster.await_jobs([job], JobState.COMPLETED)
    pid = int((slurm.place / "pid").read_text())
    slurm.cluster.until(lambda: not os.path.exists(f"/proc/{pid}"), "the daemon has ended")
