"""Retention on every kind of store keeps totals, ids, and a valid chain."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing

import pytest

from controller.core.model.rows import Batch, JournalEntry
from controller.sim.replay.journal import JournalRefused, read_journal
from controller.store.errors import StoreRefused
from controller.store.store import Store
from tests.contract.test_stores import by_hand, by_name, new_url, server, store, url, used
from tests.controller.store.samples import batch, entry, job

__all__ = ["new_url", "server", "store", "url"]

DAY = 86_400.0


def seal(store: Store, seq: int, through: int) -> None:
    body = json.dumps({"at": 1.0, "through": through, "digest": store.hash_of(through)})
    store.commit(batch(JournalEntry(seq, 1.0, "JournalSealed", None, None, body)))


def test_usage_of_deleted_jobs_is_kept_by_day_and_tenant(store: Store) -> None:
    rows = (
        used(1, 10.0, 110.0),
        used(1, 200.0, 300.0, attempt=2),
        used(2, 0.5 * DAY, 2.5 * DAY, p95=99),
        used(3, 10.0, 20.0, user="bob"),
        used(4, 10.0, 20.0),
    )
    jobs = [job(number, ended_at=float(number)) for number in (1, 2, 3)] + [job(4, ended_at=9.0)]
    store.commit(Batch((), tuple(jobs), (), (), rows))
    before = [store.usage(by, 0.0, 3 * DAY, 10) for by in ("user", "project", "queue")]
    for number in (1, 2, 3):
        store.delete_jobs([number])
    assert [store.usage(by, 0.0, 3 * DAY, 10) for by in ("user", "project", "queue")] == before
    assert by_name(store.usage("user", DAY, 2 * DAY, 10)) == {"ada": (0, 2 * DAY)}
    found, total = store.usage("job", 0.0, 3 * DAY, 10)
    assert ([each.name for each in found], total) == (["(deleted jobs)", "4"], 2)
    assert store.job(1) is None
    assert store.verify().good


def test_ids_of_deleted_jobs_are_not_reused(url: str) -> None:
    with closing(Store.open(url)) as store:
        store.commit(batch(job(1), job(8, ended_at=1.0), job(9, array=12, ended_at=1.0)))
        store.delete_jobs([8])
        store.delete_jobs([9])
    with closing(Store.open(url)) as store:
        assert store.load().next_job == 13
        store.delete_jobs([1])
    with closing(Store.open(url)) as store:
        assert store.load().next_job == 13


def test_oldest_jobs_are_deleted_by_age_and_number_and_live_arrays_kept(store: Store) -> None:
    store.commit(
        batch(
            *(job(number, ended_at=float(number)) for number in range(1, 7)),
            job(10, array=10, ended_at=0.5),
            job(11, array=10),
        )
    )
    assert store.old_jobs(3.0, 100, 100) == [1, 2]
    assert store.old_jobs(0.0, 100, 100) == []
    assert store.old_jobs(0.0, 3, 100) == [1, 2, 3, 4]
    assert store.old_jobs(0.0, 3, 2) == [1, 2]


def test_chain_verifies_from_the_seal_on_while_entries_are_deleted(url: str) -> None:
    with closing(Store.open(url)) as store:
        store.commit(batch(*(entry(seq, at=float(seq)) for seq in range(1, 31))))
        assert store.old_entries(11.0, 1_000, 0) == 10
        assert store.old_entries(0.0, 12, 0) == 18
        assert store.old_entries(1_000.0, 1_000, 7) == 23
        assert store.old_entries(1_000.0, 1_000, 70) < 1
        seal(store, 31, 20)
        assert store.sealed() == 20
        store.delete_entries(20, 15)
        assert (store.begins, store.verify().good) == (15, True)
    with closing(Store.open(url)) as store:
        assert store.sealed() == 20
        store.delete_entries(20, 15)
        store.delete_entries(20, 15)
        report = store.verify()
        assert (report.begins, report.head.seq, report.problems) == (20, 31, ())
        assert [each.seq for each in store.journal(0, 2)] == [21, 22]
        store.commit(batch(entry(32)))
    with closing(Store.open(url)) as store:
        assert store.load().last_seq == 32
        assert store.verify().good


@pytest.mark.parametrize(
    "forged",
    [
        "UPDATE meta SET value = '21 ' || substr(value, 4) WHERE name = 'base'",
        "UPDATE meta SET value = '20 ' || substr(value, 6) || '00' WHERE name = 'base'",
        "DELETE FROM meta WHERE name = 'base'",
        "DELETE FROM journal WHERE seq = 21",
    ],
)
def test_forged_first_entry_is_detected(url: str, forged: str) -> None:
    with closing(Store.open(url)) as store:
        store.commit(batch(*(entry(seq) for seq in range(1, 31))))
        seal(store, 31, 20)
        store.delete_entries(20, 100)
        by_hand(url, forged)
        assert not store.verify().good
    with pytest.raises(StoreRefused, match="of the journal is"):
        Store.open(url)


def test_entries_deleted_without_a_seal_are_detected(new_url: Callable[[], str]) -> None:
    url = new_url()
    with closing(Store.open(url)) as store:
        store.commit(batch(*(entry(seq) for seq in range(1, 31))))
        store.delete_entries(20, 100)
        [problem] = store.verify().problems
        assert problem == "the journal begins after entry 20, and no later entry records this deletion"


def test_row_without_journal_entries_is_detected(store: Store) -> None:
    spec = {"command": ["true"]}
    queued = {"job": 1, "at": 5.0, "spec": spec, "user": "ada", "key": "", "array": None}
    ended = {"job": 1, "at": 9.0, "state": "FAILED", "reason": "x"}
    facts = (
        JournalEntry(1, 5.0, "JobQueued", 1, None, json.dumps(queued)),
        JournalEntry(2, 9.0, "JobEnded", 1, None, json.dumps(ended)),
    )
    row = job(1, submitted_at=5.0, ended_at=9.0, state="FAILED", spec=json.dumps(spec))
    store.commit(Batch(facts, (row,), ()))
    report = store.verify()
    assert (report.compared, report.problems) == (1, ())
    store.commit(batch(job(1, submitted_at=5.0, ended_at=9.0, state="COMPLETED", user="eve")))
    [problem] = store.verify().problems
    assert "the row of job 1 is not what the journal says: user, state" in problem


@pytest.mark.parametrize("body", ["{", "[]", '{"job": 1}'])
def test_entry_that_cannot_be_parsed_is_detected(store: Store, body: str) -> None:
    """Its hash is correct: a program other than Corral has written the entry."""
    store.commit(batch(entry(1, kind="JobQueued", body=body), entry(2), job(1)))
    report = store.verify()
    assert (report.compared, report.problems) == (0, ("entry 1 of the journal (JobQueued) cannot be parsed",))


def test_damaged_announcement_of_a_deletion_is_detected(store: Store, url: str) -> None:
    store.commit(batch(*(entry(seq) for seq in range(1, 31))))
    seal(store, 31, 20)
    by_hand(url, "UPDATE journal SET body = '{' WHERE seq = 31")
    assert store.verify().problems == ("entry 31 of the journal is not what was written",)


def test_journal_without_its_beginning_is_not_replayed(store: Store, url: str) -> None:
    store.commit(batch(*(entry(seq) for seq in range(1, 31))))
    seal(store, 31, 20)
    store.delete_entries(20, 100)
    with pytest.raises(JournalRefused, match="begins after entry 20: retention") as refused:
        read_journal(url)
    assert "journal_days = 0" in refused.value.hint
