"""The spool directory: complete or unchanged after every write, and never trusted without a check."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from agent.attempts import attempt_record
from agent.attempts.spool import Spool, SpooledAttempt, SpoolUnusable, apply_fact, parse_key
from wire.agent.orders import Start, Stop
from wire.agent.reports import AttemptStatus, Usage

ORDER = Start(
    7,
    1,
    ("sh", "-c", "$(rm -rf /)\n\x1b[2J\udcff"),
    "eve",
    1000,
    512,
    name="../../[/bold]\u202e",
    env={"A": "é\n"},
)
KEY = (7, 1)


@pytest.fixture
def opened(spool: Path) -> Spool:
    made = Spool(spool, "this-boot")
    made.open()
    return made


def test_recorded_order_is_read_back(opened: Spool) -> None:
    opened.record_order(KEY, ORDER)
    assert opened.unsettled() == [SpooledAttempt(AttemptStatus(*KEY), ORDER)]


def test_spool_is_private_to_its_owner(opened: Spool) -> None:
    opened.record_order(KEY, ORDER)
    opened.write_stop(Stop(*KEY))
    for folder, names, files in os.walk(opened.root):
        assert [os.stat(f"{folder}/{name}").st_mode & 0o777 for name in names] == [0o700] * len(names)
        assert [os.stat(f"{folder}/{name}").st_mode & 0o777 for name in files] == [0o600] * len(files)
    assert opened.root.stat().st_mode & 0o777 == 0o700


def test_facts_of_an_attempt_are_applied_one_by_one() -> None:
    status = AttemptStatus(*KEY)
    status = apply_fact(status, ["claimed", "5"])
    assert status == AttemptStatus(*KEY)
    status = apply_fact(status, ["started", "6", "100", "10.5"])
    assert status == AttemptStatus(*KEY, pid=6, started_at=10.5)
    status = apply_fact(status, ["ended", "11.5", "-", "9", "0.5", "20", "time_limit"])
    assert status == AttemptStatus(*KEY, 6, 10.5, 11.5, None, 9, "time_limit", Usage(0.5, 20))
    with pytest.raises(attempt_record.UnreadableRecord):
        apply_fact(status, ["started", "six"])


def test_a_settled_attempt_keeps_its_logs_until_it_is_forgotten(opened: Spool) -> None:
    opened.record_order(KEY, ORDER, attempt_record.encode_end(1.0, 0, None))
    Path(opened.directory(KEY), "stdout").write_bytes(b"words")
    opened.settle(KEY)
    assert opened.unsettled() == []
    assert [found.status.code for found in opened.settled()] == [0]
    assert os.read(opened.open_log(KEY, "stdout"), 100) == b"words"
    opened.delete(KEY)
    assert opened.settled() == []
    with pytest.raises(FileNotFoundError):
        opened.open_log(KEY, "stdout")


def test_log_link_out_of_its_directory_is_refused(opened: Spool) -> None:
    opened.record_order(KEY, ORDER)
    Path(opened.directory(KEY), "stdout").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic link"):
        opened.open_log(KEY, "stdout")


def test_half_written_attempt_is_removed(opened: Spool) -> None:
    half = Path(opened.directory(KEY)).parent / ".8.1"
    half.mkdir()
    (half / "record").write_bytes(b"12345678 ord")
    os.close(opened.hints)
    os.close(opened._lock)
    again = Spool(opened.root, "this-boot")
    again.open()
    assert again.unsettled() == []
    assert not half.exists()


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda data: data[:50], "line 1 is not complete"),
        (lambda data: b"", "line 1: not an order"),
        (lambda data: data.replace(b'"eve"', b'"eva"'), "line 1: its checksum is wrong"),
        (lambda data: data.replace(b" claimed", b" klaimed"), "line 2: its checksum is wrong"),
        (lambda data: os.urandom(500) + b"\n", "line 1"),
        (
            lambda data: attempt_record.encode_fact("order", "b", '{"t":"ping","beat":1}'),
            "line 1: the order of another attempt",
        ),
        (lambda data: attempt_record.encode_fact("order", "b", "{}"), "line 1: frame: unknown kind of frame"),
        (
            lambda data: data + attempt_record.encode_fact("ended", "soon"),
            "the fact 'ended' has wrong fields",
        ),
    ],
)
def test_damaged_record_is_reported_and_quarantined(opened: Spool, damage: object, what: str) -> None:
    opened.record_order(KEY, ORDER, attempt_record.encode_fact("claimed", 99))
    path = Path(opened.directory(KEY), "record")
    data = damage(path.read_bytes().rstrip(b" "))
    path.write_bytes(data)
    assert opened.read(KEY).damage.startswith(what)
    found = opened.quarantine(KEY, what)
    assert found == SpooledAttempt(AttemptStatus(*KEY))
    (kept,) = (opened.root / "unreadable").iterdir()
    assert kept.read_bytes() == data
    assert str(kept) in path.read_text()


def test_spool_is_used_by_one_agent_only(opened: Spool) -> None:
    with pytest.raises(SpoolUnusable, match=rf"used by another agent \(pid {os.getpid()}\)"):
        Spool(opened.root, "this-boot").open(patience_s=0.1)


def close(spool: Spool) -> None:
    """Release the spool, as its agent does when it ends."""
    for descriptor in (spool.hints, spool._lock):
        if descriptor != -1:
            os.close(descriptor)


def test_spool_belongs_to_one_cluster(spool: Path) -> None:
    """A second cluster neither ends the agent of the first nor takes its jobs; ended attempts are put
    aside.
    """
    first = Spool(spool, "this-boot")
    first.open(cluster="aaaaaaaaaaaa@head1")
    with pytest.raises(
        SpoolUnusable, match=r"another Corral cluster, aaaaaaaa \(its controller ran on head1\)"
    ):
        Spool(spool, "this-boot").open(replace=True, cluster="bbbb@head2")
    first.record_order(KEY, ORDER)
    close(first)
    early = Spool(spool, "this-boot")
    with pytest.raises(SpoolUnusable, match="whose agent or jobs use it"):
        early.open(cluster="bbbb@head2")
    close(early)
    moved = Spool(spool, "this-boot")
    moved.open(cluster="aaaaaaaaaaaa@head9")
    assert moved.unsettled() == [SpooledAttempt(AttemptStatus(*KEY), ORDER)]
    moved.settle(KEY)
    close(moved)
    second = Spool(spool, "this-boot")
    second.open(cluster="bbbb@head2")
    assert (second.unsettled(), second.settled()) == ([], [])
    [kept] = spool.glob("settled.aaaaaaaa.*")
    assert (kept / "7.1" / "record").exists()


def test_unwritable_spool_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolUnusable, match=r"file/spool cannot be used: .* Not a directory"):
        Spool(tmp_path / "file" / "spool", "this-boot").open()


def test_attempt_with_a_supervisor_is_not_ended_by_the_agent(opened: Spool) -> None:
    opened.record_order(KEY, ORDER)
    line = attempt_record.encode_end(1.0, None, None, why="refused")
    assert opened.end_unclaimed(KEY, line)
    assert opened.read(KEY).status.why == "refused"
    assert not opened.end_unclaimed(KEY, line)
    assert not opened.end_unclaimed((8, 1), line)


def test_stop_is_read_back(opened: Spool) -> None:
    opened.record_order(KEY, ORDER)
    stop = Stop(*KEY, 2.5, "because it\nhad to")
    opened.write_stop(replace(stop, grace_s=9.0))
    opened.write_stop(stop)
    assert opened.read(KEY).stop == stop


@pytest.mark.parametrize("name", ["", "1", "1.", ".1", "01.1", "1.1.1", "1.x", "-1.1", "¹.1", "1.1 "])
def test_only_exact_names_are_keys(name: str) -> None:
    assert parse_key(name) is None
    assert parse_key("12.3") == (12, 3)
