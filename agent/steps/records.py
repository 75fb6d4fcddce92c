"""The records of steps. They are stored in the attempt's directory in the spool, and sent in the report of
the attempt's end.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import Callable, Optional

from agent.attempts.spool import AttemptKey, Spool
from agent.event_loop import EventLoop
from agent.processes import process_tree
from wire import trusted_paths
from wire.agent.frames import AgentFrame
from wire.agent.reports import AttemptStatus
from wire.agent.steps import StepsReport
from wire.codec import Malformed, decode, dumps, encode
from wire.job.steps import MAX_NODES_TEXT, MAX_STEPS, MAX_TEXT, Step
from wire.text import printable

_FILE = "steps"
_CHECK_S = 1.0
_RESERVED = 100
"""After the first MAX_STEPS steps, one line in the file reserves this many further step numbers."""
_KILLED, _ENDED_WITH_JOB = 9, 15
"""The signals that are recorded as the end of a step: _KILLED if its srun was killed, _ENDED_WITH_JOB if the
job ended during the step.
"""


class NoSuchStep(Exception):
    """Raised if a step cannot be recorded. The message is the reason."""


class StepRecords:
    """The steps of attempts that have this node as their first node.

    1. `call` with a new step: assign the next number to the step, append the step to the file `steps` in the
       attempt's spool directory, and report the step.
    2. `call` with the number of a known step: if `step` has an end, append the end to the file and report the
       end. If `step` only has a new usage, report the usage.
    3. `with_steps` adds all steps to the report of the attempt's end. A step without a recorded end gets the
       end of the attempt. The agent repeats this report until the controller has stored the report. So the
       steps are stored as reliably as the exit code.
    4. `adopt`: read the steps that an earlier agent has written to the file. Running steps have continued,
       because srun and the tasks on this node do not depend on the agent. Check at intervals whether the srun
       of each running step still exists.
    5. A step after the first MAX_STEPS steps gets a number, but is neither written to the file nor reported.
       So that no number is used twice, these numbers are reserved in groups of _RESERVED numbers: before the
       first number of a group is used, append the line {"next": N} to the file, where N is the first number
       after the group. A later agent begins with N.

    Cost: two lines in the file and two reports for each of the first MAX_STEPS steps, and one line for each
    group of _RESERVED further steps. An attempt without steps costs one stat() when an agent adopts it.

    Example: step 7.0 begins and ends. The file then has two lines for the step number 0. A reader uses the
    last one.
    """

    def __init__(
        self,
        spool: Spool,
        loop: EventLoop,
        send: Callable[[AgentFrame], None],
        has_ended: Callable[[AttemptKey], Optional[bool]],
    ) -> None:
        self._spool = spool
        self._loop = loop
        self._send = send
        self._has_ended = has_ended
        self._steps: dict[AttemptKey, dict[int, Step]] = {}
        self._next: dict[AttemptKey, int] = {}
        self._reserved: dict[AttemptKey, int] = {}
        self._adopted: set[tuple[AttemptKey, int]] = set()

    def call(self, key: AttemptKey, step: Step) -> int:
        """Record a new step, or the present state of a known step. Return the number of the step. Raise
        NoSuchStep if `step` has a number that this attempt has not used.
        """
        steps = self._steps.setdefault(key, {})
        now = time.time()
        if step.number < 0:
            number = self._next.get(key, 0)
            self._next[key] = number + 1
            if number >= max(MAX_STEPS, self._reserved.get(key, 0)):
                self._reserved[key] = number + _RESERVED
                self._append(key, {"next": number + _RESERVED})
            self._record(key, replace(_checked(step), number=number, started_at=now, ended_at=None))
            return number
        known = steps.get(step.number)
        if known is None:
            if MAX_STEPS <= step.number < self._next.get(key, 0):
                return step.number
            raise NoSuchStep(f"job {key[0]} has no step {step.number}")
        self._adopted.discard((key, step.number))
        if known.ended_at is None and step.ended_at is not None:
            ended = replace(
                _checked(step), started_at=known.started_at, ended_at=now, cancelled_by=known.cancelled_by
            )
            self._record(key, ended)
        elif known.ended_at is None and step.max_rss_kib:
            now_used = _checked(step)
            # Do not write the usage of a running step to the file, because the line for the end of the step
            # will contain the final usage.
            steps[step.number] = replace(
                known,
                cpu_s=now_used.cpu_s,
                max_rss_kib=now_used.max_rss_kib,
                max_rss_node=now_used.max_rss_node,
                max_rss_task=now_used.max_rss_task,
            )
            self._send(StepsReport(*key, (steps[step.number],)))
        return step.number

    def abandon(self, key: AttemptKey, number: int) -> None:
        """Record that the srun of a step was killed. Do nothing if the step has ended."""
        known = self._steps.get(key, {}).get(number)
        if known is not None and known.ended_at is None:
            self._record(key, replace(known, ended_at=time.time(), signal=_KILLED))

    def cancel(self, key: AttemptKey, number: int, by: str) -> None:
        """Record that the user `by` has cancelled a running step. Do nothing if the step has ended."""
        known = self._steps.get(key, {}).get(number)
        if known is not None and known.ended_at is None:
            self._record(key, replace(known, cancelled_by=by[:MAX_TEXT]))

    def adopt(self, key: AttemptKey) -> None:
        """Read the steps that earlier agents have recorded for an attempt."""
        path = f"{self._spool.directory(key)}/{_FILE}"
        try:
            descriptor = trusted_paths.open_file(path)
        except (OSError, trusted_paths.UntrustedPath):
            return  # No steps were recorded, or the file is not trusted.
        with open(descriptor, encoding="utf-8", errors="replace") as file:
            for line in file:
                # Skip a line that was not written completely.
                with suppress(ValueError, Malformed):
                    data = json.loads(line)
                    if isinstance(data, dict) and isinstance(data.get("next"), int):
                        self._reserved[key] = data["next"]
                        continue
                    step = decode(Step, data)
                    self._steps.setdefault(key, {})[step.number] = step
        steps = self._steps.get(key, {})
        self._next[key] = max(max(steps, default=-1) + 1, self._reserved.get(key, 0))
        here = {number for number, step in steps.items() if step.ended_at is None and step.pid}
        if here:
            self._adopted |= {(key, number) for number in here}
            self._loop.call_later(_CHECK_S, self._check)

    def report_all(self) -> None:
        """Report all steps of running attempts, because a new connection to the controller has begun."""
        for key, steps in self._steps.items():
            if self._has_ended(key) is False and steps:
                self._send(StepsReport(*key, tuple(steps.values())))

    def with_steps(self, status: AttemptStatus) -> AttemptStatus:
        """Return the status of an ended attempt with its steps added. Return the status of a running attempt
        unchanged.
        """
        key = (status.job, status.attempt)
        steps = self._steps.get(key)
        if status.ended_at is None or not steps:
            return status
        ended = [
            step
            if step.ended_at is not None
            else replace(step, ended_at=status.ended_at, signal=_ENDED_WITH_JOB)
            for step in steps.values()
        ]
        return replace(status, steps=tuple(ended))

    def forget(self, key: AttemptKey) -> None:
        self._steps.pop(key, None)
        self._next.pop(key, None)
        self._reserved.pop(key, None)

    def _record(self, key: AttemptKey, step: Step) -> None:
        if step.number >= MAX_STEPS:
            return
        self._steps[key][step.number] = step
        self._append(key, encode(step))
        self._send(StepsReport(*key, (step,)))

    def _append(self, key: AttemptKey, data: object) -> None:
        """Append a line with `data` as JSON to the file of an attempt."""
        path = f"{self._spool.directory(key)}/{_FILE}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        # Continue if the disk is full: the controller still gets the report of the step.
        with suppress(OSError):
            descriptor = os.open(path, flags, 0o600)
            try:
                os.write(descriptor, (dumps(data) + "\n").encode("utf-8", "replace"))
            finally:
                os.close(descriptor)

    def _check(self) -> None:
        """Record the end of the adopted steps whose srun no longer runs: it was killed, maybe while no agent
        ran on this host. Check again after _CHECK_S seconds while an adopted step runs.
        """
        for key, number in list(self._adopted):
            step = self._steps.get(key, {}).get(number)
            gone = step is None or not process_tree.runs_since(step.pid, step.pid_ticks)
            if gone or self._has_ended(key) is not False:
                self._adopted.discard((key, number))
                if gone and self._has_ended(key) is False:
                    self.abandon(key, number)
        if self._adopted:
            self._loop.call_later(_CHECK_S, self._check)


def _checked(step: Step) -> Step:
    """Return the step with texts of limited length and numbers in their valid range. This is needed because
    the user can change srun.
    """
    return replace(
        step,
        name=printable(step.name, MAX_TEXT),
        nodes=printable(step.nodes, MAX_NODES_TEXT),
        node_count=max(1, step.node_count),
        tasks=max(1, step.tasks),
        code=step.code & 255,
        signal=step.signal & 127,
        cancelled_by="",
        cpu_s=max(0.0, step.cpu_s),
        max_rss_kib=max(0, step.max_rss_kib),
        max_rss_node=printable(step.max_rss_node, MAX_TEXT),
        max_rss_task=max(0, step.max_rss_task),
        layout=printable(step.layout, 20),
        host=printable(step.host, MAX_TEXT),
    )
