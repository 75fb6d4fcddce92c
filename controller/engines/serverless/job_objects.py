"""The objects of one foreign job in the storage: their names, and the state of the job that they show."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from controller.engines.contract import ForeignState, Outcome
from controller.engines.serverless.object_store import StoredObject
from wire.agent.reports import Usage
from wire.text import printable

ASKED, STARTED, STOP, STDOUT, STDERR, RESULT = "asked", "started", "stop", "stdout", "stderr", "result"
PARTS = (STOP, STDOUT, STDERR, STARTED, ASKED, RESULT)
"""The objects of a job in the order in which they are deleted. The result is the last, because without it a
job would not count as ended.
"""
SLACK_S = 60.0
"""Seconds that a function may need after its time limit to write the result."""
_REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class JobKeys:
    """The names of the objects of jobs. A call of the function creates a claim, so that no other call runs
    the job. Claims are not below `jobs/`, because they stay after the job is forgotten.
    """

    prefix: str

    def claim(self, tag: str) -> str:
        return f"{self.prefix}claims/{tag}"

    def part(self, tag: str, name: str) -> str:
        return f"{self.prefix}jobs/{tag}/{name}"

    def tag_of(self, key: str) -> tuple[str, str]:
        """Return the tag and the part that the name of an object below `jobs/` has."""
        tag, _, name = key.removeprefix(f"{self.prefix}jobs/").partition("/")
        return tag, name


@dataclass(frozen=True, slots=True)
class JobObjects:
    """The ages in seconds of the objects of one job, by the parts of their names, such as `started`."""

    tag: str
    ages: dict[str, float]

    def state(self, longest_s: float) -> ForeignState | None:
        """Return the state of the job; None if the objects do not belong to a job.

        A job without a result has ended if it has started longer ago than a function can run: the function
        was ended before it could write the result.
        """
        if RESULT in self.ages:
            return ForeignState.ENDED
        if STARTED in self.ages:
            over = self.ages[STARTED] > longest_s + SLACK_S
            return ForeignState.ENDED if over else ForeignState.RUNNING
        return ForeignState.WAITING if ASKED in self.ages else None


def jobs_of(objects: Iterable[StoredObject], keys: JobKeys) -> list[JobObjects]:
    """Return the jobs of a list of objects."""
    found: dict[str, dict[str, float]] = {}
    for each in objects:
        tag, name = keys.tag_of(each.key)
        if name in PARTS:
            found.setdefault(tag, {})[name] = each.age_s
    return [JobObjects(tag, ages) for tag, ages in found.items()]


REVOKED: dict[str, Any] = {"run": "", _REVOKED: True}
"""The claim, and later the result, that the engine writes for a job that must not start any more."""


def is_revoked(claim: bytes) -> bool:
    """Return whether the engine has written this claim, and not a call of the function."""
    return _object(claim).get(_REVOKED) is True


def outcome_of(result: bytes) -> Outcome | None:
    """Return the outcome in a result; None if the result is damaged. A revoked job counts as ended by
    SIGTERM.
    """
    data = _object(result)
    code, signal, why = data.get("code"), data.get("signal"), data.get("why", "")
    if data.get(_REVOKED) is True:
        code, signal, why = None, 15, ""
    good = isinstance(why, str) and all(each is None or type(each) is int for each in (code, signal))
    if not good or (code is None and signal is None and not why):
        return None
    usage = None
    try:
        used = data["usage"]
        usage = Usage(cpu_s=float(used["cpu_s"]), max_rss_mib=int(used["max_rss_mib"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        usage = None
    return Outcome(code, signal, printable(why, 300), usage)


def _object(text: bytes) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
