"""The attempt record: records are read as written, and damage is detected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.attempts import attempt_record

WHOLE = (
    attempt_record.encode_fact("order", "boot", '{"t":"start"}')
    + attempt_record.encode_fact("claimed", 12)
    + attempt_record.encode_fact("started", 13, 1400, "15.5")
    + attempt_record.encode_end(16.5, 0, None, 0.25, 7, "time_limit")
)


def test_lines_are_read_as_written() -> None:
    assert attempt_record.decode_facts(WHOLE) == [
        ["order", "boot", '{"t":"start"}'],
        ["claimed", "12"],
        ["started", "13", "1400", "15.5"],
        ["ended", "16.500000", "0", "-", "0.250", "7", "time_limit"],
    ]


@given(bit=st.integers(0, len(WHOLE) * 8 - 1))
def test_flipped_bit_in_a_record_is_detected(bit: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(attempt_record.UnreadableRecord):
        attempt_record.decode_facts(bytes(damaged))


@given(length=st.integers(0, len(WHOLE) - 1))
def test_cut_record_is_detected_or_ends_at_a_line(length: int) -> None:
    cut = WHOLE[:length]
    if cut == b"" or cut.endswith(b"\n"):
        assert attempt_record.decode_facts(cut) == attempt_record.decode_facts(WHOLE)[: cut.count(b"\n")]
    else:
        with pytest.raises(attempt_record.UnreadableRecord):
            attempt_record.decode_facts(cut)


@given(why=st.text())
def test_end_line_fits_its_space_for_any_reason_text(why: str) -> None:
    line = attempt_record.encode_end(
        1e10, 255, 64, 1e9, 1 << 40, why.encode("utf-8", "replace").decode() * 50
    )
    lines = (
        attempt_record.encode_fact("claimed", 1 << 22)
        + attempt_record.encode_fact("started", 1 << 22, 1 << 50, f"{1e10:.6f}")
        + line
    )
    assert len(lines) <= attempt_record.RESERVED_BYTES
    assert attempt_record.decode_facts(line)[0][:6] == [
        "ended",
        "10000000000.000000",
        "255",
        "64",
        "1000000000.000",
        str(1 << 40),
    ]


def test_lock_holder_of_a_record_is_known(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(b"x")
    code = (
        "import os, sys; from agent.attempts import attempt_record; d = os.open(sys.argv[1], os.O_RDWR);"
        "print(attempt_record.lock_record(d), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"True\n"
        assert attempt_record.lock_holder(str(path)) == other.pid
        descriptor = os.open(path, os.O_RDWR)
        assert not attempt_record.lock_record(descriptor)
        os.close(descriptor)
        other.stdin.close()
        other.wait()
    assert attempt_record.lock_holder(str(path)) is None
    assert attempt_record.lock_holder(str(tmp_path / "none")) is None
