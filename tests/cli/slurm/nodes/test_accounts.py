"""sacctmgr, sshare and sstat on a running cluster."""

from __future__ import annotations

import pytest

from tests.cli.slurm.conftest import Slurm


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (("-n", "-P", "show", "cluster", "format=cluster,controlhost"), "emu|127.0.0.1\n"),
        (("show", "qos", "-n", "-P", "format=name,priority"), "normal|0\n"),
        (("show", "account", "-n", "-P"), "default|default|default\n"),
        (
            ("-n", "-P", "list", "assoc", "format=account,user,cluster"),
            "default||emu\ndefault|USERNAME|emu\n",
        ),
        (("-n", "-P", "show", "assoc", "where", "user=USERNAME", "format=account,qos"), "default|normal\n"),
        (("-n", "-s", "list", "user", "USERNAME", "format=account%12"), "     default \n"),
        (("show", "user", "name=USERNAME", "-n", "-P", "format=user,defaultaccount"), "USERNAME|default\n"),
        (("show", "federation", "-n"), ""),
        (
            ("show", "tres", "-P"),
            "Type|Name|ID\ncpu||1\nmem||2\nenergy||3\nnode||4\nbilling||5\ngres|gpu|1001\n",
        ),
    ],
)
def test_sacctmgr(slurm: Slurm, words: tuple[str, ...], out: str) -> None:
    user = slurm("squeue", "-h", "-j", "4", "-o", "%u").out.strip()
    printed = slurm("sacctmgr", *(word.replace("USERNAME", user) for word in words))
    assert (printed.out, printed.err, printed.code) == (out.replace("USERNAME", user), "", 0)


def test_sacctmgr_refuses_changes(slurm: Slurm) -> None:
    printed = slurm("sacctmgr", "add", "account", "x")
    assert (printed.code, printed.out) == (1, "")
    assert "corral quota" in printed.err
    assert slurm("sacctmgr", "show", "nope").code == 1


def test_sshare(slurm: Slurm) -> None:
    lines = [line.split("|") for line in slurm("sshare", "-a", "-n", "-P").out.splitlines()]
    assert [line[0] for line in lines] == ["root", " default", "  default"]
    assert [len(line) for line in lines] == [7, 7, 7]
    assert slurm("sshare").out.startswith("Account                    User  RawShares  NormShares ")


def test_sstat(slurm: Slurm) -> None:
    assert slurm("sstat", "-n", "-P", "-j", "4", "-o", "JobID,NTasks").out == "4.batch|1\n"
    assert slurm("sstat", "-n", "-P", "-j", "5", "-o", "JobID").out == "5_1.batch\n5_2.batch\n"
    printed = slurm("sstat", "-n", "999")
    assert (printed.err, printed.code) == ("sstat: error: couldn't get steps for job 999\n", 0)
