"""Peers on a unix socket and on TCP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.wire.http.peer import Line, Peer

MakePeer = Callable[..., Peer]


@pytest.fixture(params=["unix", "tcp"])
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakePeer]:
    """Start a peer that plays the given scripts, one per connection."""
    made: list[Peer] = []

    def make(*scripts: Callable[[Line], None]) -> Peer:
        path = tmp_path / f"{len(made)}.sock" if request.param == "unix" else None
        made.append(Peer(*scripts, path=path))
        return made[-1]

    yield make
    for each in made:
        each.close()
