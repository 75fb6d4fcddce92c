"""Scratch through the whole system: allocated, found by the job, limited, and deleted at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.systems import System
from wire.names import JobState, Reason


def test_scratch_is_allocated_and_returned(build: Callable[..., System], tmp_path: Path) -> None:
    system = build("gpu01")
    system.sections["nodes"]["gpu01"] |= {"scratch": "10G", "scratch_dir": str(tmp_path)}
    system.start()

    def submit(*words: str) -> int:
        return int(system.corral("submit", "--memory", "64M", *words).split()[-1])

    first = submit("--scratch", "8G", "--", "sh", "-c", "echo x > $CORRAL_SCRATCH/file; sleep 600")
    system.await_jobs([first], JobState.RUNNING)
    assert len(list(tmp_path.glob(f"corral-*/{first}.1"))) == 1
    second = submit(
        "--scratch", "4G", "--", "sh", "-c", 'test -d "$CORRAL_SCRATCH" && test -z "$(ls $CORRAL_SCRATCH)"'
    )
    system.until(lambda: system.jobs()[second].reason is Reason.RESOURCES, "the second waits for scratch")
    assert "4G of scratch" in system.corral("explain", str(second))
    [node] = json.loads(system.corral("nodes", "-o", "json"))["nodes"]
    assert (node["scratch_mib"], node["scratch_free_mib"]) == (10 * 1024, 2 * 1024)
    assert "2G of 10G free" in system.corral("nodes", "show", "gpu01")
    assert "8G of scratch" in system.corral("job", "show", str(first))
    system.corral("job", "cancel", str(first))
    system.await_jobs([second], JobState.COMPLETED)
    over = submit(
        "--scratch",
        "10M",
        "--grace",
        "1s",
        "--",
        "sh",
        "-c",
        "head -c 20000000 /dev/zero > $CORRAL_SCRATCH/x; sleep 600",
    )
    ended = system.await_jobs([over], JobState.FAILED)[over]
    assert (ended.reason, ended.detail) == (
        Reason.SCRATCH_EXCEEDED,
        "the job used more than the 10 MiB of scratch that it requested",
    )
    assert list(tmp_path.glob("corral-*/*")) == []
