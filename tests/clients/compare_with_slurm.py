"""Runs the same calls on a real Slurm and on Corral, and prints the calls whose answers differ.

Usage: python -m tests.clients.compare_with_slurm

1. Start Slurm 22.05 with its accounting, and Corral, each with two nodes of four A100.
2. Submit the same jobs to both: ended, running, waiting, held, and an array.
3. Run each call of CALLS on both. Replace times, durations, user names and paths by fixed words.
4. Compare stdout and the exit code. stderr is compared by its first line.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.slurm.programs import PROGRAMS
from tests.clients.real_slurm import RealSlurm, missing
from tests.limits import PATIENCE_S
from tests.systems import System, system
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, Until
from wire.names import JobState

SHOWING = """
squeue
squeue -h
squeue -l -h
squeue --noheader -j 4 -o %i|%T|%N|%r
squeue -j 4 -o %A|%u|%t|%.15j|%Z
squeue -h -j 4,8 -t R -S i -o "%A|%i|%F|%K|%C|%j|%P|%r|%u|%y|%T|%b|%N"
squeue -h -j 4 -O tres-per-node:100,nodelist:100,username:100,jobid:100
squeue -O JobArrayID,StateCompact,Reason -S i
squeue -h -t all -S i -o %2t%100j
squeue -h --me -S i -o %.18i_%.8j_%.8u_%.2t
squeue -h -u root -S i -o %u
squeue -h -S i -o "%i<><> %t<><> %r<><> %j<><> %u<><> %P<><> %l<><> %D<><> %C"
squeue -h -S i -o %i^^^%t^^^%r^^^%B^^^%u^^^%D^^^%R^^^%P^^^%l^^^%j
squeue -h -t PD -S i -o "%i %t"
squeue -h -t R -S i -o "%i %t %N %B"
squeue -h -r -t PD -S i -o %i
squeue -h -n arr -S i -o "%i %F %K"
squeue -h -n nothing
squeue -h -p nothing
squeue -h -p gpu -S i -o %i
squeue -h -w n1 -S i -o %i
squeue -h -t CD,F,CA -S i -o "%i %T %r %R"
squeue -h -j 1,2
squeue -h -j 998,999
squeue -j 999
squeue -j abc
squeue -u nobodyyy
squeue -t XX
squeue --zzz
squeue -h -S i -o %all
squeue --version
squeue -h -j 4 -o "%m %l %C %D %q %h %k %E %f %g %G %U"
squeue -h -n dep -o "%i %E %r %S"
squeue -h -O jobid:.6,name:7| -S i
sacct -X -P -S now-1hour -o JobID,JobName,Partition,AllocCPUS,State,ExitCode
sacct -P -j 1 -o JobID,State,NodeList
sacct -P -j 2 -o JobID,State,ExitCode
sacct -P -j 3 -o JobID,State,ExitCode,JobName
sacct -X -P -j 3 -o JobIdRaw,State
sacct -n -X -j 1 -o jobid,state%20
sacct -j 1,2
sacct -n -j 2 -p -o jobid,partition,state,exitcode
sacct -X -P -j 4 -o ReqTRES,AllocTRES,NNodes,NCPUS,ReqMem
sacct -X -P -j 8 -o JobID,State -s R -S now-1hour -E now
sacct -X -n -P -j 4 -o Timelimit,TimelimitRaw,Partition,User,Group,UID,Cluster
sacct -X -n -P --name bad -S now-1hour -o JobID
sacct -X -n -P -s F -S now-1hour -E now -o JobID
sacct -X -n -P -s CA,CD -S now-1hour -E now -o JobID
sacct -X -n -P -r gpu -s CD -S now-1hour -E now -o JobID
sacct -X -n -P --clusters all -j 1 -o JobID
sacct -j 999
sacct -j abc
sacct -o nope
sacct -s XX
sacct -S nonsense
sacct -u nobodyyy
sacct --zzz
sacct --helpformat
sacct -X -n -P -j 1 --delimiter=^|^ -o JobID,State
sacct -n -P -j 4.batch -o JobID,JobName,State
sacct -b -j 1
sacct --version
sinfo -p gpu
sinfo -h -p gpu
sinfo -l -h -p gpu
sinfo -N -p gpu
sinfo -N -l -h -p gpu
sinfo -s -p gpu
sinfo -h -p gpu -o "%P %G %l %c %m"
sinfo -h -o %1000N|%1000G
sinfo -h -p gpu -o %G,%P
sinfo -h -p gpu -o %100c,%100P
sinfo -e -o "%X %Y %Z %c %D %G"
sinfo -h -p gpu -O CPUs,Memory,Partition
sinfo -h -p gpu -o "%R %C %A %F %D"
sinfo -h -p gpu -O GresUsed:40,NodeList:10
sinfo -h -N -p gpu -o "%N %t"
sinfo -h -t idle,mix -p gpu -o "%N %T"
sinfo -h -p nothing
sinfo -R
sinfo -T
sinfo -n nope -h -p gpu
sinfo -t nope
sinfo --version
scontrol show job 4
scontrol -o show job 4
scontrol show job -dd 4
scontrol show job 2
scontrol show job 8_1
scontrol show job 5
scontrol show job 999
scontrol show node n1
scontrol -o show node n2
scontrol show node nope
scontrol show partition gpu
scontrol -o show partition gpu
scontrol show partition nope
scontrol show hostnames n[1-3,5]
scontrol show hostlist n1,n2,n3,n5
scontrol show hostlistsorted n3,n1,n2
scontrol show hostnames
scontrol show reservation
scontrol show licenses
scontrol show foo
scontrol foo
scontrol ping
scontrol --version
"""
"""Calls of the commands that show, one on each line."""


@dataclass(frozen=True)
class Answer:
    """What a call printed, after `masked`."""

    out: str
    err: str
    code: int


@dataclass(frozen=True)
class Pair:
    """The answers of both sides to one call."""

    call: str
    slurm: Answer
    corral: Answer

    @property
    def equal(self) -> bool:
        return self.slurm == self.corral


def calls() -> list[list[str]]:
    return [shlex.split(line) for line in SHOWING.splitlines() if line.strip()]


_MASKS = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME"),
    (r"\b(RunTime|Elapsed)=\S+", r"\1=SPAN"),
    (r"\b(Priority|PriorityTier|PriorityJobFactor|AllocNode:Sid|Scheduler)=\S+", r"\1=VALUE"),
    (r"\b(CPULoad|FreeMem|BootTime|SlurmdStartTime|LastBusyTime|Node(?:Addr|HostName))=\S+", r"\1=VALUE"),
    (r" Port=\d+", ""),
    # because several slurmd on one host have their nodes in their names
    (r"slurmstepd-n\d:", "slurmstepd:"),
    (r"\n   OS=.*", ""),
    (r"OS=.*?@0  ", ""),
    ("    planned", "       idle"),
    ("planned|plnd", "idle"),
    (r"\+PLANNED\b", ""),
    (r"\b0:\d\d\b(?!:)(?=\s)", "0:SS"),
    (r"\b[49]:\d\d\b(?!:)", "LEFT"),
    (r"0\.\d{14}", "FRACTION"),
)


def masked(text: str, place: str) -> str:
    """Return the text with words instead of times, run times, priorities and the directory of the jobs.
    Spaces at the ends of lines and the number of spaces between columns are kept. A node that Slurm keeps for
    the first waiting job is `planned`; Corral shows it as idle.
    """
    text = text.replace(place, "PLACE")
    for pattern, word in _MASKS:
        text = re.sub(pattern, word, text)
    return text


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


EXPECTED = {
    "squeue -h -j 4,8 -t R -S i -o '%A|%i|%F|%K|%C|%j|%P|%r|%u|%y|%T|%b|%N'": "ids of elements",
    "squeue -h -S i -o %all": "ids of elements, priorities, SchedNodeList",
    "squeue -h -O 'jobid:.6,name:7|' -S i": "ids of elements",
    "scontrol show job 8_1": "ids of elements",
    "sacct -X -P -S now-1hour -o JobID,JobName,Partition,AllocCPUS,State,ExitCode": "jobs that cannot start",
    "sinfo -N -l -h -p gpu": "features",
    "scontrol show node n1": "features, and the partition default",
    "scontrol -o show node n2": "features, and the partition default",
    "scontrol show job 5": "SchedNodeList",
}
"""Calls whose answers differ, each with the subject. docs/slurm.md says why."""


@contextmanager
def both_sides() -> Iterator[tuple[RealSlurm, System, Path]]:
    """Start Slurm and Corral, submit the same jobs to both, and wait until their states are equal."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, system("n1", "n2") as corral:
        place = Path(folder)
        real = RealSlurm(place / "real")
        jobs = place / "jobs"
        jobs.mkdir()
        nodes = {"gpus": "simulated:4xA100", "cpus": 16, "memory": "100000M", "run_as_self": True}
        corral.sections["nodes"] = {"n1": dict(nodes), "n2": dict(nodes)}
        corral.sections["cluster"] = {"name": "emu"}
        corral.sections["queues"] = {"gpu": {}}
        try:
            real.start()
            _submit_to_slurm(real, jobs)
            corral.start()
            _submit_to_corral(corral, jobs)
            yield real, corral, jobs
        finally:
            real.end()


def _submit_to_slurm(real: RealSlurm, place: Path) -> None:
    """Submit jobs 1 to 7: ended, failed, cancelled, running with GPUs, an array, a wide and a held job."""

    def sbatch(name: str, *words: str, command: str = "exec sleep 600", memory: str = "100M") -> None:
        common = ("-p", "gpu", "-t", "10", "-J", name, "--mem", memory)
        words = (*common, *words, "--wrap", command)
        real.run("sbatch", *words, place=place).check_returncode()

    def state(job: int) -> str:
        return real.run("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T").stdout.strip()

    sbatch("good", command="true")
    sbatch("bad", command="exit 3")
    sbatch("killed")
    _await(lambda: state(3) == "RUNNING")
    real.run("scancel", "3")
    _await(lambda: [state(job) for job in (1, 2, 3)] == ["COMPLETED", "FAILED", "CANCELLED"])
    sbatch("alpha", "--gres=gpu:a100:2", "-c", "2", memory="500M")
    _await(lambda: state(4) == "RUNNING")
    sbatch("big", "-N", "2", "--gres=gpu:4")
    sbatch("held", "--hold")
    sbatch("dep", "--dependency=afterok:4")
    sbatch("arr", "--array=1-6%2", "-t", "5")
    _await(lambda: real.run(*_RUNNING).stdout.count("\n") == 3)
    _await(lambda: "Resources" in real.run("squeue", "-h", "-n", "big", "-o", "%r").stdout)
    _await(lambda: "CANCELLED" in real.run("sacct", "-n", "-X", "-j", "3", "-o", "state").stdout)


def _await(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("the jobs of Slurm did not reach their states")
        time.sleep(0.1)


_RUNNING = ("squeue", "-h", "-t", "R", "-o", "%i")


def _submit_to_corral(corral: System, place: Path) -> None:
    def spec(name: str, *command: str, **values: object) -> JobSpec:
        common = {"queue": "gpu", "cpu_milli": 1_000, "memory_mib": 100, "time_limit_s": 600.0}
        more = {"workdir": str(place), "output": "slurm-%j.out", "batch": True}
        given = command or ("sleep", "600")
        return JobSpec(given, name=name, **{**common, **more, **values})  # type: ignore[arg-type]

    with corral.client() as client:
        ended = [
            *client.submit(spec("good", "true")).ids,
            *client.submit(spec("bad", "sh", "-c", "exit 3")).ids,
        ]
        killed = client.submit(spec("killed")).ids[0]
        corral.await_jobs([killed], JobState.RUNNING)
        client.cancel(killed)
        corral.await_jobs([*ended, killed], JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)
        alpha = spec("alpha", gpus=2, gpu_models=("A100",), cpu_milli=2_000, memory_mib=500)
        running = [*client.submit(alpha).ids]
        corral.await_jobs(running, JobState.RUNNING)
        big = client.submit(spec("big", gpus=8, nodes=2)).ids[0]
        client.submit(spec("held", hold=True))
        client.submit(spec("dep", after=(Dependency(Until.OK, str(running[0])),)))
        array = client.submit(spec("arr", array="1-6%2", time_limit_s=300.0, output="slurm-%A_%a.out")).ids
        corral.await_jobs(array[:2], JobState.RUNNING)
        corral.until(lambda: client.job(big).job.reason.value == "resources", "a reason of the wide job")


def compare() -> list[Pair]:
    """Return the answers of both sides to all calls."""
    with both_sides() as (real, corral, place):
        found = []
        for words in calls():
            if words[0] in PROGRAMS:
                done = real.run(*words, place=place)
                ours = _on_corral(corral, words, place)
                found.append(
                    Pair(shlex.join(words), _answer(words, done, place), _answer(words, ours, place))
                )
        return found


def _on_corral(corral: System, words: Sequence[str], place: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; from cli.slurm.programs import run; sys.exit(run({words[0]!r}))"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "CORRAL_"))}
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *words[1:]],
        cwd=place,
        env={**kept, "CORRAL_URL": f"unix://{corral.socket}", "PYTHONPATH": root},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def _answer(words: Sequence[str], done: subprocess.CompletedProcess[str], place: Path) -> Answer:
    lines = masked(done.stdout, str(place)).splitlines()
    if words[0] in ("squeue", "sinfo") and "-S" not in words:
        # because Slurm orders jobs of equal priority, and nodes that it plans for a job, as they come
        lines.sort()
    return Answer("\n".join(lines), first_line(done.stderr), done.returncode)


def main() -> int:
    reason = missing()
    if reason:
        print(reason, file=sys.stderr)
        return 2
    pairs = compare()
    for pair in pairs:
        if not pair.equal:
            print(f"=== {pair.call}")
            for side, answer in (("slurm", pair.slurm), ("corral", pair.corral)):
                print(f"--- {side}: exit code {answer.code}; {answer.err}\n{answer.out[:3_000]}")
    equal = sum(pair.equal for pair in pairs)
    print(f"{equal} of {len(pairs)} calls have the same answer")
    return 0


if __name__ == "__main__":
    sys.exit(main())
