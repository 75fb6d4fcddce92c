"""A store written by any released version must load. The files are never regenerated."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from controller.core.model.rows import Batch, JobRow, JournalEntry, NodeRow
from controller.store.migrate import MIGRATIONS
from controller.store.store import Store

FROZEN = Path(__file__).parent / "frozen"

QUEUED = JobRow(1, "ada", "ml", "default", "träin", "QUEUED", 1e9, None, "k-1", None, '{"gpus":8}', "{}")
ELEMENT = JobRow(3, "bob", "ml", "gpu", "", "RUNNING", 1e9 + 0.125, None, "", 2, '{"gpus":0.25}', '{"n":1}')
ENDED = JobRow(4, "bob", "ml", "gpu", "", "FAILED", 1e9 + 1, 1e9 + 2.5, "k-2", 2, "{}", '{"code":7}')
NODE = NodeRow("gpu01", "up", '{"gpus":8}')
ENTRIES = (
    JournalEntry(1, 1e9, "JobQueued", 1, None, '{"name":"träin"}'),
    JournalEntry(2, 1e9 + 0.1, "NodeCame", None, "gpu01", ""),
    JournalEntry(3, 1e9 + 0.2, "JobPlaced", 3, "gpu01", '{"gpus":["GPU-0"]}'),
    JournalEntry(4, 1e9 + 2.5, "JobEnded", 4, None, "{}"),
)
COMMITS = (
    Batch(ENTRIES[:1], (QUEUED,), ()),
    Batch(ENTRIES[1:3], (ELEMENT,), (NodeRow("gpu01", "away", ""),)),
    Batch(ENTRIES[3:], (ENDED,), (NODE,)),
)


def test_every_version_has_its_file() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    versions = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    assert {path.name.split(".")[0] for path in FROZEN.glob("*.db.gz")} == versions


@pytest.mark.parametrize("version", sorted(path.name for path in FROZEN.glob("*.db.gz")))
def test_store_of_every_old_version_loads_and_can_be_written(tmp_path: Path, version: str) -> None:
    database = tmp_path / "corral.db"
    database.write_bytes(gzip.decompress((FROZEN / version).read_bytes()))
    for seq in (5, 6):
        with closing(Store.open(f"sqlite:///{database}")) as store:
            loaded = store.load()
            assert loaded.jobs == [QUEUED, ELEMENT]
            assert loaded.ended == [ENDED]
            assert loaded.nodes == [NODE]
            assert loaded.next_job == 5
            assert store.journal(0, 4) == list(ENTRIES)
            assert store.numbers_of_key("ada", "k-1") == (1,)
            assert store.jobs_of_array(2) == [ELEMENT, ENDED]
            # The sample entry has only a part of the fields of a real one.
            assert store.verify().problems == ("entry 1 of the journal (JobQueued) cannot be parsed",)
            store.commit(Batch((JournalEntry(seq, 2e9, "NodeCame", None, "gpu01", ""),), (), ()))


def test_usage_of_jobs_older_than_usage_records_is_read_from_their_rows(tmp_path: Path) -> None:
    database = tmp_path / "corral.db"
    database.write_bytes(gzip.decompress((FROZEN / "0002.db.gz").read_bytes()))
    use = {"mean": 50.0, "p95": 80, "peak_mib": 5, "wh": 7.0}
    held = {"node": "n1", "cpu_milli": 1, "memory_mib": 1, "gpus": [{"uuid": "G", "milli": 500}]}
    times = {"started_at": 10.0, "ended_at": 30.0}
    member = {"allocation": held, **times, "cpu_s": 3.0, "use": use}
    body = {"index": 5, "attempt": 2, "members": [member], "spent_gpu_s": 8.0, "spent_wh": 1.0}
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE jobs SET body = ? WHERE id = 4", (json.dumps(body),))
        connection.execute("UPDATE jobs SET submitted_at = 5, ended_at = 31 WHERE id = 4")
    connection.close()
    with closing(Store.open(f"sqlite:///{database}")) as store:
        [job], _ = store.usage("job", 0.0, 100.0, 10)
        assert (job.name, job.jobs, job.gpu_s, job.busy_s, job.wh) == ("2_5", 1, 18.0, 5.0, 8.0)
        [half], _ = store.usage("user", 20.0, 100.0, 10)
        assert (half.name, half.gpu_s, half.cpu_s, half.peak_mib) == ("bob", 5.0, 1.5, 5)
