"""Logs stay within their limits whatever a job writes, and readers get the kept parts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.attempts.log_rotation import LogTrimmer, equal_share, skip_hole
from tests.agent.agent_process import AgentProcess, eventually

Run = Callable[..., AgentProcess]
MIB = 1 << 20


def punches(folder: Path) -> bool:
    """Can holes be made on this file system?"""
    path = folder / "stdout"
    path.write_bytes(b"x" * (4 * MIB))
    LogTrimmer(str(folder), MIB).trim()
    found = path.stat().st_blocks * 512 < 2 * MIB
    path.unlink()
    return found


def test_beginning_and_end_of_a_log_are_kept_at_their_offsets(tmp_path: Path) -> None:
    if not punches(tmp_path):
        pytest.skip("this file system makes no holes")
    path = tmp_path / "stdout"
    path.write_bytes(bytes(index % 251 for index in range(6 * MIB)))
    whole = path.read_bytes()
    output = LogTrimmer(str(tmp_path), MIB)
    assert output.trim() == 0.5
    assert path.stat().st_blocks * 512 <= MIB + 8_192
    with path.open("rb") as file:
        kept_to, told = skip_hole(file.fileno(), MIB // 4)
        assert told == b"\n[corral: %d bytes are left out here; beginning and end are kept]\n" % (
            kept_to - MIB // 4
        )
        assert os.pread(file.fileno(), MIB // 4, 0) == whole[: MIB // 4]
        assert os.pread(file.fileno(), 2 * MIB, kept_to) == whole[kept_to:]
    with path.open("ab") as file:
        file.write(b"more")
    assert output.trim() == 10.0
    assert path.read_bytes()[-4:] == b"more"


def test_unlimited_log_is_not_measured(tmp_path: Path) -> None:
    assert LogTrimmer(str(tmp_path), 0).trim() is None


def test_endless_binary_output_is_kept_within_its_limit(run: Run, tmp_path: Path) -> None:
    if not punches(tmp_path):
        pytest.skip("this file system makes no holes")
    agent = run("--jobs", '{"log_mib": 1}')
    flood = (
        "import os; os.write(1, b'begin'); "
        "[os.write(1, bytes(range(256)) * 4096) for _ in range(40)]; os.write(1, b'end')"
    )
    agent.start(1, sys.executable, "-c", flood)
    assert agent.ended(1).code == 0
    log = agent.log(1)
    assert log.startswith(b"begin\0\1\2")
    assert log.endswith(b"\xfe\xffend")
    assert b"bytes are left out here" in log
    assert len(log) < 2 * MIB
    assert (agent.spool / "attempts" / "1.1" / "stdout").stat().st_blocks * 512 < 2 * MIB


def test_running_jobs_of_a_user_share_a_log_limit(run: Run, tmp_path: Path) -> None:
    if not punches(tmp_path):
        pytest.skip("this file system makes no holes")
    agent = run("--jobs", '{"log_running_mib": 4}')
    flood = "import os, time; os.write(1, b'begin'); [os.write(1, b'x' * 65536) for _ in range(64)]; "
    flood += "os.write(1, b'end'); time.sleep(600)"
    for job, user in ((1, "ada"), (2, "ada"), (3, "bob")):
        agent.start(job, sys.executable, "-c", flood, user=user)
    for job in (1, 2, 3):
        agent.started(job)

    def size(job: int) -> int:
        return (agent.spool / "attempts" / f"{job}.1" / "stdout").stat().st_blocks * 512

    for job in (1, 2, 3):
        eventually(lambda job=job: agent.log(job).endswith(b"xend"))
    eventually(lambda: 0 < size(1) + size(2) <= 4 * MIB + 2 * 4_096)
    assert abs(size(1) - size(2)) <= 2 * 4_096
    assert size(3) > 3 * MIB  # another user's bound is his own
    text = agent.log(1)
    assert text.startswith(b"beginx")
    assert text.endswith(b"xend")
    assert b"bytes are left out here" in text


@given(st.lists(st.integers(0, 1 << 40), max_size=20), st.integers(1 << 23, 1 << 41))
def test_largest_log_size_that_fits_is_chosen(sizes: list[int], most: int) -> None:
    share = equal_share(sizes, most)
    if share is None:
        assert sum(sizes) <= most
        return
    assert sum(sizes) > most
    assert sum(min(each, share) for each in sizes) <= most
    assert sum(min(each, share + 1) for each in sizes) > most - len(sizes)
