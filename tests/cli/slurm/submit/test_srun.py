"""srun and salloc in and outside of jobs, on two agents."""

from __future__ import annotations

from pathlib import Path

from tests.cli.slurm.submit.conftest import SlurmFace
from wire.names import JobState

STEPS = """#!/bin/bash
#SBATCH -N2 -n3 -c2 --gres=gpu:2
export WORD="two words"
srun -l sh -c 'echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURMD_NODENAME $SLURM_NTASKS $WORD'
srun -n2 --output=task-%j-%s-%t.txt sh -c \
    'echo $SLURM_STEP_ID $SLURM_STEP_NODELIST $SLURM_STEP_TASKS_PER_NODE'
srun --gpus-per-task=1 -n2 -N1 sh -c 'echo $CUDA_VISIBLE_DEVICES' | sort -u | wc -l
srun -n3 sh -c 'exit $((SLURM_PROCID * 2))'
echo "highest $?"
srun -n1 -w $SLURMD_NODENAME --export=ALL,WORD=one sh -c 'echo $WORD $SLURM_JOB_ID'
srun -K sh -c 'test $SLURM_PROCID = 2 && exit 9; exec sleep 600'
echo "killed $?"
"""


def test_tasks_on_two_nodes(slurm: SlurmFace) -> None:
    job = slurm.submit("--open-mode=truncate", slurm.script("steps.sh", STEPS))
    lines = slurm.output(job).splitlines()
    said = [line for line in lines if not line.startswith("srun: ")]
    assert sorted(said[:3]) == [
        "0: 0 0 0 n1 3 two words",
        "1: 1 1 0 n1 3 two words",
        "2: 2 0 1 n2 3 two words",
    ]
    assert said[3:] == ["2", "highest 4", f"one {job}", "killed 143"]
    assert "srun: error: n2: task 2: Exited with exit code 9" in lines
    for task in (0, 1):
        assert (slurm.place / f"task-{job}-1-{task}.txt").read_text() == "1 n[1-2] 1(x2)\n"


def test_several_programs_of_a_step(slurm: SlurmFace) -> None:
    slurm.script("programs", "0 echo first %t\n1-2 echo other %t %o  # the rest\n")
    job = slurm.submit("-n3", "--wrap", "srun -l --multi-prog programs | sort")
    assert slurm.output(job) == "0: first 0\n1: other 1 0\n2: other 2 1\n"


def test_signal_reaches_the_tasks_and_not_the_script(slurm: SlurmFace) -> None:
    script = slurm.script(
        "trap.sh",
        "#!/bin/bash\n#SBATCH -N2\n"
        'srun sh -c \'trap "echo task $SLURM_PROCID told; exit 0" TERM; touch up$SLURM_PROCID;'
        ' while :; do sleep .1; done\'\necho "script goes on"\n',
    )
    job = slurm.submit(script)
    for rank in (0, 1):
        slurm.cluster.until((slurm.place / f"up{rank}").exists, f"task {rank} runs")
    assert slurm.run("scancel", "--signal=TERM", str(job)).returncode == 0
    # The shell of a task may say that its sleep was terminated.
    lines = [line for line in slurm.output(job).splitlines() if line != "Terminated"]
    assert sorted(lines) == ["script goes on", "task 0 told", "task 1 told"]


def test_srun_outside_of_a_job(slurm: SlurmFace) -> None:
    done = slurm.run(
        "srun", "-N2", "-J", "direct", "sh", "-c", "echo $SLURMD_NODENAME $PWD; exit $SLURM_PROCID"
    )
    assert sorted(done.stdout.splitlines()) == [f"n1 {slurm.place}", f"n2 {slurm.place}"]
    assert done.returncode == 1
    assert slurm.run("srun", "cat", stdin="typed\n").stdout == "typed\n"
    jobs = {job.name: job for job in slurm.cluster.jobs().values()}
    assert (jobs["direct"].state, jobs["direct"].exit_code) == (JobState.FAILED, 1)
    assert jobs["cat"].state is JobState.COMPLETED


def test_salloc_gives_the_variables_and_ends_the_allocation(slurm: SlurmFace) -> None:
    words = "echo $SLURM_JOB_ID $SLURM_JOB_NODELIST; srun -l sh -c 'echo $SLURM_JOB_ID'; exit 3"
    done = slurm.run("salloc", "-N2", "sh", "-c", words)
    job = done.stdout.split()[0]
    assert done.stdout.splitlines()[0] == f"{job} n[1-2]"
    assert sorted(done.stdout.splitlines()[1:]) == [f"0: {job}", f"1: {job}"]
    said = [f"salloc: Granted job allocation {job}", f"salloc: Relinquishing job allocation {job}"]
    assert done.stderr.splitlines() == said
    assert done.returncode == 3
    assert slurm.cluster.jobs()[int(job)].exit_code == 3


def test_salloc_uses_no_file_with_a_name_that_others_can_guess(slurm: SlurmFace, tmp_path: Path) -> None:
    """Another user guesses the next job id and makes links in /tmp that point to a file of the job's user."""
    victim = tmp_path / "precious"
    victim.write_text("kept")
    next_job = slurm.submit("--wrap", "true") + 1
    links = [Path(f"/tmp/corral-{word}-{next_job}") for word in ("allocation", "steps")]
    try:
        for link in links:
            link.symlink_to(victim)
        done = slurm.run("salloc", "-N1", "sh", "-c", "echo $SLURM_JOB_ID; exit 3")
    finally:
        for link in links:
            link.unlink(missing_ok=True)
    assert (done.returncode, done.stdout) == (3, f"{next_job}\n")
    assert victim.read_text() == "kept"
    assert slurm.cluster.jobs()[next_job].exit_code == 3


def test_heterogeneous_jobs_are_refused_by_name(slurm: SlurmFace) -> None:
    done = slurm.run("srun", "-n1", "true", ":", "-n2", "true")
    assert done.returncode == 1
    assert done.stderr.startswith("srun: error: Corral has no heterogeneous jobs. Submit a job for each kind")


def test_srun_without_a_command(slurm: SlurmFace) -> None:
    done = slurm.run("srun", "-n1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "srun: fatal: No command given to execute.\n"


def test_pty_without_a_terminal_is_disregarded(slurm: SlurmFace) -> None:
    """Slurm does the same. A command on a terminal would never see the end of its input."""
    job = slurm.submit(
        "-N2", "-n2", "--wrap", "for node in n1 n2; do echo in | srun -n1 -N1 -w $node --pty cat; done"
    )
    warning = "srun: error: Not using a pseudo-terminal, disregarding --pty option"
    assert slurm.output(job).splitlines() == [warning, "in"] * 2
