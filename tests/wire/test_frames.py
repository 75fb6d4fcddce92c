"""Frames between controller and agent: strict about what can be kept."""

from __future__ import annotations

import pytest

from wire.agent.frames import Report, unpack
from wire.codec import Malformed


def test_half_a_letter_is_refused_and_a_whole_one_is_not() -> None:
    told = b'{"t":"report","status":{"job":1,"attempt":1,"why":"%s"}}'
    with pytest.raises(Malformed, match="surrogates not allowed"):
        unpack(told % rb"\ud800")
    whole = unpack(told % rb"\ud83d\ude00")
    assert isinstance(whole, Report)
    assert whole.status.why == "\U0001f600"


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "9" * 30, "9" * 5_000])
def test_what_nobody_could_count_with_is_no_number(number: str) -> None:
    """A report of it would stop the controller where it is added up or written down."""
    for told in ('{"t":"pong","beat":1,"clock":%s}', '{"t":"pong","beat":%s}'):
        with pytest.raises(Malformed, match=r"number|digits"):
            unpack((told % number).encode())
