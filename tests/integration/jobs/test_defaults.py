"""Jobs that ask for no CPU and memory, on a real controller and a real agent."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.systems import System
from wire.job.spec import JobSpec
from wire.names import JobState

SIZE = 1_100 << 20
TOUCH_EACH_PAGE = f"memory = bytearray({SIZE}); memory[::4096] = bytes({SIZE // 4096})"


def test_job_with_default_memory_may_use_more_than_a_gigabyte(build: Callable[..., System]) -> None:
    """Its limit is its share of the node, no longer 1 GiB."""
    system = build("gpu01").start()
    with system.client() as client:
        [job] = client.submit(JobSpec(command=(sys.executable, "-c", TOUCH_EACH_PAGE), gpus=1)).ids
        ended = system.await_jobs([job])[job]
        assert (ended.state, ended.detail) == (JobState.COMPLETED, "")
        detail = client.job(job)
        assert detail.spec.memory_mib > 2 * 1024
        assert detail.spec.by_default["memory_mib"] == "share per GPU of node gpu01"
