"""The owner of a real job is warned before its time limit: in its log, in its events and by its signal."""

from __future__ import annotations

from collections.abc import Callable

from controller.sim.replay.journal import read_journal
from tests.integration.controller.test_replay import in_order, relived
from tests.systems import System
from wire.names import JobState, Reason


def test_job_is_warned_before_its_limit(build: Callable[..., System]) -> None:
    system = build("gpu01")
    system.sections["jobs"] = {"limit_warning_s": 3.0}
    system.start()
    script = "trap 'echo signalled' USR1; sleep 1000 & while :; do wait; done"
    warn = ["--warn-signal", "USR1", "--warn-time", "0.5s", "--time", "20s"]
    system.corral("submit", "--grace", "0.2s", *warn, "--", "sh", "-c", script)
    system.corral("submit", "--time", "20s", "--", "sleep", "1000")
    system.await_jobs([1, 2], JobState.RUNNING)
    with system.client() as client:
        events = (event for batch in client.stream(after=0) if batch is not None for event in batch.events)
        assert any(event.job == 2 and event.kind == "EndWarned" for event in events)
    assert "its time limit of 20s ends it in" in system.corral("job", "show", "2")
    assert "its time limit" in system.corral("events", "--job", "2")
    ended = system.await_jobs([1, 2])
    assert {job.reason for job in ended.values()} == {Reason.TIME_LIMIT}
    log = system.corral("job", "logs", "1")
    assert "its time limit of 20s ends it in" in log
    assert log.endswith("signalled\n"), "the signal comes at its own time"
    assert "signalled" not in system.corral("job", "logs", "2")
    happened = read_journal(system.store_url)
    assert relived(happened, system.config) == in_order(happened)
