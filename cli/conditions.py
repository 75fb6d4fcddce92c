"""When a job may start, until when, and when it starts again, as people write it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from cli import units
from cli.exits import Mistake
from wire.conditions import MAX_CODES, MAX_RESTARTS, Dependency, OnNodeLost, Restart, RestartWhen, Until
from wire.gangs import Gang, MemberFailure
from wire.spec import array_indices

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_LABEL = re.compile(r"[1-9]\d{0,17}(_\d{1,9})?")
_RESTART_HELP = "Write --restart on-failure:3, --restart always or --restart never."


def moment(text: str, now: float | None = None) -> float:
    """18:30 (the next time it is), 2030-05-01, 2030-05-01T08:00, +2h: seconds since 1970."""
    word, now = text.strip(), time.time() if now is None else now
    relative = word.removeprefix("now")
    if relative.startswith("+"):
        return now + units.seconds(relative[1:])
    clock = _CLOCK.fullmatch(word)
    try:
        if clock is not None:
            hour, minute, second = (int(part or 0) for part in clock.groups())
            # Without an offset it means the time that stands on clocks here, summer time and all.
            today = datetime.fromtimestamp(now, UTC).astimezone().replace(tzinfo=None)
            today = today.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return (today if today.timestamp() > now else today + timedelta(days=1)).timestamp()
        return datetime.fromisoformat(word).timestamp()
    except (ValueError, OverflowError):
        example = "18:30, 2030-05-01, 2030-05-01T08:00 or +2h"
        raise ValueError(f"{text!r} is not a moment; write {example}") from None


def on_node_lost(text: str) -> OnNodeLost:
    """What becomes of a job whose node is lost."""
    try:
        return OnNodeLost(text)
    except ValueError:
        words = ", ".join(each.value for each in OnNodeLost)
        raise ValueError(f"cannot read {text!r}; there are {words}") from None


def gang_of(
    least: int | None, assembly_s: float | None, failure: MemberFailure | None, elastic: bool
) -> Gang | None:
    """How a job on several nodes keeps together; None if nothing was said about that."""
    if least is None and assembly_s is None and failure is None and not elastic:
        return None
    return Gang(least, assembly_s or 0.0, failure or MemberFailure.FAIL, elastic)


def on_member_failure(text: str) -> MemberFailure:
    """What becomes of the other members when one fails."""
    try:
        return MemberFailure(text)
    except ValueError:
        words = ", ".join(each.value for each in MemberFailure)
        raise ValueError(f"cannot read {text!r}; there are {words}") from None


def restart_of(policy: str | None, delay: str | None, codes: str | None) -> Restart | None:
    """The restart policy of three options; None if none of them was given."""
    if policy is None:
        if delay is None and codes is None:
            return None
        raise Mistake("--restart-delay and --restart-codes say how, but not whether", _RESTART_HELP)
    try:
        when, limit = _policy(policy)
        first, _, most = (delay or "10s:10m").partition(":")
        delay_s = units.seconds(first)
        delay_most_s = units.seconds(most) if most else max(delay_s, 600.0)
        if delay_most_s < delay_s:
            raise ValueError(f"{delay!r} begins with more than it ends with")
        return Restart(when, limit, delay_s, delay_most_s, _codes(codes))
    except ValueError as error:
        raise Mistake(f"--restart: {error}", _RESTART_HELP) from None


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
"""The options that say what a job waits for, and how each is read."""
