"""Hours and days of accounted figures: sums, what is kept, and what is stored."""

from __future__ import annotations

from controller.core.accounting import hours
from controller.core.accounting.hours import HOUR_S, KEPT_HOURS, OTHERS, TENANTS, Periods
from controller.core.accounting.wait_histogram import FACTOR, bin_of, quantile
from controller.core.model.rows import NoteRow

ANN = ("llm", "ann")


def _filled(periods: Periods, hour: int, got: float) -> None:
    period = periods.at(hour * HOUR_S)
    period.capacity += 8
    period.tenant(ANN).got += got
    period.tenant(ANN).waits[3] += 1
    period.idle["no job waits"] += 8 - got


def test_the_sum_has_only_periods_within_the_time() -> None:
    periods = Periods()
    for hour in (100, 101, 102):
        _filled(periods, hour, 2.0)
    begin, total = periods.since(101.5 * HOUR_S, 103 * HOUR_S)
    assert (begin, total.capacity, total.tenants[ANN].got) == (101 * HOUR_S, 16, 4.0)
    assert (total.idle, total.tenants[ANN].waits) == ({"no job waits": 12.0}, {3: 2})
    assert periods.since(200 * HOUR_S, 201 * HOUR_S)[0] == 201 * HOUR_S


def test_old_hours_become_days_and_old_days_are_dropped() -> None:
    periods, stored = Periods(kept_days=10), dict[str, NoteRow]()
    for hour in range(0, 24 * 30, 6):
        _filled(periods, hour, 1.0)
        stored.update((row.name, row) for row in periods.take_changed())
    left = {name for name, row in stored.items() if row.body is not None}
    last = 24 * 30 - 6
    assert {name for name in left if name.startswith("hour/")} == {
        f"hour/{hour}" for hour in range(last - KEPT_HOURS + 6, last + 1, 6)
    }
    assert min(int(name[4:]) for name in left if name.startswith("day/")) == last // 24 - 10
    # What was stored gives the same sums again.
    loaded = Periods()
    loaded.load(stored.values())
    assert loaded.since(0.0, 1e9) == periods.since(0.0, 1e9)
    # The last 10 days and the present day are kept, with 4 GPU-hours each.
    assert periods.since(0.0, 1e9)[1].tenants[ANN].got == 44


def test_loading_keeps_the_periods_in_memory() -> None:
    periods = Periods()
    _filled(periods, 5, 1.0)
    stored = periods.take_changed()
    _filled(periods, 5, 1.0)
    periods.load(stored)
    assert periods.since(0.0, 1e9)[1].tenants[ANN].got == 2.0


def test_too_many_tenants_are_counted_together() -> None:
    period = Periods().at(0.0)
    for number in range(TENANTS + 5):
        period.tenant((f"p{number}", "mal")).got += 1
    assert len(period.tenants) == TENANTS + 1
    assert period.tenants[OTHERS].got == 5


def test_quantiles_of_waits() -> None:
    waits = hours.Counter(bin_of(wait_s) for wait_s in [0.2, 10, 10, 100, 1000, 10_000])
    assert quantile({}, 0.5) is None
    assert quantile(waits, 0.1) == 0.0
    for part, wait_s in ((0.5, 10), (0.9, 10_000)):
        found = quantile(waits, part)
        assert found is not None
        assert wait_s / FACTOR < found < wait_s * FACTOR
