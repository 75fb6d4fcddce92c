"""Steps of srun: what sacct, squeue -s, sstat and scontrol show of them, and how they end."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.cli.slurm.submit.conftest import SlurmFace
from tests.limits import PATIENCE_S

STEPS = """#!/bin/bash
#SBATCH -N2 -n3
# The processes of the job cannot reach the controller: the tasks on n2 start by the agents.
export CORRAL_URL=unix:///nowhere CORRAL_CONTEXT=
srun -J one hostname > /dev/null
srun -n2 sh -c 'exit 3'
srun -n1 -N1 sh -c 'kill -9 $$'
srun -N1 -n1 sh -c 'touch up; exec sleep 600'
echo "cancelled $?"
srun sh -c 'touch last$SLURM_PROCID; sleep 600'
"""
FIELDS = "JobID,JobName,State,ExitCode,NNodes,NTasks,NodeList"


def rows(slurm: SlurmFace, job: int, fields: str = FIELDS) -> list[str]:
    """The rows of sacct, with J for the job."""
    text = slurm.run("sacct", "-j", str(job), "-n", "-P", "-o", fields).stdout
    return [line.replace(str(job), "J", 1) for line in text.splitlines()]


def test_steps_are_recorded(slurm: SlurmFace) -> None:
    job = slurm.submit(slurm.script("steps.sh", STEPS))
    ended = [
        "J.0|one|COMPLETED|0:0|2|3|n[1-2]",
        "J.1|sh|FAILED|3:0|2|2|n[1-2]",
        "J.2|sh|CANCELLED|0:9|1|1|n1",
    ]
    slurm.cluster.until((slurm.place / "up").exists, "step 3")
    assert rows(slurm, job)[1:] == ["J.batch|batch|RUNNING|0:0|1|1|n1", *ended, "J.3|sh|RUNNING|0:0|1|1|n1"]
    shown = slurm.run("squeue", "-s", "-h", "-j", str(job), "-o", "%i %j %u %N")
    assert [line.replace(str(job), "J", 1) for line in shown.stdout.splitlines()] == [
        f"J.3 sh {slurm.run('whoami').stdout.strip()} n1",
        f"J.batch batch {slurm.run('whoami').stdout.strip()} n1",
    ]
    step = slurm.run("scontrol", "show", "step", f"{job}.3").stdout
    assert f"StepId={job}.3 " in step
    assert "Tasks=1 Name=sh" in step
    missing = slurm.run("scontrol", "show", "step", f"{job}.9")
    assert (missing.returncode, missing.stdout) == (1, f"Job step {job}.9 not found\n")
    used = ["sstat", "-n", "-P", "-j", f"{job}.3", "-o"]
    assert slurm.run(*used, "JobID,NTasks").stdout == f"{job}.3|1\n"
    slurm.cluster.until(lambda: slurm.run(*used, "MaxRSS").stdout.strip(), "the use of the running step")
    size, node = slurm.run(*used, "MaxRSS,MaxRSSNode").stdout.strip().split("|")
    assert (0 < int(size.removesuffix("K")) < 20_000, node) == (True, "n1"), "the memory of sleep"
    cancelled = slurm.run("scancel", f"{job}.3")
    assert (cancelled.returncode, cancelled.stderr) == (0, "")
    for rank in range(3):
        slurm.cluster.until((slurm.place / f"last{rank}").exists, f"task {rank} of step 4")
    unknown = slurm.run("scancel", f"{job}.7")
    assert (unknown.returncode, unknown.stderr) == (
        1,
        f"scancel: error: Kill job error on job step id {job}.7: Invalid job id specified\n",
    )
    assert slurm.run("scancel", str(job)).returncode == 0
    said = slurm.output(job)
    assert "cancelled 137" in said
    assert f"*** STEP {job}.3 ON n1 CANCELLED AT" in said
    over = rows(slurm, job, f"{FIELDS},DerivedExitCode")
    assert over[0].startswith("J|steps.sh|CANCELLED by ")
    assert over[0].endswith("|3:0"), "the highest exit code of the steps"
    found = [line.removesuffix("|") for line in over[2:]]
    assert found[:3] == ended
    assert found[3].startswith("J.3|sh|CANCELLED by ")
    assert found[4].startswith("J.4|sh|CANCELLED|0:15|2|3|n[1-2]")
    only = slurm.run("sacct", "-n", "-P", "-o", "JobID", "-j", f"{job}.1,{job}.batch").stdout
    assert only == f"{job}.batch\n{job}.1\n"
    assert rows(slurm, job, "JobID")[0:1] == rows(slurm, job, "JobID")[:1] == ["J"]


def test_cpus_and_name_of_a_step(slurm: SlurmFace) -> None:
    """A step holds all CPUs of the job on its nodes, unless srun requests the CPUs of its tasks."""
    lines = (
        "srun -n1 true",
        "srun -n1 --exclusive true",
        "srun -n2 --exact true",
        "srun -n1 -c3 true",
        "srun -n1 -J special sh -c 'echo $SLURM_JOB_NAME'",
        "srun -n1 sh -c 'kill -9 $$'",
        "exit 0",
    )
    job = slurm.submit("-n4", "-N1", slurm.script("cpus.sh", "\n".join(("#!/bin/bash", *lines))))
    assert slurm.output(job).splitlines()[0] == "special"
    found = [line.split("|")[1] for line in rows(slurm, job, "JobID,AllocCPUS")[2:]]
    assert found == ["4", "1", "2", "3", "4", "4"]
    assert rows(slurm, job, "JobID,DerivedExitCode")[0] == "J|0:9"
    assert "DerivedExitCode=0:9" in slurm.run("scontrol", "show", "job", "-d", str(job)).stdout


def test_steps_of_an_allocation_are_recorded(slurm: SlurmFace) -> None:
    steps = "srun -N2 -J first true; srun -n1 sh -c 'exit 4'; srun -n1 sh -c 'echo $SLURM_STEP_ID'"
    words = f"echo $SLURM_JOB_ID; {steps}"
    done = slurm.run("salloc", "-N2", "sh", "-c", words)
    job, number = done.stdout.split()
    assert number == "2"
    assert rows(slurm, int(job), "JobID,JobName,State,ExitCode,NTasks")[2:] == [
        "J.0|first|COMPLETED|0:0|2",
        "J.1|sh|FAILED|4:0|1",
        "J.2|sh|COMPLETED|0:0|1",
    ]


def test_steps_survive_the_controller_and_the_agents(slurm: SlurmFace) -> None:
    script = slurm.script(
        "long.sh",
        "#!/bin/bash\n#SBATCH -n2\nsrun -J early true\n"
        "srun -J late sh -c 'touch here; while [ ! -e go ]; do sleep .1; done; exit 2'\necho after $?\n",
    )
    job = slurm.submit(script)
    slurm.cluster.until((slurm.place / "here").exists, "the second step")
    slurm.cluster.kill()
    slurm.cluster.start()
    running = ["J.0|early|COMPLETED|0:0", "J.1|late|RUNNING|0:0"]
    fields = "JobID,JobName,State,ExitCode"
    slurm.cluster.until(lambda: rows(slurm, job, fields)[2:] == running, "the agents report the steps again")
    (slurm.place / "go").touch()
    said = [f"srun: error: n1: task {rank}: Exited with exit code 2" for rank in (0, 1)]
    assert sorted(slurm.output(job).splitlines()) == ["after 2", *said], "no warning of srun"
    ended = ["J.0|early|COMPLETED|0:0", "J.1|late|FAILED|2:0"]
    assert rows(slurm, job, fields)[2:] == ended
    slurm.cluster.kill()
    slurm.cluster.start()
    assert rows(slurm, job, fields)[2:] == ended, "they are in the store"


def test_signals_reach_tasks_on_other_nodes(slurm: SlurmFace) -> None:
    loop = "touch up$SLURM_PROCID; while :; do sleep .1; done"
    task = f"trap 'echo task $SLURM_PROCID got it; exit 0' USR1 TERM; {loop}"
    script = slurm.script(
        "signals.sh",
        f'#!/bin/bash\n#SBATCH -N2 -n2\nsrun sh -c "{task.replace("$", chr(92) + "$")}" & pid=$!\n'
        "while [ ! -e up0 -o ! -e up1 ]; do sleep .1; done\nkill -TERM $pid\nwait $pid\necho ended $?\n",
    )
    job = slurm.submit(script)
    lines = [line for line in slurm.output(job).splitlines() if line != "Terminated"]
    assert sorted(lines) == ["ended 0", "task 0 got it", "task 1 got it"]


def test_sbcast_copies_a_file_to_all_nodes(slurm: SlurmFace) -> None:
    """Both nodes are this host, so that the copy for n2 must not exist yet: n1 gets another name."""
    data = bytes(range(256)) * 12_000
    (slurm.place / "data").write_bytes(data)
    script = slurm.script(
        "cast.sh",
        "#!/bin/bash\n#SBATCH -N2\nexport CORRAL_URL=unix:///nowhere\n"
        "sbcast data copy || echo refused $?\nrm copy\nSLURMD_NODENAME=other sbcast -p data far\n"
        "sbcast -f data far; echo $?\n",
    )
    said = slurm.output(slurm.submit(script))
    assert said.splitlines() == ["sbcast: error: n2: " + f"{slurm.place}/copy: File exists", "refused 1", "0"]
    assert (slurm.place / "far").read_bytes() == data


def test_programs_without_counterpart_say_what_to_use(slurm: SlurmFace) -> None:
    for name, instead in {
        "strigger": "[notify]",
        "sreport": "corral report",
    }.items():
        done = slurm.run(name, "--set")
        assert done.returncode == 1
        assert done.stderr.startswith(f"{name}: error: Corral has no {name}.")
        assert instead in done.stderr


def test_sattach_shows_the_output_of_a_running_step(slurm: SlurmFace) -> None:
    waits = "touch up$SLURM_STEP_ID; while [ ! -e go ]; do sleep .05; done"
    slurm.script("task.sh", f"#!/bin/sh\necho before; {waits}; echo after; echo wrong >&2\n")
    # The last step writes nothing into the batch script's log, which sattach may still follow for a moment.
    slurm.script("quiet.sh", f"#!/bin/sh\n{waits}\n")
    script = slurm.script(
        "attach.sh",
        "#!/bin/bash\n#SBATCH -N2 -n2 -e err-%j\nsrun -N1 -n1 -w n2 sh task.sh\nrm go\n"
        "srun -n1 -N1 -o step-%s.txt sh task.sh\nrm go\nsrun -n1 -N1 sh quiet.sh 2>&1 | cat\n",
    )
    job = slurm.submit(script)
    files = ({f"slurm-{job}.out", f"err-{job}"}, {"step-1.txt"})
    said = (["after"], ["wrong"]), (["after", "wrong"], [])
    for step, streams in enumerate(said):
        slurm.cluster.until((slurm.place / f"up{step}").exists, "the task")
        first = slurm.place / (f"slurm-{job}.out", "step-1.txt")[step]
        slurm.cluster.until(lambda file=first: "before" in file.read_text(), "the output until now")
        attached = subprocess.Popen(
            ["sattach", f"{job}.{step}"],
            cwd=slurm.place,
            env=slurm.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        slurm.cluster.until(lambda names=files[step]: followed(slurm) >= names, "sattach follows the files")
        (slurm.place / "go").touch()
        printed = attached.communicate(timeout=PATIENCE_S)
        assert tuple(sorted(text.splitlines()) for text in printed) == streams
        assert attached.returncode == 0
    slurm.cluster.until((slurm.place / "up2").exists, "the task")
    done = slurm.run("sattach", f"{job}.2")
    assert (done.returncode, "goes to a pipe" in done.stderr) == (1, True), done.stderr
    done = slurm.run("sattach", f"{job}.0")
    assert done.stderr == "sattach: error: Job/step already completing or completed\n"
    assert slurm.run("sattach", f"{job}.7").returncode == 1
    for option in ("--input-filter=0", "--output-filter=0", "--error-filter=0", "--label"):
        refused = slurm.run("sattach", option, f"{job}.2")
        name = option.partition("=")[0]
        assert refused.stderr.startswith(f"sattach: error: Corral has no sattach {name}. Corral ")
    (slurm.place / "go").touch()
    slurm.cluster.await_jobs([job])
    assert slurm.run("sattach", f"{job}.2").stderr == done.stderr


def followed(slurm: SlurmFace) -> set[str]:
    """The names of the files that processes of `tail` have open."""
    names = set()
    for each in slurm.cluster.processes("job"):
        if each.words[:2] == ("tail", "-q"):
            with suppress(OSError):  # because it has just ended
                names |= {os.path.basename(os.readlink(fd)) for fd in Path(f"/proc/{each.pid}/fd").iterdir()}
    return names


def test_sprio_lists_waiting_jobs(slurm: SlurmFace) -> None:
    job = slurm.submit("--begin=now+1hour", "--wrap", "true")
    try:
        shown = slurm.run("sprio", "-j", str(job)).stdout.splitlines()
        assert shown[0] == "          JOBID PARTITION   PRIORITY       SITE"
        assert shown[1].split()[:2] == [str(job), "default"]
    finally:
        slurm.run("scancel", str(job))


def test_an_allocation_from_within_a_job_has_its_own_steps(slurm: SlurmFace) -> None:
    """The command of the inner salloc runs in the outer job, but its steps are those of the inner job."""
    inner = "echo inner $SLURM_JOB_ID; srun -J within sh -c 'echo task of $CORRAL_JOB_ID'"
    job = slurm.submit(
        slurm.script("outer.sh", f'#!/bin/bash\nsalloc -Q -n1 sh -c "{inner.replace("$", chr(92) + "$")}"\n')
    )
    said = slurm.output(job).splitlines()
    other = int(said[0].removeprefix("inner "))
    assert other != job
    assert said[1] == f"task of {other}"
    assert rows(slurm, job, "JobID") == ["J", "J.batch"]
    assert rows(slurm, other, "JobID,JobName")[2:] == ["J.0|within"]
