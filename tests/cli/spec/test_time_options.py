"""Moments and restart policies as people write them."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from cli.exit_codes import CommandError
from cli.spec.time_options import moment, restart_of
from wire.job.start_conditions import Restart, RestartWhen

NOON = time.mktime((2030, 5, 1, 12, 0, 0, 0, 0, -1))
"""Where we are, whatever its time zone."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+2h", NOON + 7_200),
        ("now+90s", NOON + 90),
        ("12:30", NOON + 1_800),
        ("12:00:01", NOON + 1),
        ("2030-05-01T13:00", NOON + 3_600),
        ("2030-05-01 13:00", NOON + 3_600),
        ("2030-05-01T00:00+00:00", 1_903_824_000.0),
    ],
)
def test_moments(text: str, expected: float) -> None:
    assert moment(text, NOON) == expected


def test_a_time_of_day_that_has_passed_is_tomorrow() -> None:
    assert datetime.fromtimestamp(moment("11:59", NOON)).timetuple()[:5] == (2030, 5, 2, 11, 59)  # noqa: DTZ006


@pytest.mark.parametrize("text", ["", "soon", "25:00", "+2", "2030-13-01", "12", "+"])
def test_what_is_no_moment_is_said_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|could be|has no unit"):
        moment(text, NOON)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None, None), None),
        (("never:1", None, None), Restart(RestartWhen.NEVER, 1)),
        (("on-failure", None, None), Restart(RestartWhen.ON_FAILURE, 3)),
        (
            ("on-failure:5", "1m", "75,130-132"),
            Restart(RestartWhen.ON_FAILURE, 5, 60, 600, (75, 130, 131, 132)),
        ),
        (("always", "20m", None), Restart(RestartWhen.ALWAYS, None, 1_200, 1_200)),
        (("always:2", "0s:0s", None), Restart(RestartWhen.ALWAYS, 2, 0, 0)),
    ],
)
def test_restart_policies(given: tuple[str | None, str | None, str | None], expected: Restart | None) -> None:
    assert restart_of(*given) == expected


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            ("sometimes", None, None),
            "'sometimes' is not a policy; write never, on-hardware, on-failure, always",
        ),
        (("on-failure:0", None, None), "'0' is not a number of restarts"),
        (("on-failure:x", None, None), "'x' is not a number of restarts"),
        (("on-failure", "5m:1m", None), "begins with a longer time than it ends with"),
        (("on-failure", "5", None), "has no unit"),
        (("on-failure", None, "0"), "are not exit codes"),
        (("on-failure", None, "x"), "cannot read 'x'"),
        ((None, "5s", None), "need --restart"),
    ],
)
def test_what_is_no_policy_is_said_so(given: tuple[str | None, str | None, str | None], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        restart_of(*given)
