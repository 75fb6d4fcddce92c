"""The tables of `corral what-if` and `corral explain`: worst and best jobs, sums, and unknown starts."""

from __future__ import annotations

import pytest

from cli.commands.explain import starts
from cli.output.formats import Format
from cli.output.what_if_table import SHOWN, show
from wire.api.forecasts import Explanation, Shift, WhatIfAnswer
from wire.api.jobs import JobView
from wire.api.reasons import Why
from wire.names import JobState, Reason

NOW = 1_700_000_000.0
DAY = 86_400.0


def shift(job: int, was: float | None, becomes: float | None) -> Shift:
    at = [None if each is None else NOW + each for each in (was, becomes)]
    return Shift(job, str(job), "train", "ada", at[0], at[1], ("gpu01",))


def test_what_if_table_shows_the_worst_and_best_of_many(capsys: pytest.CaptureFixture[str]) -> None:
    later = tuple(shift(job, 60, 60 + 3600 * (200 - job)) for job in range(1, 51))
    sooner = tuple(shift(job, 60 + 3600 * (200 - job), 60) for job in range(101, 151))
    answer = WhatIfAnswer(
        NOW, later + sooner, 7, later=2535, sooner=2983, trifles=1, later_h=312.2, sooner_h=540.4
    )
    assert show(answer, Format.TABLE) == 0
    told = capsys.readouterr()
    rows = [line.split()[0] for line in told.out.splitlines()[1:]]
    worst = [str(job) for job in range(1, SHOWN + 1)]
    assert rows == [*worst, *(str(job) for job in range(101, 101 + SHOWN))]
    assert "2535 would start later, 2983 sooner, 7 as now (+312 h / -540 h waited)." in told.err
    assert "1 job would move by less than a minute or 5 % of the wait." in told.err


def test_what_if_table_shows_no_start_beyond_the_forecast(capsys: pytest.CaptureFixture[str]) -> None:
    moved = (shift(1, 3600, None), shift(2, None, 3600))
    answer = WhatIfAnswer(
        NOW, moved, 0, later=1, sooner=1, unknown=9000, complete=False, covers_until=NOW + DAY
    )
    show(answer, Format.TABLE)
    told = capsys.readouterr()
    first, second = told.out.splitlines()[1:]
    assert "in 1h00m" in first
    assert "after 1d00h" in first
    assert ">+23h00m" in first
    assert ">-23h00m" in second
    assert "Starts are known for the next 1d00h; 9,000 jobs start later." in told.err
    assert "--within" in told.err


def test_what_if_table_counts_jobs_without_a_known_start(capsys: pytest.CaptureFixture[str]) -> None:
    moved = (shift(1, 3600, None), shift(2, None, 3600))
    show(
        WhatIfAnswer(NOW, moved, 0, later=1, sooner=1, not_known=3, now_unknown=1, now_known=1), Format.TABLE
    )
    told = capsys.readouterr()
    first, second = told.out.splitlines()[1:]
    assert first.split()[3:] == ["in", "1h00m", "not", "known", "not", "known", "gpu01"]
    assert second.split()[3:] == ["not", "known", "in", "1h00m", "not", "known", "gpu01"]
    assert "1 would start later, 1 sooner, 0 as now, 3 not known." in told.err
    assert "The start of 1 job would no longer be known." in told.err
    assert "The start of 1 job would become known." in told.err


def explained(**more: object) -> Explanation:
    view = JobView.__new__(JobView)
    object.__setattr__(view, "state", JobState.QUEUED)
    return Explanation(view, Why(Reason.RESOURCES, "waits"), **more)  # type: ignore[arg-type]


def test_incomplete_explanation_does_not_blame_missing_time_limits() -> None:
    cut = starts(explained(complete=False, covers_until=NOW + DAY))
    assert "does not start before" in cut
    assert "--within" in cut
    assert "time limit" not in cut
    assert "the time for the answer was too short" in starts(explained(complete=False))
    assert "time to" not in starts(explained())
