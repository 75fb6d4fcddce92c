"""Jobs that ignore signals or leave processes, and hostile names."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from pathlib import Path

from tests.oracle.oracle import Oracle
from tests.programs import run_corral
from tests.systems import System
from wire.job.spec import JobSpec
from wire.names import JobState

STUBBORN = """
trap '' TERM
(setsid sh -c 'while :; do sleep 0.1; done' &)
echo up
while :; do sleep 0.1; done
"""


def test_job_that_ignores_sigterm_is_killed_with_all_its_processes(oracle: Oracle) -> None:
    """One process has left its session and its parent. The GPUs are free again at once."""
    system = oracle.system
    with system.client() as client:
        [job] = client.submit(JobSpec(command=("/bin/sh", "-c", STUBBORN), grace_s=0.3, gpus=16, nodes=2)).ids
        system.until(lambda: shells(system) == 4, "both shells run on both nodes")
        client.cancel(job)
        ended = system.await_jobs([job])[job]
        assert (ended.state, ended.signal) == (JobState.CANCELLED, 9)
        assert system.processes("job") == []
        oracle.submit(client, oracle.spec(gpus=16, nodes=2))
    assert oracle.verify() == []


def shells(system: System) -> int:
    return sum("-c" in each.words for each in system.processes("job"))


HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J",
    "[red]x[/][/]",
    "../../../../escaped",
    "$(touch escaped)`touch escaped`;touch escaped",
    "line\nbreak\r\ttab",
    "--help",
    "'; DROP TABLE jobs; --",
    "\u202egnp.exe\u2066",
    "\x9b31m\x85",
    "😈" * 50,
    "%s%n{0}{x}",
)
TELL = (
    "import json,os,sys;"
    "print(json.dumps([sys.argv[1:],os.environ['CORRAL_JOB_NAME'],os.environ['EVIL'],os.getcwd()]))"
)


def corral(system: System, *words: str) -> str:
    """The output of a command, which must have no terminal sequences."""
    environment = {**os.environ, "CORRAL_URL": f"unix://{system.socket}", "COLUMNS": "200"}
    text = run_corral(*words, environment=environment, check=True).stdout
    assert [each for each in text if each != "\n" and unicodedata.category(each) in ("Cc", "Cf", "Zl")] == []
    return text


def test_hostile_names_are_treated_as_text(oracle: Oracle) -> None:
    """Hostile names in every text field pass through the program, journal, restart, stream and screen
    unchanged.
    """
    system = oracle.system
    with system.client() as client:
        jobs = {client.submit(evil(system.place / "work", name)).ids[0]: name for name in HOSTILE}
        system.await_jobs(jobs)
        system.kill()
        system.start()
        for job, name in jobs.items():
            shown = client.job(job)
            assert (shown.job.state, shown.job.name) == (JobState.COMPLETED, name)
            assert (shown.job.project, shown.job.queue, shown.spec.env["EVIL"]) == (name, name, name)
            told = json.loads(b"".join(client.logs(job)))
            assert told == [[name], name, name, str(system.place / "work" / folder(name))]
    assert corral(system, "queue", "--all").count("\n") == len(HOSTILE) + 1
    corral(system, "job", "show", *map(str, jobs))
    corral(system, "events")
    assert [path.name for path in Path(system.place).rglob("*escaped*") if path.is_file()] == []
    assert oracle.verify() == []


def evil(work: Path, name: str) -> JobSpec:
    """A job with this name in every text field, which prints its environment."""
    place = work / folder(name)
    place.mkdir(parents=True)
    return JobSpec(
        command=(sys.executable, "-IS", "-c", TELL, name),
        name=name,
        project=name,
        queue=name,
        env={"EVIL": name},
        workdir=str(place),
        cpu_milli=100,
        memory_mib=16,
    )


def folder(name: str) -> str:
    """The same as the name of a directory."""
    return name.replace("/", "\u2215")
