"""Records are read as watched jobs write them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.oracle.oracle import WATCHED_JOB
from tests.oracle.records import Life, read

TOLD = {
    "CORRAL_JOB_ID": "7",
    "CORRAL_ATTEMPT": "2",
    "CORRAL_NODE": "gpu01",
    "CORRAL_NODE_RANK": "1",
    "CORRAL_CPU_MILLI": "500",
    "CORRAL_MEMORY_MIB": "64",
    "CUDA_VISIBLE_DEVICES": "",
}


def start(folder: Path, until: object, outcome: int, **told: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-IS", str(WATCHED_JOB), str(folder), str(until), str(outcome)]
    return subprocess.Popen(words, env={**TOLD, **told})


def run_watched_job(folder: Path, until: object, outcome: int, **told: str) -> int:
    with start(folder, until, outcome, **told) as process:
        return process.wait()


def only(folder: Path) -> Life:
    [life] = read(folder)
    return life


@pytest.mark.parametrize("outcome", [0, 3, -9])
def test_run_of_an_attempt_is_read(tmp_path: Path, outcome: int) -> None:
    assert run_watched_job(tmp_path, 1, outcome) == outcome
    life = only(tmp_path)
    assert (life.job, life.attempt, life.rank, life.node) == (7, 2, 1, "gpu01")
    assert (life.cpu_milli, life.memory_mib, life.gpus, life.outcome) == (500, 64, (), outcome)
    assert life.began < life.last


def test_gpus_of_a_run_are_read(tmp_path: Path) -> None:
    run_watched_job(tmp_path, 0, 0, CUDA_VISIBLE_DEVICES="GPU-1,GPU-2")
    assert only(tmp_path).gpus == ("GPU-1", "GPU-2")


def test_run_that_waits_for_a_file_is_read(tmp_path: Path) -> None:
    records, gate = tmp_path / "records", tmp_path / "gate"
    records.mkdir()
    with start(records, gate, 0) as waiting:
        while not any(path.read_text().count("B") > 1 for path in records.iterdir()):
            assert waiting.poll() is None
        gate.touch()
    assert only(records).outcome == 0


def test_second_run_of_the_same_attempt_is_detected(tmp_path: Path) -> None:
    for outcome in (0, 1):
        run_watched_job(tmp_path, 0, outcome)
    assert [life.outcome for life in read(tmp_path)] == [0, 1]


def test_run_without_output_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "7.1.0.boot").touch()
    assert read(tmp_path) == []
