"""Frames between controller and agent: values that cannot be stored are refused."""

from __future__ import annotations

import pytest

from wire.agent.frames import unpack
from wire.agent.reports import Report
from wire.codec import Malformed


def test_single_surrogate_is_refused() -> None:
    told = b'{"t":"report","status":{"job":1,"attempt":1,"why":"%s"}}'
    with pytest.raises(Malformed, match="surrogates not allowed"):
        unpack(told % rb"\ud800")
    whole = unpack(told % rb"\ud83d\ude00")
    assert isinstance(whole, Report)
    assert whole.status.why == "\U0001f600"


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "9" * 30, "9" * 5_000])
def test_number_that_is_not_finite_is_refused(number: str) -> None:
    """A report with such a number would stop the controller where it is added up or recorded."""
    for told in ('{"t":"pong","beat":1,"clock":%s}', '{"t":"pong","beat":%s}'):
        with pytest.raises(Malformed, match=r"number|digits"):
            unpack((told % number).encode())
