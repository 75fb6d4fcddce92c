"""corral sim generate as users run it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Corral


def test_stdout_is_the_file_and_the_ending_chooses_the_form(corral: Corral, tmp_path: Path) -> None:
    options = ("--jobs", "20", "--seed", "-3", "--model", "A100")
    told = corral("sim", "generate", *options)
    assert len([*csv.DictReader(told.stdout.splitlines())]) == 20
    corral("sim", "generate", *options, "jobs.jsonl")
    lines = (tmp_path / "jobs.jsonl").read_text().splitlines()
    assert [json.loads(line)["submit"] for line in lines] == [
        int(row["submit"]) for row in csv.DictReader(told.stdout.splitlines())
    ]
    corral("sim", "generate", *options, "jobs.swf")
    assert (tmp_path / "jobs.swf").read_text().startswith("; Version: 2.2\n")
    corral("sim", "generate", *options, "jobs.txt", "--format", "csv")
    assert (tmp_path / "jobs.txt").read_text() == told.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--jobs", "9", "--days", "2", "--load", "1"), "--load cannot all be given"),
        (("jobs.parquet",), "jobs.parquet: .parquet is none of csv, jsonl, swf"),
        (("--format", "xml"), "--format: 'xml' is none of csv, jsonl, swf"),
        (("--memory", "lots"), "'--memory': 'lots' is not an amount of memory"),
        (("--memory", "4G"), "--memory: 4G are less than 1G for each of 8 GPUs"),
        (("--model", "A100|H100"), "--model: 'A100|H100' is not the name of a model"),
        (("--days", "3650", "--nodes", "10000"), "more than 1,000,000 jobs"),
        (("--load", "0"), "'0' is not a number from 0.01 to 100"),
    ],
)
def test_impossible_generate_options_are_refused(
    corral: Corral, words: tuple[str, ...], complaint: str
) -> None:
    told = corral("sim", "generate", *words)
    assert (told.returncode, told.stdout) == (2, "")
    assert complaint in told.stderr
