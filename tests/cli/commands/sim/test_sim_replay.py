"""corral sim replay as users run it: tables, JSON, CSV, and journals that cannot be read."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from controller.core.model.events.event import Event
from controller.core.model.rows import Batch
from controller.daemon.store_threads import entry_of
from controller.store.store import Store
from tests.cli.conftest import Corral
from tests.controller.sim.test_replay import lived, starts

JOBS = 60


@pytest.fixture(scope="module")
def journal() -> list[Event]:
    return lived("fcfs", JOBS)


def keep(state: Path, journal: Sequence[Event]) -> Store:
    """A controller's state directory that holds this journal, and its open store."""
    state.mkdir(exist_ok=True)
    store = Store.open(f"sqlite:///{state}/corral.db")
    store.commit(Batch(tuple(entry_of(seq, event) for seq, event in enumerate(journal, 1)), (), ()))
    return store


@pytest.fixture
def state(tmp_path: Path, journal: list[Event]) -> Path:
    keep(tmp_path / "state", journal).close()
    (tmp_path / "fcfs.toml").write_text('[scheduler]\norder = "fifo"\nbackfill = "none"\n')
    return tmp_path / "state"


def test_replay_table_compares_the_journal_with_other_policies(
    corral: Corral, state: Path, journal: list[Event]
) -> None:
    done = corral("sim", "replay", "state", "--compare", "fcfs.toml,sjf", "--top", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["POLICY", "JOBS", "MEAN"]
    assert [line.split()[0] for line in lines[1:4]] == ["recorded", "fcfs", "sjf"]
    assert lines[1].split()[1:] == lines[2].split()[1:] != lines[3].split()[1:]
    count = len(starts(journal))
    assert f"fcfs: all {count} placements at the same time in the same place" in done.stderr
    assert "60 jobs on 4 nodes" in done.stderr
    at = lines.index("sjf: jobs that gain most")
    assert lines[at + 1].split() == ["JOB", "NAME", "USER", "GPUS", "WAITED", "WOULD", "WAIT", "SOONER"]
    assert lines[at + 4 : at + 6] == ["", "sjf: jobs that lose most"]
    assert lines[at + 6].split()[-1] == "LATER"
    assert len(lines) == at + 9
    assert not [line for line in lines if line.startswith("fcfs: jobs")]


def test_replay_json_names_jobs_that_start_sooner_and_later(
    corral: Corral, state: Path, journal: list[Event]
) -> None:
    done = corral("sim", "replay", "state/corral.db", "--order", "shortest", "-o", "json")
    body = json.loads(done.stdout)
    assert list(body) == ["api_version", "recorded", "runs"]
    [run] = body["runs"]
    assert (run["policy"], run["placements"]) == ("shortest+easy", len(starts(journal)))
    assert run["as_recorded"] < run["placements"]
    assert run["mean_wait_s"] < body["recorded"]["mean_wait_s"]
    assert run["running"] + run["waiting"] + run["jobs"] == body["recorded"]["jobs"] == JOBS
    gains = [change["gain_s"] for change in run["gain"]]
    assert gains == sorted(gains, reverse=True)
    assert min(gains) >= 1
    assert max(change["gain_s"] for change in run["lose"]) <= -1
    assert all(change["waited_s"] - change["would_wait_s"] == change["gain_s"] for change in run["lose"])


def test_every_job_and_every_figure_as_csv(corral: Corral, state: Path) -> None:
    done = corral("sim", "replay", "state", "--config", "fcfs.toml", "--jobs-csv", "jobs.csv", "-o", "csv")
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row.pop("policy") for row in rows] == ["recorded", "fcfs"]
    assert rows[0] == rows[1]
    with (state.parent / "jobs.csv").open() as file:
        jobs = list(csv.DictReader(file))
    assert ",".join(jobs[0]) == "job,user,submit,recorded_start,recorded_end,fcfs_start,fcfs_end"
    assert len(jobs) == JOBS
    assert all(
        (job["recorded_start"], job["recorded_end"]) == (job["fcfs_start"], job["fcfs_end"]) for job in jobs
    )


def test_replay_reads_the_configured_journal_by_default(corral: Corral, state: Path) -> None:
    (state.parent / "scheduler.toml").write_text(f'[controller]\nstate_dir = "{state}"\n')
    assert "60 jobs on 4 nodes" in corral("sim", "replay").stderr


@pytest.mark.parametrize("in_use", [False, True])
def test_replay_only_reads_the_journal(
    corral: Corral, tmp_path: Path, journal: list[Event], in_use: bool
) -> None:
    store = keep(tmp_path / "state", journal)
    if not in_use:
        store.close()

    def files() -> dict[str, tuple[int, int]]:
        return {
            each.name: (each.stat().st_size, each.stat().st_mtime_ns)
            for each in os.scandir(tmp_path / "state")
        }

    before = files()
    done = corral("sim", "replay", "state")
    assert (done.returncode, "60 jobs" in done.stderr) == (0, True)
    after = files()
    if in_use:
        before.pop("corral.db-shm"), after.pop("corral.db-shm")  # because readers write their locks there
        store.close()
    assert after == before


# --- journals that cannot be replayed ---


def spoil(state: Path, statement: str) -> None:
    with sqlite3.connect(state / "corral.db") as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "UPDATE journal SET body = body || ' ' WHERE seq = 9",
            "entry 9 of the journal is not what was written",
        ),
        ("DELETE FROM journal WHERE seq = 7", "entry 7 of the journal is missing"),
        ("DELETE FROM journal", "is empty"),
        ("DELETE FROM meta", "holds no journal of Corral"),
        ("DROP TABLE meta", "holds no journal of Corral"),
        ("DROP TABLE journal", "no such table: journal"),
    ],
)
def test_a_damaged_journal_is_refused(corral: Corral, state: Path, statement: str, told: str) -> None:
    spoil(state, statement)
    done = corral("sim", "replay", "state")
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def nothing(_state: Path) -> None: ...


def text(state: Path) -> None:
    (state / "corral.db").write_text("not a database " * 100)


def empty(state: Path) -> None:
    (state / "corral.db").write_bytes(b"")


@pytest.mark.parametrize(
    ("word", "make", "told"),
    [
        ("nowhere", nothing, "there is no journal in"),
        (".", nothing, "there is no journal in"),
        ("state", text, "file is not a database"),
        ("state", empty, "holds no journal of Corral"),
        ("mysql://localhost/x", nothing, "mysql is not a database that Corral knows"),
        ("://", nothing, "is not one of a database"),
    ],
)
def test_file_that_is_no_journal_is_refused(
    corral: Corral, state: Path, word: str, make: Callable[[Path], None], told: str
) -> None:
    make(state)
    done = corral("sim", "replay", word)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 2, "what, and what next"


def test_journal_entry_of_another_version_is_named(
    corral: Corral, tmp_path: Path, journal: list[Event]
) -> None:
    (tmp_path / "state").mkdir()
    store = Store.open(f"sqlite:///{tmp_path}/state/corral.db")
    entry = entry_of(1, journal[0])
    store.commit(Batch((type(entry)(1, entry.at, "JobTeleported", None, None, "{}"),), (), ()))
    store.close()
    done = corral("sim", "replay", "state")
    assert done.returncode == 2
    assert "entry 1" in done.stderr
    assert "is a JobTeleported that this version cannot read" in done.stderr
