"""The model applies changes of the cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tui.recorded import LIVE, NOW, cluster, events, everything, gpu, job, jobs, node, nodes
from tui.data import cluster_feed, model
from tui.data.cluster_feed import Changes, ConnectionStatus
from tui.data.model import ClusterModel
from wire.names import JobState

ROWS = st.lists(
    st.builds(job, st.integers(1, 15), st.sampled_from(JobState)), max_size=10, unique_by=lambda row: row.id
)


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.booleans(), ROWS), max_size=10))
def test_counters_equal_a_full_count(parts: list[tuple[bool, list[object]]]) -> None:
    told = ClusterModel(lambda: NOW)
    for fresh, rows in parts:
        told.apply(Changes(LIVE, fresh, jobs=tuple(rows)))  # type: ignore[arg-type]
        assert +told.counts == Counter(row.state for row in told.jobs.rows.values())


def test_gpus_in_use_are_counted_in_shares() -> None:
    told = ClusterModel(lambda: NOW)
    told.apply(everything())
    assert (told.gpus, told.gpus_used) == (32, 19.5)
    told.apply(Changes(LIVE, nodes=(node("node-1", [gpu(0, 1, free=250), gpu(1)]),)))
    assert (told.gpus, told.gpus_used) == (26, 12.25)


def test_reload_forgets_rows_and_keeps_the_cursor() -> None:
    told = ClusterModel(lambda: NOW)
    told.apply(everything())
    told.jobs.narrow("user:bob")
    assert told.jobs.follow(12)
    told.jobs.toggle(12)
    told.jobs.toggle(37)
    told.apply(
        Changes(LIVE, True, cluster(), tuple(row for row in jobs() if row.id != 37), nodes(), events())
    )
    assert 37 not in told.jobs.rows
    assert (told.jobs.cursor, told.jobs.marks, told.jobs.filter.text) == (12, {12}, "user:bob")


def test_default_order_is_running_waiting_and_ended_newest_first() -> None:
    told = ClusterModel(lambda: NOW)
    rows = (
        job(1, JobState.COMPLETED, ended_at=NOW - 50),
        job(2, JobState.FAILED, ended_at=NOW - 10),
        job(3, priority=50, submitted_at=NOW - 9),
        job(4, priority=75, submitted_at=NOW - 3),
        job(5, priority=50, submitted_at=NOW - 20),
        job(6, JobState.RUNNING, started_at=NOW - 9),
        job(7, JobState.RUNNING, started_at=NOW - 2),
    )
    told.apply(Changes(LIVE, True, jobs=rows))
    assert [row.id for row in told.jobs] == [7, 6, 4, 5, 3, 2, 1]


def test_silence_counts_as_stale_on_a_live_connection() -> None:
    now = NOW
    told = ClusterModel(lambda: now)
    assert told.stale
    told.apply(Changes(LIVE))
    assert not told.stale
    now = NOW + model.SILENCE_S + 1
    assert told.stale
    assert told.silent_s() == pytest.approx(13)
    told.apply(Changes(ConnectionStatus("lost", now)))
    assert told.stale


def test_clock_of_the_controller_is_used() -> None:
    told = ClusterModel(lambda: NOW)
    told.apply(Changes(LIVE, cluster=replace(cluster(), now=NOW + 40)))
    assert told.now() == NOW + 40


def test_oldest_events_and_ended_jobs_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "KEPT_ENDED", 3)
    monkeypatch.setattr(model, "KEPT_EVENTS", 5)
    told = ClusterModel(lambda: NOW)
    one = events()[0]
    for number in range(1, 9):
        told.apply(
            Changes(
                LIVE,
                jobs=(job(number, JobState.COMPLETED), job(100 + number)),
                events=(replace(one, seq=number),),
            )
        )
    assert [row.seq for row in told.events] == [4, 5, 6, 7, 8]
    assert sorted(number for number in told.jobs.rows if number < 100) == [5, 6, 7, 8]
    assert told.counts[JobState.COMPLETED] == 4
    assert told.counts[JobState.QUEUED] == 8
    assert cluster_feed.KEPT_ENDED == 20_000
