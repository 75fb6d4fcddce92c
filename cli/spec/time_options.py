"""Parses when a job may start, until when, and when it restarts."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from cli.exit_codes import CommandError
from cli.spec import units
from wire.job.gangs import MemberFailure
from wire.job.spec import array_indices
from wire.job.start_conditions import (
    MAX_CODES,
    MAX_RESTARTS,
    Dependency,
    OnNodeLost,
    Restart,
    RestartWhen,
    Until,
)

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_LABEL = re.compile(r"[1-9]\d{0,17}(_\d{1,9})?")
_RESTART_HELP = "Write --restart on-failure:3, --restart always or --restart never."


def moment(text: str, now: float | None = None) -> float:
    """Seconds since 1970 for 18:30 (the next one), 2030-05-01, 2030-05-01T08:00 or +2h. Raises ValueError."""
    word, now = text.strip(), time.time() if now is None else now
    relative = word.removeprefix("now")
    if relative.startswith("+"):
        return now + units.seconds(relative[1:])
    clock = _CLOCK.fullmatch(word)
    try:
        if clock is not None:
            hour, minute, second = (int(part or 0) for part in clock.groups())
            # Without an offset it is local time, with summer time.
            today = datetime.fromtimestamp(now, UTC).astimezone().replace(tzinfo=None)
            today = today.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return (today if today.timestamp() > now else today + timedelta(days=1)).timestamp()
        return datetime.fromisoformat(word).timestamp()
    except (ValueError, OverflowError):
        example = "18:30, 2030-05-01, 2030-05-01T08:00 or +2h"
        raise ValueError(f"{text!r} is not a time; write {example}") from None


def on_node_lost(text: str) -> OnNodeLost:
    """The policy for a lost node. Raises ValueError."""
    try:
        return OnNodeLost(text)
    except ValueError:
        words = ", ".join(each.value for each in OnNodeLost)
        raise ValueError(f"cannot read {text!r}; there are {words}") from None


def on_member_failure(text: str) -> MemberFailure:
    """The policy for a failed member of a gang. Raises ValueError."""
    try:
        return MemberFailure(text)
    except ValueError:
        words = ", ".join(each.value for each in MemberFailure)
        raise ValueError(f"cannot read {text!r}; there are {words}") from None


def restart_of(
    policy: str | None = None, delay: str | None = None, codes: str | None = None
) -> Restart | None:
    """The restart policy of the three --restart options; None if none is given. Raises CommandError."""
    if policy is None:
        if delay is None and codes is None:
            return None
        raise CommandError("--restart-delay and --restart-codes need --restart", _RESTART_HELP)
    try:
        when, limit = _policy(policy)
        first, _, most = (delay or "10s:10m").partition(":")
        delay_s = units.seconds(first)
        delay_most_s = units.seconds(most) if most else max(delay_s, 600.0)
        if delay_most_s < delay_s:
            raise ValueError(f"{delay!r} begins with a longer time than it ends with")
        return Restart(when, limit, delay_s, delay_most_s, _codes(codes))
    except ValueError as error:
        raise CommandError(f"--restart: {error}", _RESTART_HELP) from None


def _policy(text: str) -> tuple[RestartWhen, int | None]:
    word, colon, times = text.strip().partition(":")
    known = {each.value: each for each in RestartWhen}
    if word not in known:
        raise ValueError(f"{word!r} is not a policy; write {', '.join(known)}")
    when = known[word]
    if not colon:
        return when, None if when is RestartWhen.ALWAYS else 3
    if not re.fullmatch(r"\d{1,9}", times) or not 1 <= int(times) <= MAX_RESTARTS:
        raise ValueError(f"{times!r} is not a number of restarts from 1 to {MAX_RESTARTS}")
    return when, int(times)


def _codes(text: str | None) -> tuple[int, ...]:
    codes = tuple(array_indices(text)) if text else ()
    if "%" in (text or "") or len(codes) > MAX_CODES or not all(1 <= code <= 255 for code in codes):
        raise ValueError(f"{text!r} are not exit codes: at most {MAX_CODES} between 1 and 255")
    return codes


def _after(until: Until) -> Callable[[str], list[Dependency]]:
    def read(text: str) -> list[Dependency]:
        labels = [part.strip() for part in text.split(",")]
        wrong = next((label for label in labels if not _LABEL.fullmatch(label)), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r} is not a job; write 12, 12_3 or 12,13,14")
        return [Dependency(until, label) for label in labels]

    return read


def _data(text: str) -> list[Dependency]:
    if not text:
        raise ValueError("names no path")
    return [Dependency(Until.DATA, path=os.path.abspath(text))]


AFTER: Mapping[str, Callable[[str], list[Dependency]]] = {
    "after": _after(Until.STARTED),
    "after_ok": _after(Until.OK),
    "after_not_ok": _after(Until.NOT_OK),
    "after_end": _after(Until.ENDED),
    "after_checkpoint": _after(Until.CHECKPOINT),
    "after_data": _data,
}
"""The options for dependencies, with the parser of each."""

AFTER_FLAGS = {
    Until.STARTED: "after",
    Until.OK: "after-ok",
    Until.NOT_OK: "after-not-ok",
    Until.ENDED: "after-end",
    Until.CHECKPOINT: "after-checkpoint",
    Until.DATA: "after-data",
}
