"""The life of a job with a real controller and agent: what it uses, why it fails, and what is shown of
both.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import pytest

from tests.systems import System
from wire.http.transport import Refused
from wire.names import JobState, Reason


def submit(system: System, *words: str) -> int:
    return int(system.corral("submit", "--memory", "256M", *words).split()[-1])


def test_cause_of_a_failure_is_shown_with_its_remedy(build: Callable[..., System]) -> None:
    system = build("gpu01")
    rule = {"name": "licence", "sentence": "no licence was free", "remedy": "Try at night."}
    system.sections["failures"] = {"rules": [{**rule, "exit_codes": [3], "patterns": ["FlexNet"]}]}
    system.start()
    library = submit(system, "--", sys.executable, "-c", "import nowhere")
    full = "echo No space left on device; exit 1"
    to_file = submit(system, "--output", f"{system.place}/run-%j.out", "--", "sh", "-c", full)
    again = submit(
        system,
        *("--restart", "on-failure", "--restart-delay", "1h", "--separate-output"),
        *("--", "sh", "-c", "echo FlexNet error >&2; exit 3"),
    )
    ended = system.await_jobs([library, to_file], JobState.FAILED)
    failures = {number: ended[number].failure for number in (library, to_file)}
    names = {number: failure and failure.name for number, failure in failures.items()}
    assert names == {library: "import_error", to_file: "disk_full"}
    for words in (("job", "show", str(library)), ("explain", str(library))):
        shown = system.corral(*words)
        assert "import_error" in shown
        assert "--env PATH" in shown
    system.until(lambda: system.jobs()[again].last is not None, "the job waits for its restart")
    waits = system.jobs()[again].last
    assert waits is not None
    assert (waits.reason, waits.failure and waits.failure.remedy) == (Reason.EXIT_NONZERO, "Try at night.")
    assert "no licence was free" in system.corral("job", "show", str(again))
    with system.client() as client:
        entries = json.dumps([event.data for event in client.events().events], default=str)
    assert "FlexNet" not in entries.replace("echo FlexNet error", ""), "lines of logs are not journalled"


def test_liveness_of_a_file_restarts_fails_or_notifies(build: Callable[..., System]) -> None:
    system = build("gpu01").start()
    check = (
        "--liveness-every",
        "0.2s",
        "--liveness-grace",
        "0.2s",
        "--liveness-failures",
        "2",
        "--grace",
        "1s",
    )
    stale = ("--liveness-file", str(system.place / "beat"), "--liveness-file-age", "1s", *check)
    fails = submit(system, *stale, "--liveness-action", "fail", "--", "sleep", "600")
    notifies = submit(system, *stale, "--liveness-action", "notify", "--", "sleep", "600")
    restarts = submit(system, *stale, "--", "sleep", "600")
    beats = submit(
        system,
        *("--liveness-file", "pulse", "--liveness-file-age", "5s", *check, "--workdir", str(system.place)),
        *("--", "sh", "-c", "while :; do touch pulse; sleep 0.1; done"),
    )
    failed = system.await_jobs([fails], JobState.FAILED)[fails]
    assert (failed.reason, failed.detail) == (
        Reason.UNHEALTHY,
        f"unhealthy: {system.place}/beat does not exist",
    )
    system.until(lambda: system.jobs()[restarts].restarts == 1, "the job without a restart policy restarts")
    assert "restart 1 of 3" in system.jobs()[restarts].detail
    assert system.jobs()[notifies].state is JobState.RUNNING
    assert system.jobs()[beats].state is JobState.RUNNING
    assert f"job {notifies} is unhealthy" in system.corral("events", "--job", str(notifies))
    assert f"job {beats} is healthy" in system.corral("events", "--job", str(beats))
    assert "pulse changes within 5s" in system.corral("job", "show", str(beats))


def test_running_job_saves_on_request_and_at_intervals(build: Callable[..., System]) -> None:
    system = build("gpu01")
    system.sections["jobs"] = {"checkpoint_look_s": 0.2}
    system.start()
    save = "n=$((n+1)); head -c 700000 /dev/zero > $CORRAL_CHECKPOINT_DIR/$n"
    script = f"trap '{save}' USR1; while :; do sleep 0.2; done"
    place = ("--workdir", str(system.place))
    by_signal = submit(
        system, *place, "--checkpoint-signal", "USR1", "--checkpoint-size", "1M", "--", "sh", "-c", script
    )
    command = "sh -c 'kill -0 $CORRAL_JOB_PID && date +%N > $CORRAL_CHECKPOINT_DIR/$(date +%N)'"
    at_intervals = submit(
        system,
        *place,
        *("--checkpoint-every", "1s", "--checkpoint-keep", "2", "--checkpoint-command", command),
        *("--", "sleep", "600"),
    )
    cannot = submit(system, "--", "sleep", "600")
    system.await_jobs([by_signal, at_intervals, cannot], JobState.RUNNING)
    folder = system.place / "corral-checkpoints"

    def names(job: int) -> set[str]:
        return {each.name for each in (folder / str(job)).glob("*")}

    for number in ("1", "2", "3"):
        system.corral("job", "checkpoint", str(by_signal))
        system.until(lambda number=number: number in names(by_signal), "the job saves")
    system.until(lambda: names(by_signal) == {"3"}, "only the newest one fits into 1 MiB")
    listed = json.loads(system.corral("job", "checkpoints", str(by_signal), "-o", "json"))
    assert [(each["name"], each["bytes"]) for each in listed] == [("3", 700_000)]
    system.until(lambda: "3" in system.corral("job", "show", str(by_signal)), "the checkpoint is recorded")
    (folder / str(by_signal) / "old").write_text("x")
    os.utime(folder / str(by_signal) / "old", (1, 1))
    system.corral("job", "checkpoints", str(by_signal), "--delete", "old")
    assert names(by_signal) == {"3"}
    with system.client() as client:
        saved: set[str] = set()

        def has_saved_twice() -> bool:
            found = client.job(at_intervals).checkpoint
            saved.update([found.path] if found is not None else [])
            return len(saved) > 1

        system.until(has_saved_twice, "the job saves at each interval")
        with pytest.raises(Refused, match="neither a checkpoint command nor a checkpoint signal"):
            client.checkpoint(cannot)
    system.until(lambda: len(names(at_intervals)) <= 3, "older checkpoints are deleted")
    assert all(system.jobs()[job].attempt == 1 for job in (by_signal, at_intervals))
    system.corral("job", "cancel", str(by_signal))
    system.await_jobs([by_signal], JobState.CANCELLED)
    listed = json.loads(system.corral("job", "checkpoints", str(by_signal), "-o", "json"))
    assert [(each["name"], each["bytes"]) for each in listed] == [("3", 700_000)], "by a job of its own"
    system.corral("job", "checkpoints", str(by_signal), "--delete", "3")
    assert names(by_signal) == set()
