"""squeue on a running cluster."""

from __future__ import annotations

import pytest

from cli.slurm.show.squeue_fields import FIELDS
from tests.cli.slurm.conftest import Slurm, masked

TABLE = """\
             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
         5_[3-6%2]       gpu      arr USERNAME PD       0:SS      1 (JobArrayTaskLimit)
                11       gpu      big USERNAME PD       0:SS      2 (Resources)
                13       gpu      dep USERNAME PD       0:SS      1 (Dependency)
                12       gpu     held USERNAME PD       0:SS      1 (JobHeldUser)
                 4       gpu    alpha USERNAME  R       0:SS      1 n1
               5_1       gpu      arr USERNAME  R       0:SS      1 n1
               5_2       gpu      arr USERNAME  R       0:SS      1 n1
"""


def test_table(slurm: Slurm) -> None:
    user = slurm("squeue", "-h", "-j", "4", "-o", "%.8u").out.rstrip("\n")
    assert masked(slurm("squeue").out) == TABLE.replace("USERNAME", user)
    assert slurm("squeue", "--me", "-h", "-t", "R").out.count("\n") == 3


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ("-j", "4", "-o", "%i|%A|%F|%K|%C|%j|%P|%r|%y|%T|%b|%N"),
            "4|4|4|N/A|2|alpha|gpu|None|0|RUNNING|gres:gpu:a100:2|n1\n",
        ),
        (("-j", "5_1", "-o", "%i %A %F %K %m %l %D %B %Z"), "5_1 5 5 1 1536M 1-02:04:00 1 n1 /tmp\n"),
        (("-j", "5", "-t", "PD", "-o", "%i %A %F %K %R"), "5_[3-6%2] 5 5 3-6%2 (JobArrayTaskLimit)\n"),
        (("-j", "5", "-t", "PD", "-r", "-o", "%i"), "5_3\n5_4\n5_5\n5_6\n"),
        (("-t", "PD", "-n", "big,held", "-S", "i", "-o", "%i%t%E"), "11PD(null)\n12PD(null)\n"),
        (("-n", "dep", "-o", "%E %r"), "afterok:4(unfulfilled) Dependency\n"),
        (("-w", "n1", "-S", "-i", "-o", "%i"), "5_2\n5_1\n4\n"),
        (("-p", "nope", "-o", "%i"), ""),
        (("-A", "default", "-n", "alpha", "-O", "JobArrayID:4,StateCompact:3,Reason:5"), "4   R  None \n"),
        (("-j", "11", "-O", "tres-per-node:12,nodelist:3,jobid:4|"), "gres:gpu:4     11  |\n"),
        (
            ("-t", "all", "-j", "1,2,3", "-S", "i", "-o", "%i %T %r"),
            "1 COMPLETED None\n2 FAILED NonZeroExitCode\n3 CANCELLED None\n",
        ),
        (("-j", "1,2"), ""),
        (("-j", "998,999"), ""),
    ],
)
def test_options(slurm: Slurm, words: tuple[str, ...], lines: str) -> None:
    printed = slurm("squeue", "-h", *words)
    assert (printed.out, printed.err, printed.code) == (lines, "", 0)


def test_each_field_asks_for_the_columns_that_it_reads(slurm: Slurm) -> None:
    for field in FIELDS:
        if field.name:
            printed = slurm("squeue", "-O", f"{field.name}:100", "-S", "i", "-t", "all")
            assert (printed.err, printed.code, printed.out.count("\n")) == ("", 0, 11), field.name


def test_formats_of_the_environment(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%i=%j")
    assert slurm("squeue", "-h", "-j", "4").out == "4=alpha\n"
    assert slurm("squeue", "-h", "-j", "4", "-o", "%t").out == "R\n"
    monkeypatch.setenv("SLURM_TIME_FORMAT", "%Y")
    assert len(slurm("squeue", "-h", "-j", "4", "-o", "%V").out) == 5


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (("-j", "999"), "slurm_load_jobs error: Invalid job id specified\n", 1),
        (("-j", "abc"), "squeue: error: Invalid job id: abc\n", 1),
        (("-u", "nobodyyy"), "squeue: error: Invalid user: nobodyyy\n\n", 0),
        (("-O", "nope"), "squeue: error: Invalid job format specification: nope\n", 0),
        (("--zzz",), "squeue: unrecognized option '--zzz'\nTry \"squeue --help\" for more information\n", 1),
    ],
)
def test_errors(slurm: Slurm, words: tuple[str, ...], message: str, code: int) -> None:
    printed = slurm("squeue", *words)
    assert (printed.err, printed.code) == (message, code)


def test_unknown_state_lists_the_states(slurm: Slurm) -> None:
    printed = slurm("squeue", "-t", "XX")
    assert printed.code == 1
    assert printed.err.startswith("squeue: error: Invalid job state specified: XX\nsqueue: error: Valid job")


def test_version_and_help(slurm: Slurm) -> None:
    assert slurm("squeue", "--version").out == "slurm-wlm 22.05.8\n"
    assert "--noheader" in slurm("squeue", "--help").out
