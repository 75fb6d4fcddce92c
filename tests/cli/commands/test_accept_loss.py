"""corral admin accept-loss on a PostgreSQL database that lost an acknowledged entry."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.model.skipped_numbers import NONE_SKIPPED, SkippedNumbers
from controller.daemon.shared_store import StrayAttempts
from controller.store.errors import StoreRefused
from controller.store.store import Store
from tests.contract.test_stores import by_hand
from tests.controller.store.samples import batch, entry, job
from tests.controller.store.servers import Absent, PostgresUnderTest, postgres
from tests.engine_harness import BACKFILLS, PIPELINE, EngineHarness, spec
from tests.programs import run_corral
from wire.agent.orders import Stop
from wire.agent.reports import AttemptStatus
from wire.names import JobState


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresUnderTest]:
    try:
        with postgres() as running:
            yield running
    except Absent as missing:
        pytest.skip(str(missing))


def test_accepted_loss_lets_the_controller_start_again(server: PostgresUnderTest, tmp_path: Path) -> None:
    url, memory = server.new_database(), tmp_path / "journal-head"
    with closing(Store.open(url, memory=memory)) as store:
        store.commit(batch(entry(1)))
        store.commit(batch(entry(2)))
        refused = corral("--store", url, "--yes")
        assert refused.returncode == 1
        assert "Stop all controllers" in refused.stderr
    by_hand(url, "DELETE FROM journal WHERE seq = 2")
    with pytest.raises(StoreRefused, match="went back in time"):
        Store.open(url, memory=memory)
    unsure = corral("--store", url)
    assert unsure.returncode == 2
    assert "--yes" in unsure.stderr
    done = corral("--store", url, "--yes", "--epoch", "9", "-o", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["seq"], told["epoch"]) == (1, 10)
    with closing(Store.open(url, memory=memory)) as store:
        assert store.epoch == 11
        assert store.accepted_loss
    with closing(Store.open(url, memory=memory)) as store:
        assert not store.accepted_loss


def test_ids_of_lost_jobs_and_attempts_are_not_given_again(server: PostgresUnderTest) -> None:
    url = server.new_database()
    with closing(Store.open(url)) as store:
        store.commit(batch(entry(1), job(56), job(7, array=60, body='{"attempt":3}')))
        assert store.load().skipped == NONE_SKIPPED
    firsts = []
    for _ in range(2):
        assert corral("--store", url, "--yes").returncode == 0
        with closing(Store.open(url)) as store:
            loaded = store.load()
            assert loaded.next_job == loaded.skipped.first_id
            firsts.append((loaded.next_job, loaded.skipped.first_attempt))
    assert firsts == [(101_000, 1_003), (201_000, 2_003)]


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_attempts_of_older_jobs_have_numbers_that_no_node_knows(backfill: str) -> None:
    made = EngineHarness(replace(PIPELINE, backfill=BACKFILLS[backfill]))
    made.join("gpu01")
    old, new = made.submit(spec(gpus=8)), made.submit(spec(gpus=8))
    made.state.skipped = SkippedNumbers(new, 1_001)
    for each in (old, new):
        made.tick()
        made.start(each)
        made.exit(each)
    assert (made.job(old).attempt, made.job(new).attempt) == (1_001, 1)


@pytest.mark.parametrize(("recorded", "state"), [(True, JobState.COMPLETED), (False, JobState.FAILED)])
def test_outcome_that_the_database_lost_is_asked_of_the_agent(recorded: bool, state: JobState) -> None:
    made = EngineHarness()
    made.join("gpu01")
    job = made.submit(spec(gpus=8))
    made.tick()
    made.start(job)
    made.state.skipped = SkippedNumbers(101_000, 1_001)
    made.sent.clear()
    made.join("gpu01")
    assert [(each.node, type(each.frame), each.frame.why) for each in made.sent] == [
        ("gpu01", Stop, "node_lost")
    ]
    if recorded:
        made.exit(job)
    else:
        made.exit(job, None, why="node_lost")
    assert made.job(job).state is state


def test_no_job_starts_while_a_node_runs_an_attempt_that_the_database_lacks() -> None:
    made = EngineHarness()
    for node in ("gpu01", "gpu02"):
        made.join(node)
    known = made.submit(spec(gpus=8))
    made.tick()
    made.start(known)
    strays = StrayAttempts(lambda: made.state)
    lost = AttemptStatus(7, 1, started_at=made.now)
    strays.saw("gpu02", [lost])
    assert not strays.delay_starts
    strays.begin()
    strays.saw("gpu01", [AttemptStatus(known, 1, started_at=made.now)])
    assert strays.delay_starts, "gpu02 has not connected"
    strays.saw("gpu02", [lost, AttemptStatus(known, 1, started_at=made.now)])
    strays.ended("gpu02", replace(lost, ended_at=made.now))
    assert strays.delay_starts, "gpu02 runs a job that the database shows on gpu01"
    strays.ended("gpu02", AttemptStatus(known, 1, ended_at=made.now))
    assert not strays.delay_starts


def test_sqlite_store_is_refused(tmp_path: Path) -> None:
    refused = corral("--store", f"sqlite:///{tmp_path}/corral.db", "--yes")
    assert refused.returncode == 1
    assert "restore --accept-loss" in refused.stderr


def corral(*words: str) -> subprocess.CompletedProcess[str]:
    return run_corral("admin", "accept-loss", *words, environment={**os.environ, "HOME": "/nonexistent"})
