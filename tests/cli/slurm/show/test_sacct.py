"""sacct on a running cluster."""

from __future__ import annotations

import json
import os

import pytest

from tests.cli.slurm.conftest import Slurm, masked

TABLE = """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode 
------------ ---------- ---------- ---------- ---------- ---------- -------- 
1                  good        gpu    default          1  COMPLETED      0:0 
1.batch           batch               default          1  COMPLETED      0:0 
2                   bad        gpu    default          1     FAILED      3:0 
2.batch           batch               default          1     FAILED      3:0 
3                killed        gpu    default          1 CANCELLED+      0:0 
3.batch           batch               default          1  CANCELLED     0:15 
4                 alpha        gpu    default          2    RUNNING      0:0 
4.batch           batch               default          2    RUNNING      0:0 
5_1                 arr        gpu    default          1    RUNNING      0:0 
5_1.batch         batch               default          1    RUNNING      0:0 
5_2                 arr        gpu    default          1    RUNNING      0:0 
5_2.batch         batch               default          1    RUNNING      0:0 
5_[3-6%2]           arr        gpu    default          1    PENDING      0:0 
11                  big        gpu    default          2    PENDING      0:0 
12                 held        gpu    default          1    PENDING      0:0 
13                  dep        gpu    default          1    PENDING      0:0 
"""  # noqa: W291 - as sacct prints it


TRES = "billing=2,cpu=2,gres/gpu=2,mem=500M,node=1"


def test_table(slurm: Slurm) -> None:
    assert slurm("sacct").out == TABLE


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("-j", "1", "-P", "-o", "JobID,State,NodeList"), "1|COMPLETED|n1\n1.batch|COMPLETED|n1\n"),
        (("-X", "-j", "3", "-P", "-o", "JobIdRaw,State"), f"3|CANCELLED by {os.geteuid()}\n"),
        (("-X", "-j", "3", "-o", "jobid,state%20"), f"3{f'CANCELLED by {os.geteuid()}':>32} \n"),
        (
            ("-j", "4.batch", "-p", "-o", "jobid,partition,elapsed,state,exitcode"),
            "4.batch||00:00:SS|RUNNING|0:0|\n",
        ),
        (
            ("-X", "-j", "4", "-P", "-o", "ReqTRES,AllocTRES,ReqMem,Timelimit,TimelimitRaw,NNodes,NCPUS"),
            f"{TRES}|{TRES}|500M|00:10:00|10|1|2\n",
        ),
        (
            ("-X", "-j", "5_3,5_1", "-P", "-o", "JobID,JobIDRaw,Start,End,NodeList"),
            "5_1|5|TIME|Unknown|n1\n5_[3%2]|5|Unknown|Unknown|None assigned\n",
        ),
        (("-X", "-j", "5_1", "-P", "-o", "ReqMem", "--units", "M"), "1536M\n"),
        (("-X", "-j", "5_1", "-P", "-o", "ReqMem"), "1.50G\n"),
        (("-X", "-n", "--name", "big,held", "-P", "-o", "JobID,Reason"), "11|Resources\n12|JobHeldUser\n"),
        (("-X", "-s", "F", "-S", "now-1hour", "-P", "-o", "JobID"), "2\n"),
        (("-X", "-s", "CD,CA", "-S", "1970-01-01", "-P", "-o", "JobID"), "1\n3\n"),
        (("-X", "-S", "now", "-E", "now+1hour", "-s", "R", "-P", "-o", "JobID"), "4\n5_1\n5_2\n"),
        (("-X", "-N", "n2", "-o", "JobID"), ""),
        (("-X", "-j", "1", "-P", "-o", "Comment,Cluster,User"), "a note|emu|USERNAME\n"),
        (("--clusters", "all", "-X", "-j", "1", "-P", "-o", "JobID"), "1\n"),
        (("-j", "999"), ""),
        (("-X", "-j", "1", "-P", "--delimiter=^|^", "-o", "jobid,job"), "1^|^1\n"),
    ],
)
def test_options(slurm: Slurm, words: tuple[str, ...], lines: str) -> None:
    user = slurm("squeue", "-h", "-j", "4", "-o", "%u").out.strip()
    printed = slurm("sacct", "-n", *words)
    assert (masked(printed.out), printed.err, printed.code) == (lines.replace("USERNAME", user), "", 0)


def test_start_after_the_end_is_refused(slurm: Slurm) -> None:
    """With the id of a job, sacct lists nothing and gives no error."""
    words = ("-X", "-n", "-P", "-o", "JobID", "-S", "2030-01-02T00:00:00", "-E", "2030-01-01T00:00:00")
    printed = slurm("sacct", *words)
    error = "Start time (2030-01-02T00:00:00) requested is after end time (2030-01-01T00:00:00)."
    assert (printed.out, printed.err, printed.code) == ("", f"sacct: error: {error}\n", 1)
    assert slurm("sacct", *words, "-j", "1") == ("", "", 0)
    alone = slurm("sacct", "-X", "-n", "-S", "2090-01-01")
    assert (alone.out, alone.code) == ("", 1)
    assert alone.err.startswith("sacct: error: Start time (2090-01-01T00:00:00) requested is after end time")


def test_all_fields_of_helpformat_have_values(slurm: Slurm) -> None:
    names = slurm("sacct", "--helpformat").out.split()
    assert len(names) == 109
    lines = slurm("sacct", "-P", "-o", ",".join(names)).out.splitlines()
    assert lines[0] == "|".join(names)
    assert {line.count("|") for line in lines} == {108}


def test_rows_are_complete(slurm: Slurm) -> None:
    """No field that clients parse as a number, a time or a size is empty or ends with a question mark."""
    fields = "AllocCPUS,Elapsed,JobID,NNodes,ReqMem,State,Timelimit,TotalCPU"
    for line in slurm("sacct", "-n", "-X", "-P", "-o", fields).out.splitlines():
        assert all(value and "?" not in value for value in line.split("|")), line


def test_fields_of_the_environment(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCT_FORMAT", "jobid,nodelist")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "%s")
    assert slurm("sacct", "-n", "-X", "-P", "-j", "1").out == "1|n1\n"
    assert slurm("sacct", "-n", "-X", "-P", "-j", "1", "-o", "end").out.strip().isdigit()


def test_thousands_of_jobs_are_asked_for(slurm: Slurm) -> None:
    words = [word for job in range(3_000) for word in ("-j", str(10_000_000 + job))]
    assert slurm("sacct", "-n", "-X", "-P", "-o", "JobID", "-j", "2", *words, "-j", "4").out == "2\n4\n"


def test_json(slurm: Slurm) -> None:
    jobs = json.loads(slurm("sacct", "--json", "-S1970-01-01-00:00:01", "-j", "1,4").out)["jobs"]
    assert [(job["job_id"], job["state"]["current"], job["name"]) for job in jobs] == [
        *((1, "COMPLETED", "good"), (4, "RUNNING", "alpha"))
    ]
    batch = {"job_id": 4, "het": {"component": None}, "id": "batch", "name": "batch"}
    assert jobs[1]["steps"][0]["step"] == batch


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "nope"), 'sacct: error: Invalid field requested: "nope"\n'),
        (("-S", "nonsense"), "Invalid time specification (pos=0): nonsense\n"),
        (("-s", "XX"), "sacct: fatal: unrecognized job state value 'XX'\n"),
        (("-u", "nobodyyy"), "sacct: error: Invalid user id: nobodyyy\n"),
        (("-j", "abc"), "sacct: fatal: Bad job/step specified: abc\n"),
    ],
)
def test_errors(slurm: Slurm, words: tuple[str, ...], message: str) -> None:
    printed = slurm("sacct", *words)
    assert (printed.err, printed.code, printed.out) == (message, 1, "")
