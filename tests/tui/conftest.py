"""One place, one time zone, no wishes from the environment."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> Iterator[None]:
    """The same time of day in every test."""
    monkeypatch.setenv("TZ", "UTC")
    for name in ("NO_COLOR", "CORRAL_THEME", "CORRAL_ASCII", "COLORFGBG", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir("/")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
