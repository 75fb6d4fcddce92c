"""Logs stay within their limits whatever a job writes, and readers get the kept parts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.supervisor.log_limits import LogTrimmer, skip_hole
from tests.agent.agent_process import AgentProcess

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
