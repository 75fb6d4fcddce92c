"""Runs the calls of job_calls.txt on a real Slurm and on Corral: they submit, change and end jobs.

Usage: python -m tests.clients.compare_jobs [WORD]    WORD: print all answers of calls that contain this word

1. Start a real Slurm, and Corral, each with two nodes of four A100. The first job has a number of four
   digits, so that the numbers of jobs are not confused with other numbers.
2. Run the calls on both sides, each in a directory of its own with the same files.
3. Replace the numbers of jobs by the names that job_calls.txt gives them, and times by words.
4. Compare stdout, the last line of stderr, and the exit code.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.clients.compare_with_slurm import Answer, Pair, masked
from tests.clients.real_slurm import RealSlurm, missing
from tests.limits import PATIENCE_S
from tests.programs import run_corral
from tests.systems import System, system
from wire.api.jobs import JobsOrder
from wire.job.spec import JobSpec

CALLS = Path(__file__).parent / "job_calls.txt"
FIRST_JOB = 1_001
_ASSIGNMENT = re.compile(r"(\w) = (.*)")
_ENDED = re.compile(r"COMPLETED|FAILED|CANCELLED|TIMEOUT|OUT_OF_ME|NODE_FAIL|DEADLINE|BOOT_FAIL")
FILES = {
    "empty.sh": "",
    "noshebang.sh": "echo no\n",
    "dos.sh": "#!/bin/sh\r\ntrue\r\n",
    "script.sh": '#!/bin/bash\n#SBATCH -J scripted\necho "$#:$1:$2"\nexit 0\n',
    "python.sh": "#!/usr/bin/python3\nimport time\nkept = b'x' * 400_000_000\ntime.sleep(60)\n",
    "env.sh": "#!/bin/sh\nenv | grep -E '^SLURM_(JOB_NUM_NODES|NNODES|NTASKS|NPROCS|NTASKS_PER_NODE|PROCID"
    "|MEM_PER_CPU|MEM_PER_NODE|TASKS_PER_NODE|JOB_NODELIST|JOB_PARTITION|JOB_ACCOUNT|JOB_QOS|NODEID|LOCALID"
    "|GTIDS|SUBMIT_DIR|RESTART_COUNT|JOB_CPUS_PER_NODE|CPUS_ON_NODE|GPUS_PER_NODE|JOB_NAME|JOB_USER"
    "|JOB_UID)=|^ENVIRONMENT=' | sort\n",
}


@dataclass
class Side:
    """One of the two systems: its commands, and the directory in which they run."""

    environment: Mapping[str, str]
    place: Path
    jobs: dict[str, str] = field(default_factory=dict)
    """The numbers of jobs by the names in job_calls.txt."""
    seen: dict[str, str] = field(default_factory=dict)
    """The names of all numbers that jobs have had."""

    def __post_init__(self) -> None:
        (self.place / "sub").mkdir(parents=True)
        for name, text in FILES.items():
            (self.place / name).write_text(text)

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a call, with the numbers of jobs instead of their names."""
        filled = re.sub(r"\$(?:(\w)\b|\{(\w)\})", lambda found: self._number(found), line)
        return subprocess.run(
            shlex.split(filled),
            cwd=self.place,
            env={**self.environment, "MARK": "marked", "OTHER": "other"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def _number(self, found: re.Match[str]) -> str:
        return self.jobs.get(found[1] or found[2], found[0])

    def answer(self, line: str) -> Answer:
        done = self.run(line)
        return self._answered(done)

    def _answered(self, done: subprocess.CompletedProcess[str]) -> Answer:
        lines = self._masked(done.stdout).splitlines()
        if "-l" in done.args:
            # because the tasks of a step print in any order
            lines.sort()
        return Answer("\n".join(lines), _reason(self._masked(done.stderr)), done.returncode)

    def _masked(self, text: str) -> str:
        for number, name in self.seen.items():
            text = re.sub(rf"(?<!\d)0*{number}(?!\d)", f"<{name}>", text)
        return masked(text, str(self.place))

    def keep(self, name: str, line: str) -> Answer:
        """Run a call that submits a job, and keep the number of the job."""
        done = self.run(line)
        number = re.search(r"\d+", done.stdout)
        if number is not None:
            self.jobs[name] = number[0]
            self.seen[number[0]] = name
        return self._answered(done)

    def do(self, line: str) -> Answer | None:
        """Do what a line of job_calls.txt says, and return the answer if it is a call."""
        verb, _, rest = line.partition(" ")
        if verb in ("wait", "running", "ready"):
            getattr(self, verb)(rest.removeprefix("$"))
            return None
        assigned = _ASSIGNMENT.fullmatch(line)
        return self.keep(assigned[1], assigned[2]) if assigned else self.answer(line)

    def wait(self, name: str) -> None:
        """Wait until a job has ended, and sacct knows it."""
        job = self.jobs[name]

        def ended() -> bool:
            if self.run(f"squeue -h -j {job}").stdout:
                return False
            states = self.run(f"sacct -n -P -j {job} -o State").stdout.split("\n")[:-1]
            return bool(states) and all(_ENDED.match(state) for state in states)

        _await(ended, f"job {name} ({job} in {self.place.name}) has ended")

    def running(self, name: str) -> None:
        job = self.jobs[name]
        _await(lambda: self.run(f"squeue -h -j {job} -o %T").stdout == "RUNNING\n", f"job {name} runs")

    def ready(self, file: str) -> None:
        path = self.place / file
        _await(lambda: path.exists() and "ready" in path.read_text(), f"{file} is there")


def _reason(text: str) -> str:
    """Return the last line of stderr, because Corral puts its own reason before the words of Slurm. The text
    that follows these words in an invalid option is Corral's.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    wrong = [line for line in lines if re.search(r"Invalid --\S+ specification", line)]
    found = wrong[0] if wrong and "submission failed" not in lines[-1] else ""
    return re.sub(r"(Invalid --\S+ specification).*", r"\1", found) if found else (lines or [""])[-1]


def _await(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"never: {what}")
        time.sleep(0.1)


@contextmanager
def both_sides() -> Iterator[tuple[Side, Side]]:
    """Start Slurm and Corral."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, system("n1", "n2") as corral:
        place = Path(folder)
        place.chmod(0o755)
        real = RealSlurm(place / "real", first_job=FIRST_JOB)
        _start_corral(corral)
        run_corral("slurm", "install", str(place / "commands"), check=True)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "CORRAL_"))
        }
        path = f"{place / 'commands'}{os.pathsep}{real.environment['PATH']}"
        ours = {**kept, "PATH": path, "LC_ALL": "C", "CORRAL_URL": f"unix://{corral.socket}"}
        try:
            real.start()
            yield Side(real.environment, place / "slurm"), Side(ours, place / "corral")
        finally:
            real.end()


def _start_corral(corral: System) -> None:
    nodes = {"gpus": "simulated:4xA100", "cpus": 16, "memory": "100000M", "run_as_self": True}
    corral.sections["nodes"] = {"n1": dict(nodes), "n2": dict(nodes)}
    corral.sections["cluster"] = {"name": "emu"}
    corral.sections["queues"] = {"gpu": {}}
    corral.start()
    with corral.client() as client:
        # so that the next job has a number of four digits
        used = client.submit(JobSpec(("true",), queue="gpu", hold=True, array=f"0-{FIRST_JOB - 2}")).ids
        client.order(JobsOrder("cancel", tuple(map(str, used))))


def compare() -> Iterator[Pair]:
    """Yield the answers of both sides to each call. Both sides run a call at the same time."""
    with both_sides() as sides, ThreadPoolExecutor(len(sides)) as pool:
        for line in CALLS.read_text().splitlines():
            if line and not line.startswith("#"):
                slurm, corral = pool.map(lambda side: side.do(line), sides)  # noqa: B023 - runs in this turn
                if slurm is not None and corral is not None:
                    yield Pair(line, slurm, corral)


EXPECTED = {
    "sbatch -p gpu -A nobody --wrap true": "any project is accepted",
    "sbatch -p gpu -N 3 -t 1 --wrap true": "jobs that no node can hold",
    "sbatch -p gpu -c 99 -t 1 --wrap true": "jobs that no node can hold",
    "sbatch -p gpu -w nowhere --wrap true": "jobs that no node can hold",
    "scontrol update TimeLimit=5": "text",
    "sh -c \"sed 's#.*/sub#sub#; s#/.*slurm_script#script#' sub/here.txt\"": "$0 of a script",
    "sbatch --mem-per-cpu=200M mem.sh": "text",
    "sbatch -p gpu -N 2-1 -t 1 --wrap true": "text",
    "sbatch -p gpu -n 8 -N 1 --ntasks-per-node=4 -t 1 --mem=100M --wrap true": "text",
    "squeue -h -j ${a}_1 -o %i": "an element of a job that is no array",
    "scontrol write batch_script 99999 -": "the exit code, which is 0 in Slurm",
    "cat env.txt": "tasks that are not equal on all nodes",
    'squeue -h -j ${a}_4 -o "%i %t"': "form of one waiting element",
    "scontrol update JobId=$a ArrayTaskThrottle=1": "changes that Corral does not have",
    'squeue -h -j $d -o "%t %r %E"': "dependencies on any of several jobs",
    'squeue -h -j $b -o "%t %r"': "dependencies that cannot be met",
    "squeue -h -n ok,any": "dependencies that cannot be met",
    "scontrol update JobId=$a TimeLimit=nonsense": "text",
    "squeue -h -j $a -o %r": "a hold of a running job",
    "scontrol requeue $a": "a requeue of an ended job",
    "sacct -X -n -P -j $a -o State": "memory limits, which this Slurm does not enforce",
    "sacctmgr -n -P show assoc user=root format=Cluster,Account,User": "accounts",
    "sacctmgr -n -P show tres format=Type,Name,ID": "kinds of resources",
    "sacctmgr show nonsense": "text",
    "sstat -j 99999": "widths of columns",
    "sshare -n -P -A default -o Account,User": "the root of the shares",
    'sinfo -h -p gpu -o "%t %D %c %z %X %Y %m %f %w"': "features",
}
"""Calls whose answers differ, each with the subject. docs/slurm.md says why."""


def main() -> int:
    reason = missing()
    if reason:
        print(reason, file=sys.stderr)
        return 2
    word = sys.argv[1] if len(sys.argv) > 1 else None
    equal = number = 0
    for pair in compare():
        number += 1
        equal += pair.equal
        if not pair.equal or (word and word in pair.call):
            print(f"=== {pair.call}")
            for name, answer in (("slurm", pair.slurm), ("corral", pair.corral)):
                print(f"--- {name}: exit code {answer.code}; {answer.err}\n{answer.out[:3_000]}", flush=True)
    print(f"{equal} of {number} calls have the same answer")
    return 0


if __name__ == "__main__":
    sys.exit(main())
