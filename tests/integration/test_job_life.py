"""The life of a job with a real controller and agent: what it uses, why it fails, and what is shown of
both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from tests.systems import System
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
    to_file = submit(system, "--output", "run-%j.out", "--", "sh", "-c", full)
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
