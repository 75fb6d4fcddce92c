"""python -m benchmarks placement: JSON, tables, and errors in one sentence."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.placement.command import run_command

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,8000,65536,2,T4\nn2,2000,65536,2,T4\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{number},4000,1024,1,1000,T4\n" for number in range(4)
)
"""Two of four find a place, and one more is drawn: worked out in test_placement.py."""
KEYS = [
    "api_version",
    "strategy",
    "allocated_at_100",
    "allocated_at_130",
    "deviation_at_130",
    "pods",
    "accepted",
    "failed",
    "cpu_s",
    "placements_per_s",
    "runs",
]
Sim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sim:
    """Runs the command on the two lists without any configuration; returns exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in os.environ:
        if name.startswith(("CORRAL_", "XDG_")):
            monkeypatch.delenv(name)
    Path("nodes.csv").write_text(NODES)
    Path("pods.csv").write_text(PODS)

    def run(*words: str) -> tuple[int, str, str]:
        code = run_command(["--nodes", "nodes.csv", "--pods", "pods.csv", *words])
        return code, *capsys.readouterr()

    return run


def test_json_of_one_strategy(sim: Sim) -> None:
    code, out, said = sim("--seeds", "7", "-o", "json")
    assert (code, said) == (0, "4 pods on 2 nodes with 10 CPUs and 4 GPUs\n")
    body = json.loads(out)
    assert list(body) == KEYS
    assert (body["strategy"], body["allocated_at_100"], body["allocated_at_130"]) == ("default", 50.0, 50.0)
    assert (body["pods"], body["accepted"], body["failed"]) == (5, 2, 3)
    assert body["cpu_s"] > 0
    assert body["placements_per_s"] > 0
    (one,) = body["runs"]
    assert (one["seed"], one["pods"], one["allocated_at_130"]) == (7, 5, 50.0)


def test_several_strategies_and_seeds_side_by_side(sim: Sim) -> None:
    Path("mine.toml").write_text('[scheduler]\npicker = "tightest"\n')
    code, out, _ = sim(
        "--strategy", "best-fit,mine.toml,best-fit", "--config", "mine.toml", "--seeds", "1-2", "-o", "json"
    )
    assert code == 0
    bodies = json.loads(out)
    assert [body["strategy"] for body in bodies] == ["best-fit", "mine.toml"]
    assert [[run["seed"] for run in body["runs"]] for body in bodies] == [[1, 2], [1, 2]]


def test_a_configuration_alone_is_the_strategy(sim: Sim) -> None:
    Path("mine").write_text("[scheduler.scorers]\nspread = 1\n")
    _, out, _ = sim("--config", "mine", "--seeds", "1", "-o", "json")
    assert json.loads(out)["strategy"] == "mine"


def test_a_table_for_people(sim: Sim) -> None:
    code, out, _ = sim("--strategy", "least-loaded", "--seeds", "1")
    assert code == 0
    heading, row = out.splitlines()
    assert heading.split()[:5] == ["STRATEGY", "AT", "100%", "AT", "130%"]
    assert row.split()[:6] == ["least-loaded", "50.00%", "50.00%", "0.00", "2", "3"]


def test_csv_has_a_line_a_run(sim: Sim) -> None:
    _, out, _ = sim("--seeds", "3", "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["strategy"], row["seed"], row["accepted"], row["allocated_at_130"]) == (
        "default",
        "3",
        "2",
        "50.0",
    )


def test_pods_that_split_gpus_are_mentioned(sim: Sim) -> None:
    Path("pods.csv").write_bytes(gzip.compress((PODS + "q,1000,1024,2,500,\n").encode()))
    code, _, said = sim("--seeds", "1", "-o", "json")
    assert code == 0
    assert "1 pod asks for parts of several GPUs: whole GPUs are held" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--strategy", "bestfit"], "there is no strategy 'bestfit'\n  Did you mean 'best-fit'?"),
        (["--strategy", "none.toml"], "none.toml: there is no such file"),
        (["--seeds", "many"], "--seeds: cannot read 'many'"),
        (["--pods", "nowhere.csv"], "nowhere.csv: No such file or directory"),
        (["--nodes", "pods.csv"], "pods.csv: line 1: there is no column 'sn'"),
        (["--pods", "broken.csv"], "broken.csv: line 6: gpu_milli: '\ufffd[31m' is not a whole number"),
    ],
)
def test_invalid_arguments_are_refused_in_one_sentence(sim: Sim, words: list[str], said: str) -> None:
    Path("broken.csv").write_text(PODS + "q,1,1,1,\x1b[31m,\n")
    code, out, told = sim(*words)
    assert code in (1, 2)
    assert said in told.replace("\\x1b", "\ufffd")
    assert out == ""


def test_both_lists_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--nodes", "nodes.csv"]) == 2
    assert "Missing option '--pods'" in capsys.readouterr().err
