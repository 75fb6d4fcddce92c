"""corral sim report, and corral sim run --report."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Corral


def test_generated_jobs_are_run_and_shown_in_the_report(corral: Corral, tmp_path: Path) -> None:
    made = corral("sim", "generate", "jobs.csv", "--jobs", "150", "--nodes", "2", "--seed", "4")
    assert (made.returncode, made.stdout) == (0, "")
    assert made.stderr.startswith("150 jobs of ")
    options = ("jobs.csv", "--nodes", "2", "--gpus", "8", "--compare", "fcfs,easy")
    shown = corral("sim", "report", *options, "-o", "page.html")
    assert shown.returncode == 0, shown.stderr
    assert "page.html: 0." in shown.stderr
    page = (tmp_path / "page.html").read_text()
    assert "fcfs and easy on jobs.csv" in page
    assert shown.stdout.splitlines()[1].split()[:2] == ["fcfs", "150"]
    again = corral("sim", "run", *options, "--report", "again.html", "-o", "json")
    assert [run["jobs"] for run in json.loads(again.stdout)] == [150, 150]
    bars = 'id="gantt-data">'
    assert (tmp_path / "again.html").read_text().split(bars)[1] == page.split(bars)[1]


def test_a_report_that_cannot_be_written_is_refused_before_the_work(corral: Corral, tmp_path: Path) -> None:
    corral("sim", "generate", "jobs.csv", "--jobs", "20")
    told = corral("sim", "report", "jobs.csv", "--nodes", "16", "--gpus", "8", "-o", "nowhere/page.html")
    assert told.returncode == 1
    assert "nowhere/page.html: No such file or directory" in told.stderr
    assert told.stdout == ""


def test_skipped_lines_are_counted_on_the_page(corral: Corral, tmp_path: Path) -> None:
    lines = ["submit,duration,gpus", "0,60,8", "0,60,9", "0,60,many"]
    (tmp_path / "jobs.csv").write_text("\n".join(lines))
    options = ("jobs.csv", "--nodes", "1", "--gpus", "8", "--skip-bad", "-o", "page.html")
    for more in ((), ("--compare", "fcfs,easy")):
        assert corral("sim", "report", *options, *more).returncode == 0
        told = "2 jobs of the log were not simulated: 1 refused, 1 on broken lines."
        assert told in (tmp_path / "page.html").read_text()


def test_report_without_jobs_can_be_made(corral: Corral, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("submit,duration,gpus\n0,60,9\n")
    assert corral("sim", "report", "jobs.csv", "--nodes", "1", "--gpus", "8").returncode == 0
    page = (tmp_path / "report.html").read_text()
    assert "0 jobs of 0 users were simulated on 1 node with 8 GPUs over 0s." in page
    assert "1 job of the log was not simulated: 1 refused." in page
