"""corral admin accept-loss on a PostgreSQL database that lost an acknowledged entry."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.store.errors import StoreRefused
from controller.store.store import Store
from tests.contract.test_stores import by_hand
from tests.controller.store.samples import batch, entry
from tests.controller.store.servers import Absent, PostgresUnderTest, postgres
from tests.programs import run_corral


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


def test_sqlite_store_is_refused(tmp_path: Path) -> None:
    refused = corral("--store", f"sqlite:///{tmp_path}/corral.db", "--yes")
    assert refused.returncode == 1
    assert "restore --accept-loss" in refused.stderr


def corral(*words: str) -> subprocess.CompletedProcess[str]:
    return run_corral("admin", "accept-loss", *words, environment={**os.environ, "HOME": "/nonexistent"})
