"""Parses options that make a job depend on other jobs, and options of the restart policy."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from cli.exit_codes import CommandError
from wire import amounts
from wire.job.arrays import array_indices
from wire.job.start_conditions import (
    MAX_CODES,
    MAX_RESTARTS,
    Dependency,
    Restart,
    RestartWhen,
    Until,
)

_LABEL = re.compile(r"[1-9]\d{0,17}(_\d{1,9})?")
_RESTART_HELP = "Write --restart on-failure:3, --restart always or --restart never."


def restart_of(
    policy: str | None = None, delay: str | None = None, codes: str | None = None
) -> Restart | None:
    """Return the restart policy that --restart, --restart-delay and --restart-codes describe; None if the
    user wrote none of them. Raise CommandError if a value is invalid, or if --restart is missing.
    """
    if policy is None:
        if delay is None and codes is None:
            return None
        raise CommandError("--restart-delay and --restart-codes need --restart", _RESTART_HELP)
    try:
        when, limit = _policy(policy)
        first, _, most = (delay or "10s:10m").partition(":")
        delay_s = amounts.seconds(first)
        delay_most_s = amounts.seconds(most) if most else max(delay_s, 600.0)
        if delay_most_s < delay_s:
            raise ValueError(f"{delay!r}: the first time must not be longer than the second")
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


def dependencies(until: Until) -> Callable[[str], list[Dependency]]:
    """Return the parser of a dependency option. The parser of --after-data (`until` is DATA) reads a path,
    and the parser of any other option reads job ids such as 12,12_3. The parser raises ValueError for an
    invalid text.
    """

    def read(text: str) -> list[Dependency]:
        if until is Until.DATA:
            if not text:
                raise ValueError("the path is empty")
            return [Dependency(until, path=os.path.abspath(text))]
        labels = [part.strip() for part in text.split(",")]
        wrong = next((label for label in labels if not _LABEL.fullmatch(label)), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r} is not a job; write 12, 12_3 or 12,13,14")
        return [Dependency(until, label) for label in labels]

    return read


AFTER = {
    "after": Until.STARTED,
    "after_ok": Until.OK,
    "after_not_ok": Until.NOT_OK,
    "after_end": Until.ENDED,
    "after_checkpoint": Until.CHECKPOINT,
    "after_data": Until.DATA,
}
"""The event for which a job waits, by the name of the dependency option."""
