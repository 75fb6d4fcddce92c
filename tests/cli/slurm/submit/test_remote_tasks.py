"""Tasks of srun on other nodes survive the agents and the controller, and lose no byte."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace

WORKER = """
import os, sys, time
with open("started", "a") as file:
    file.write(f"{os.getpid()}\\n")
for stage in range(4):
    data = sys.stdin.buffer.read(1 << 20)
    open(f"stage{stage}", "w").close()
    while not os.path.exists(f"go{stage}"):
        time.sleep(0.02)
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
sys.exit(3)
"""


def kill_agent(node: str) -> Callable[[SlurmFace], None]:
    def kill(slurm: SlurmFace) -> None:
        pid = slurm.cluster.agent(node).pid
        os.kill(pid, signal.SIGKILL)
        slurm.cluster.until(lambda: running(slurm, node) not in (None, pid), f"another agent of {node}")

    return kill


def running(slurm: SlurmFace, node: str) -> int | None:
    try:
        return slurm.cluster.agent(node).pid
    except ValueError:
        return None


def told(slurm: SlurmFace, job: int) -> list[str]:
    """The output of a job, without the line of an srun that waits long for a new agent on a busy machine."""
    return [line for line in slurm.output(job).splitlines() if not line.endswith("disabled, retrying")]


def kill_controller(slurm: SlurmFace) -> None:
    slurm.cluster.kill()
    slurm.cluster.start()


def test_a_task_on_another_node_survives_the_agents_and_the_controller(slurm: SlurmFace) -> None:
    given = b"".join(b"%07d\n" % number for number in range(4 << 17))
    (slurm.place / "given").write_bytes(given)
    (slurm.place / "worker.py").write_text(WORKER)
    script = slurm.script(
        "far.sh",
        "#!/bin/bash\n#SBATCH -N2 -n2\nsrun -N1 -n1 -w n2 python3 worker.py < given > got\necho ended $?\n",
    )
    job = slurm.submit(script)
    for stage, kill in enumerate((kill_agent("n2"), kill_agent("n1"), kill_controller, None)):
        slurm.cluster.until((slurm.place / f"stage{stage}").exists, f"stage {stage}")
        (slurm.place / f"go{stage}").touch()
        if kill is not None:
            kill(slurm)
    said = told(slurm, job)
    assert said == ["srun: error: n2: task 0: Exited with exit code 3", "ended 3"]
    assert (slurm.place / "got").read_bytes() == given
    assert len((slurm.place / "started").read_text().split()) == 1, "the task was started once"


def test_signals_reach_a_task_after_its_agent_was_restarted(slurm: SlurmFace) -> None:
    script = slurm.script(
        "signal.sh",
        "#!/bin/bash\n#SBATCH -N2 -n2\n"
        'srun -N1 -n1 -w n2 sh -c \'trap "echo got it; exit 0" USR1 TERM; touch up; '
        "while :; do sleep .1; done' & pid=$!\n"
        "while [ ! -e kill ]; do sleep .1; done\nkill -TERM $pid\nwait $pid\necho ended $?\n",
    )
    job = slurm.submit(script)
    slurm.cluster.until((slurm.place / "up").exists, "the task")
    kill_agent("n2")(slurm)
    (slurm.place / "kill").touch()
    assert sorted(line for line in slurm.output(job).splitlines() if line != "Terminated") == [
        "ended 0",
        "got it",
    ]


def test_a_task_whose_program_ends_without_an_agent_keeps_its_end(slurm: SlurmFace) -> None:
    script = slurm.script(
        "end.sh",
        "#!/bin/bash\n#SBATCH -N2 -n2\n"
        "srun -N1 -n1 -w n2 sh -c 'touch up; while [ ! -e go ]; do sleep .05; done; echo last; exit 5'\n"
        "echo ended $?\n",
    )
    job = slurm.submit(script)
    slurm.cluster.until((slurm.place / "up").exists, "the task")
    slurm.cluster.kill()
    slurm.cluster.until(lambda: running(slurm, "n2") is None, "the agent ends with the controller")
    (slurm.place / "go").touch()
    slurm.cluster.start()
    assert told(slurm, job) == [
        "last",
        "srun: error: n2: task 0: Exited with exit code 5",
        "ended 5",
    ]


def test_srun_that_begins_during_a_restart_of_the_controller_waits(slurm: SlurmFace) -> None:
    script = slurm.script(
        "begin.sh",
        "#!/bin/bash\n#SBATCH -N2 -n2\n"
        "touch up; while [ ! -e begin ]; do sleep .05; done; srun -N1 -n1 -w n2 echo ran\necho ended $?\n",
    )
    job = slurm.submit(script)
    slurm.cluster.until((slurm.place / "up").exists, "the job")
    slurm.cluster.kill()
    slurm.cluster.until(lambda: running(slurm, "n1") is None, "the agent ends with the controller")
    (slurm.place / "begin").touch()
    log = slurm.place / f"slurm-{job}.out"
    slurm.cluster.until(lambda: "srun: " in log.read_text(), "srun says that it waits")
    slurm.cluster.start()
    assert told(slurm, job) == ["ran", "ended 0"]


def test_tasks_end_with_their_srun_and_with_the_job(slurm: SlurmFace) -> None:
    loop = "sh -c 'echo $$ > pid$0; while :; do sleep .1; done'"
    script = slurm.script(
        "ends.sh",
        f"#!/bin/bash\n#SBATCH -N2 -n2\nsrun -N1 -n1 -w n2 {loop} 1 & pid=$!\nsrun -N1 -n1 -w n2 {loop} 2 &\n"
        "while [ ! -s pid1 -o ! -s pid2 ]; do sleep .1; done\nkill -KILL $pid\ntouch killed\nwait\n",
    )
    job = slurm.submit(script)
    slurm.cluster.until((slurm.place / "killed").exists, "both tasks")
    first, second = (int((slurm.place / f"pid{number}").read_text()) for number in (1, 2))
    slurm.cluster.until(lambda: not alive(first), "the task of the killed srun ends")
    assert alive(second)
    assert slurm.run("scancel", str(job)).returncode == 0
    slurm.cluster.until(lambda: not alive(second), "the other task ends with the job")
    slurm.cluster.until(lambda: not task_hosts(slurm), "no task host is left")


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def task_hosts(slurm: SlurmFace) -> list[str]:
    """The processes of the cluster that run tasks for the agents."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    line = file.read().decode("utf-8", "replace")
            except OSError:
                continue
            if "task_host" in line and str(slurm.cluster.place) in line:
                found.append(line)
    return found


@pytest.mark.parametrize("size", [40 << 20])
def test_input_that_a_task_does_not_read_waits_in_srun(slurm: SlurmFace, size: int) -> None:
    script = slurm.script(
        "unread.sh",
        f"#!/bin/bash\n#SBATCH -N2 -n2\nhead -c {size} /dev/zero | "
        "srun -N1 -n1 -w n2 sh -c 'touch up; while [ ! -e go ]; do sleep .05; done; wc -c'\n",
    )
    job = slurm.submit(script)
    slurm.cluster.until((slurm.place / "up").exists, "the task")
    done = slurm.run("srun", "-N1", "-n1", "-w", "n2", "--jobid", str(job), "echo", "meanwhile")
    assert done.stdout == "meanwhile\n", done.stderr
    (slurm.place / "go").touch()
    assert slurm.output(job).split() == [str(size)]
