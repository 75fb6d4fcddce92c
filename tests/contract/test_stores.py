"""The contract of every store."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, inspect, make_url, text

from controller.core.model.rows import Batch, JobRow, JournalEntry, NodeRow, NoteRow, UsageRow
from controller.store import migrate
from controller.store.chain import Head
from controller.store.errors import StoreBroken, StoreRefused
from controller.store.maintenance.verify import VerifyReport
from controller.store.read_only_store import StoreReader
from controller.store.store import Store
from controller.store.tables import metadata
from controller.store.usage import UsageSum
from tests.controller.store.samples import Model, batch, entry, history, job
from tests.controller.store.scratch import scratch
from tests.controller.store.servers import Absent, PostgresUnderTest, postgres
from tests.examples import examples


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresUnderTest]:
    try:
        with postgres() as running:
            yield running
    except Absent as missing:
        pytest.skip(str(missing))


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Returns URLs of stores that do not exist yet."""
    if request.param == "postgresql":
        running: PostgresUnderTest = request.getfixturevalue("server")
        yield running.new_database
        return
    with scratch() as directory:
        names = itertools.count()
        yield lambda: f"sqlite:///{directory}/{next(names)}.db"


@pytest.fixture
def url(new_url: Callable[[], str]) -> str:
    return new_url()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with closing(Store.open(url)) as opened:
        yield opened


def by_hand(url: str, statement: str, **values: object) -> None:
    """Change the database directly, without the store."""
    engine = create_engine(make_url(url.replace("postgresql:", "postgresql+psycopg:")))
    with engine.begin() as connection:
        assert connection.execute(text(statement), values).rowcount == 1
    engine.dispose()


def test_a_new_store_is_empty(store: Store) -> None:
    loaded = store.load()
    assert (loaded.last_seq, loaded.next_job) == (0, 1)
    assert (loaded.jobs, loaded.ended, loaded.nodes) == ([], [], [])
    assert store.journal(0, 10) == []
    assert store.verify().good


def test_committed_content_is_loaded_after_reopening(url: str) -> None:
    model = Model()
    for turn, _ in zip(history(1), range(30), strict=False):
        with closing(Store.open(url)) as store:
            store.commit(turn)
            model.apply(turn)
            model.check(store)
    with closing(Store.open(url)) as store:
        model.check(store)
        assert store.verify().good


def test_a_store_keeps_its_name(url: str) -> None:
    with closing(Store.open(url)) as store:
        name = store.load().meta["id"]
    with closing(Store.open(url)) as store:
        assert store.load().meta["id"] == name


def test_row_without_spec_keeps_the_constant_fields(store: Store) -> None:
    first = job(1, user="ada", key="k", array=7, spec="{}", submitted_at=5.0)
    store.commit(batch(first))
    moved = replace(first, state="RUNNING", queue="gpu", project="p", name="n", body="{}", spec=None)
    store.commit(batch(replace(moved, user="eve", key="other", array=9, submitted_at=6.0)))
    assert store.job(1) == replace(moved, spec="{}")
    assert store.numbers_of_key("ada", "k") == (1,)
    assert store.numbers_of_key("eve", "other") == ()
    assert store.verify().good


def test_a_row_with_spec_replaces_the_whole_row(store: Store) -> None:
    store.commit(batch(job(1)))
    edited = job(1, user="bob", spec='{"command":["false"]}', key="k", state="CANCELLED", ended_at=3.0)
    store.commit(batch(edited))
    assert store.job(1) == edited


def test_ended_jobs_are_loaded_newest_first_up_to_a_limit(url: str) -> None:
    ends = {1: 50.0, 2: 10.0, 3: None, 4: 90.0, 5: 20.0}
    with closing(Store.open(url, keep=2)) as store:
        store.commit(batch(*(job(number, ended_at=end) for number, end in ends.items())))
        loaded = store.load()
        assert [row.id for row in loaded.jobs] == [3]
        assert [row.id for row in loaded.ended] == [4, 1]
        assert store.job(2) == job(2, ended_at=10.0)
        assert store.job(6) is None


def test_array_ids_are_not_used_for_jobs(store: Store) -> None:
    store.commit(batch(job(3), job(4, array=9)))
    assert store.load().next_job == 10


def test_journal_is_read_in_pages_for_all_jobs_or_one(store: Store) -> None:
    entries = [entry(seq, job=seq % 3 or None) for seq in range(1, 11)]
    store.commit(batch(*entries[:4]))
    store.commit(batch(*entries[4:]))
    assert store.journal(0, 3) == entries[:3]
    assert store.journal(3, 100) == entries[3:]
    assert store.journal(4, 2, job=2) == [entries[4], entries[7]]
    assert store.journal(10, 100) == []


def test_jobs_are_found_by_state_user_key_and_array(store: Store) -> None:
    rows = [
        job(1, user="ada", state="QUEUED", key="k1"),
        job(2, user="bob", state="FAILED", ended_at=1.0, key="k1"),
        job(3, user="ada", state="FAILED", ended_at=2.0, array=3, key="k2"),
        job(4, user="ada", state="RUNNING", array=3, key="k2"),
    ]
    store.commit(batch(*rows))

    def numbers(found: list[JobRow]) -> list[int]:
        return [row.id for row in found]

    assert numbers(store.jobs()) == [4, 3, 2, 1]
    assert numbers(store.jobs(limit=2)) == [4, 3]
    assert numbers(store.jobs(after=3, limit=2)) == [2, 1]
    assert numbers(store.jobs(states=["FAILED"])) == [3, 2]
    assert numbers(store.jobs(states=["FAILED", "QUEUED"], user="ada")) == [3, 1]
    assert numbers(store.jobs(states=[])) == []
    assert store.numbers_of_key("ada", "k1") == (1,)
    assert store.numbers_of_key("ada", "k2") == (3, 4)
    assert store.numbers_of_key("ada", "") == ()
    assert numbers(store.jobs_of_array(3)) == [3, 4]


@pytest.mark.parametrize(
    "wrong",
    [
        batch(entry(3), job(2)),
        batch(entry(1), job(2)),
        batch(entry(2), entry(4), job(2)),
        batch(entry(2), job(2, spec=None)),
        batch(entry(2), job(2, spec=None), job(3)),
        batch(entry(2), job(2, name="\ud800")),
        batch(entry(2, body="\ud800"), job(2)),
    ],
)
def test_invalid_batch_is_refused_whole(store: Store, wrong: Batch) -> None:
    good = batch(entry(1), job(1))
    store.commit(good)
    with pytest.raises(ValueError, match=r"cannot follow|needs its spec|surrogates"):
        store.commit(wrong)
    model = Model()
    model.apply(good)
    model.check(store)
    store.commit(batch(entry(2), job(2)))
    assert store.verify().good


def test_second_controller_is_refused_and_the_owner_named(url: str, store: Store) -> None:
    with pytest.raises(StoreRefused, match=rf"Another controller \(.*pid {os.getpid()} on "):
        Store.open(url)
    store.commit(batch(entry(1)))
    store.close()
    Store.open(url).close()


def test_readers_see_whole_commits_while_the_writer_works(store: Store) -> None:
    reports: list[VerifyReport] = []
    enough = threading.Event()

    def read() -> None:
        try:
            while len({report.head.seq for report in reports}) < 5:
                reports.append(store.verify())
        finally:
            enough.set()

    reader = threading.Thread(target=read)
    reader.start()
    number = 0
    while not enough.is_set():
        number += 1
        store.commit(batch(*(entry(7 * number - 6 + i, job=number) for i in range(7)), job(number)))
    reader.join()
    assert len(reports) >= 5
    assert all(report.good and report.head.seq == 7 * report.jobs for report in reports)


@pytest.mark.parametrize(
    "change",
    [
        "at = at + 1",
        "kind = 'JobCancelled'",
        "job = 2",
        "job = NULL",
        "node = 'n'",
        "node = ''",
        "body = '{}'",
        "seq = 1000",
    ],
)
def test_changed_entry_is_detected(url: str, store: Store, change: str) -> None:
    for turn in range(1, 8):
        store.commit(batch(entry(turn)))
    assert store.verify().good
    by_hand(url, f"UPDATE journal SET {change} WHERE seq = 4")
    assert any("entry 4 of the journal" in problem for problem in store.verify().problems)
    store.close()
    with pytest.raises(StoreRefused, match="entry 4 of the journal"):
        Store.open(url)


def test_missing_entry_is_detected(url: str, store: Store) -> None:
    store.commit(batch(*(entry(seq) for seq in range(1, 8))))
    by_hand(url, "DELETE FROM journal WHERE seq = 4")
    assert store.verify().problems == ("entry 4 of the journal is missing",)
    store.close()
    with pytest.raises(StoreRefused, match="entry 4 of the journal is missing"):
        Store.open(url)


def test_change_in_old_journal_does_not_stop_a_start_but_is_detected(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.store.journal_tail.TAIL", 5)
    store.commit(batch(*(entry(seq) for seq in range(1, 21))))
    by_hand(url, "UPDATE journal SET body = 'x' WHERE seq = 4")
    store.close()
    with closing(Store.open(url)) as store:
        assert store.verify().problems == ("entry 4 of the journal is not what was written",)
        store.commit(batch(entry(21)))


@pytest.mark.parametrize("column", ["user", "project", "state", "submitted_at", "key", "spec", "body"])
def test_changed_job_is_detected(url: str, store: Store, column: str) -> None:
    store.commit(batch(entry(1), job(1), job(2)))
    by_hand(
        url, f'UPDATE jobs SET "{column}" = :value WHERE id = 2', value="7" if column != "submitted_at" else 7
    )
    assert store.verify().problems == ("the row of job 2 is not what was written",)
    for read in (store.load, lambda: store.job(2), store.jobs):
        with pytest.raises(StoreBroken, match="the row of job 2") as failure:
            read()
        assert failure.value.hint
    assert store.job(1) == job(1)


def test_changed_node_is_detected(url: str, store: Store) -> None:
    store.commit(batch(NodeRow("n1", "up", "{}")))
    by_hand(url, "UPDATE nodes SET state = 'drained'")
    assert store.verify().problems == ("the row of node n1 is not what was written",)


def test_changed_note_is_detected(url: str, store: Store) -> None:
    store.commit(batch(NoteRow("share", "vision", "{}"), NoteRow("share", "speech", "{}")))
    by_hand(url, "UPDATE notes SET body = '[]' WHERE name = 'vision'")
    assert store.verify().problems == ("the row of share vision is not what was written",)


def test_a_database_of_a_newer_version_is_refused(url: str, store: Store) -> None:
    store.close()
    by_hand(url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreRefused, match=r"written by a newer Corral \(tables 9999") as refused:
        Store.open(url)
    assert "newer version" in refused.value.hint


def test_database_of_another_program_is_refused(url: str, store: Store, new_url: Callable[[], str]) -> None:
    other = new_url()
    engine = create_engine(make_url(other.replace("postgresql:", "postgresql+psycopg:")))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE birds (name TEXT)"))
    engine.dispose()
    with pytest.raises(StoreRefused, match="tables of another program"):
        Store.open(other)


def test_a_new_store_has_the_tables_that_the_migrations_make(
    url: str, store: Store, new_url: Callable[[], str]
) -> None:
    """Both have the tables that the statements expect, and the number of the last migration."""
    store.close()
    made = _tables_of(url)
    assert {"journal", "jobs", "usage_days", "alembic_version"} <= made.keys()
    assert made == _tables_of(new_url(), migrated=True)


def _tables_of(url: str, *, migrated: bool = False) -> dict[str, list[Any]]:
    """Return the columns, the primary key and the indexes of each table."""
    engine = create_engine(make_url(url.replace("postgresql:", "postgresql+psycopg:")))
    with closing(engine.connect()) as connection, connection.begin():
        if migrated:
            migrate.run_migrations(connection, None, "")
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == migrate.NEWEST
        looked, found = inspect(connection), {}
        for table in looked.get_table_names():
            columns = {each["name"]: str(each) for each in looked.get_columns(table)}
            indexes = {each["name"]: each for each in looked.get_indexes(table)}
            for each in indexes.values():
                # SQLite returns the condition as it was written.
                where = str(each.pop("dialect_options", {}).get("sqlite_where", ""))
                each["where"] = where.replace('"', "").replace("!=", "<>")
            found[table] = [columns, looked.get_pk_constraint(table), indexes]
    engine.dispose()
    return found


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
times = st.floats(min_value=-1e12, max_value=1e12) | st.integers(0, 2**31).map(float)
numbers = st.integers(1, 2**62)
entries = st.builds(JournalEntry, st.just(0), times, texts, st.none() | numbers, st.none() | texts, texts)
jobs = st.builds(
    JobRow,
    id=st.integers(1, 6),
    user=texts,
    project=texts,
    queue=texts,
    name=texts,
    state=texts,
    submitted_at=times,
    ended_at=st.none() | times,
    key=texts,
    array=st.none() | numbers,
    spec=texts,
    body=texts,
)
nodes = st.builds(NodeRow, texts, texts, texts)
notes = st.builds(NoteRow, st.sampled_from(["share", "usage"]), texts, st.none() | texts)
batches = st.builds(
    Batch,
    st.lists(entries, max_size=4).map(tuple),
    st.lists(jobs, max_size=4, unique_by=lambda row: row.id).map(tuple),
    st.lists(nodes, max_size=3, unique_by=lambda row: row.name).map(tuple),
    st.lists(notes, max_size=3, unique_by=lambda row: (row.kind, row.name)).map(tuple),
)


@settings(max_examples=examples(24), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(batches, max_size=6), st.randoms(use_true_random=False))
def test_last_committed_batch_is_loaded(new_url: Callable[[], str], given: list[Batch], chance) -> None:
    url, model = new_url(), Model()
    store = Store.open(url)
    for turn in given:
        seq = len(model.entries)
        facts = tuple(replace(fact, seq=seq + place) for place, fact in enumerate(turn.entries, 1))
        rows = []
        for row in turn.jobs:
            known = model.jobs.get(row.id)
            if known is not None and chance.random() < 0.7:
                origin = {name: getattr(known, name) for name in ("user", "submitted_at", "key", "array")}
                row = replace(row, spec=None, **origin)
            rows.append(row)
        turn = Batch(facts, tuple(rows), turn.nodes, turn.notes)
        store.commit(turn)
        model.apply(turn)
        if chance.random() < 0.3:
            store.close()
            store = Store.open(url)
    model.check(store)
    assert store.verify().good
    store.close()


def used(job: int, since: float, until: float, **changes: object) -> UsageRow:
    """An attempt on two GPUs, half of them busy."""
    gpu_s = 2 * (until - since)
    whose = (job, 1, "n1", str(job), "ada", "vision", "default")
    row = UsageRow(*whose, since, until, gpu_s, gpu_s, gpu_s / 2, 90, 1_000, 8.0, 4.0)
    return replace(row, **changes)


def by_name(found: tuple[list[UsageSum], int]) -> dict[str, tuple[int, float]]:
    return {each.name: (each.jobs, each.gpu_s) for each in found[0]}


def test_usage_counts_the_part_of_each_attempt_within_the_window(store: Store) -> None:
    rows = (used(1, 100.0, 200.0), used(1, 300.0, 400.0, attempt=2), used(2, 0.0, 50.0, user="bob"))
    store.commit(Batch((), (), (), (), rows))
    [both, bob], total = store.usage("user", 0.0, 1_000.0, 10)
    assert (both.name, both.jobs, both.gpu_s, both.busy_s, both.wh, both.cpu_s) == ("ada", 1, 400, 200, 16, 8)
    assert (both.p95, both.peak_mib, bob.gpu_s, total) == (90, 1_000, 100.0, 2)
    assert by_name(store.usage("user", 150.0, 350.0, 10)) == {"ada": (1, 200.0)}
    assert by_name(store.usage("user", 200.0, 300.0, 10)) == {}
    assert by_name(store.usage("user", 25.0, 26.0, 10)) == {"bob": (1, 2.0)}


def test_usage_of_running_attempts_is_added_without_being_stored(store: Store) -> None:
    store.commit(Batch((), (), (), (), (used(1, 100.0, 200.0),)))
    running = [used(1, 300.0, 310.0, attempt=2), used(7, 300.0, 310.0, project="speech")]
    for _ in range(2):
        found = store.usage("project", 0.0, 1_000.0, 10, running)
        assert by_name(found) == {"vision": (1, 220.0), "speech": (1, 20.0)}
    assert by_name(store.usage("project", 0.0, 1_000.0, 10)) == {"vision": (1, 200.0)}
    assert by_name(store.usage("job", 0.0, 1_000.0, 10, running, {"project": "speech"})) == {"7": (1, 20.0)}
    assert by_name(store.usage("project", 0.0, 1_000.0, 10, running, {"user": "bob"})) == {}
    assert store.verify().good


def test_usage_report_is_limited_to_the_requested_length(store: Store) -> None:
    store.commit(Batch((), (), (), (), tuple(used(job, 0.0, float(job)) for job in range(1, 31))))
    found, total = store.usage("job", 0.0, 100.0, 3)
    assert [each.name for each in found] == ["30", "29", "28"]
    assert total == 30


def test_reader_needs_no_lock_and_reads_the_same(url: str, store: Store) -> None:
    store.commit(batch(entry(1), entry(2), job(1), NodeRow("n1", "up", "{}")))
    reader = StoreReader(url)
    assert reader.verify() == store.verify()
    assert reader.head() == store.verify().head
    assert reader.has(reader.head())
    assert not reader.has(Head(1, b"x"))
    store.commit(batch(entry(3)))
    assert reader.head().seq == 3
    store.close()
    assert reader.verify().head.seq == 3
