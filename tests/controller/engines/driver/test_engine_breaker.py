"""The circuit breaker of an execution engine."""

from __future__ import annotations

from controller.engines.driver.engine_breaker import EngineBreaker


def test_it_opens_after_failures_in_a_row_and_pauses_longer_each_time() -> None:
    breaker = EngineBreaker(3)
    looks = []
    now = 0.0
    while now <= 100.0:
        if breaker.may_look(now):
            looks.append(now)
            breaker.fail("away", now)
        now += 10.0
    assert looks == [0.0, 10.0, 20.0, 30.0, 50.0, 90.0]
    assert (breaker.is_open, breaker.opened, breaker.since) == (True, 1, 0.0)


def test_a_success_closes_it_and_resets_the_count() -> None:
    breaker = EngineBreaker(2)
    breaker.fail("away", 0.0)
    breaker.succeed()
    breaker.fail("away", 5.0)
    assert not breaker.is_open
    breaker.fail("away", 6.0)
    assert breaker.is_open
    breaker.succeed()
    assert (breaker.is_open, breaker.why, breaker.opened) == (False, "", 1)
