"""Frames between controller and agent: strict about what can be kept."""

from __future__ import annotations

import pytest

from wire.codec import Malformed
from wire.frames import Report, unpack


def test_half_a_letter_is_refused_and_a_whole_one_is_not() -> None:
    told = b'{"t":"report","status":{"job":1,"attempt":1,"why":"%s"}}'
    with pytest.raises(Malformed, match="surrogates not allowed"):
        unpack(told % rb"\ud800")
    whole = unpack(told % rb"\ud83d\ude00")
    assert isinstance(whole, Report)
    assert whole.status.why == "\U0001f600"
