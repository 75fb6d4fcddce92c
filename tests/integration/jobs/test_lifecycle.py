"""Restarts, dependencies, slots and begin times with real controllers, agents and processes."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.systems import System
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, Restart, RestartWhen, Until
from wire.names import JobState

THIRD_TIME = "echo x >> {0}; [ $(wc -l < {0}) -ge 3 ] || exit 7"


def test_job_depends_on_a_job_that_needs_three_attempts(build: Callable[..., System]) -> None:
    system = build("gpu01").start()
    with system.client() as client:

        def submit(*command: str, **more: object) -> tuple[int, ...]:
            return client.submit(JobSpec(command=command, workdir="/tmp", **more)).ids  # type: ignore[arg-type]

        def after(job: int) -> tuple[Dependency, ...]:
            return (Dependency(Until.OK, str(job)),)

        script = THIRD_TIME.format(system.place / "tries")
        policy = Restart(RestartWhen.ON_FAILURE, 3, 0.1, 0.1)
        [first] = submit("sh", "-c", script, restart=policy)
        array = submit("true", array="0-3%2", after=after(first))
        begin = time.time() + 0.5
        [last] = submit("true", begin_at=begin, after=after(array[0]))
        done = system.await_jobs([first, *array, last])
    assert {job.state for job in done.values()} == {JobState.COMPLETED}
    assert (done[first].attempt, done[first].restarts) == (3, 2)
    ended = done[first].ended_at or 0.0
    assert all((done[job].started_at or 0.0) >= ended for job in array)
    assert (done[last].started_at or 0.0) >= begin
