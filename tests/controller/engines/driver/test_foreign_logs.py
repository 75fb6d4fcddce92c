"""Logs of foreign jobs: parts of them, and searches, with one piece in memory at a time."""

from __future__ import annotations

import tracemalloc
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.engines.contract import Ref
from controller.engines.driver.foreign_attempts import AttemptRecord, ForeignAttempt
from controller.engines.driver.foreign_logs import ForeignLogs
from controller.engines.driver.record_files import RecordFiles
from tests.controller.engines.fake_engine import FakeEngine, World
from wire.agent.frames import AgentFrame
from wire.agent.orders import ReadLog, SearchLog
from wire.agent.reports import LogChunk, LogFound

ATTEMPT = ForeignAttempt.of(AttemptRecord("corral-0f3a9c112233-1-1-0", "n1", 1, 1, ref="f1"), 0.0)


class Pieces(FakeEngine):
    """An engine with a log of `count` equal pieces."""

    def __init__(self, piece: bytes, count: int = 1) -> None:
        super().__init__(World())
        self.piece, self.count = piece, count

    async def logs(self, ref: Ref, stream: str, *, follow: bool) -> AsyncIterator[bytes]:
        for _ in range(self.count):
            yield bytes(bytearray(self.piece))  # a copy, as from a socket


async def search(engine: Pieces, place: Path, order: SearchLog) -> LogFound:
    frames: list[AgentFrame] = []
    await ForeignLogs(engine, RecordFiles(place)).search(order, ATTEMPT, frames.append)
    [found] = frames
    assert isinstance(found, LogFound)
    return found


@pytest.mark.parametrize("piece", [b"a needle ", b"le a need", b"NEEDLE aa"])
@pytest.mark.parametrize("text", ["needle", "a", "absent"])
@pytest.mark.parametrize("back", [False, True])
async def test_a_search_in_pieces_finds_what_a_search_in_the_whole_finds(
    piece: bytes, text: str, back: bool, tmp_path: Path
) -> None:
    whole, wanted = (piece * 3).lower(), text.encode()
    for offset in range(-1, len(whole) + 2):
        begin = len(whole) if offset < 0 else offset
        at = whole.rfind(wanted, 0, begin) if back else whole.find(wanted, begin)
        found = await search(Pieces(piece, 3), tmp_path, SearchLog(1, 1, 1, text, offset=offset, back=back))
        assert (found.found, found.size) == (at if at >= 0 else None, len(whole))


async def test_the_end_of_a_large_log_needs_little_memory(tmp_path: Path) -> None:
    engine = Pieces(b"0123456789abcdef" * 4_096, 512)  # 32 MiB
    frames: list[AgentFrame] = []
    tracemalloc.start()
    try:
        logs = ForeignLogs(engine, RecordFiles(tmp_path))
        await logs.read(ReadLog(1, 1, 1, "stdout", -5, False), ATTEMPT, frames.append)
        await search(engine, tmp_path, SearchLog(1, 1, 1, "absent"))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    first = frames[0]
    assert isinstance(first, LogChunk)
    assert b64decode(first.data) == b"bcdef"
    assert most < 8 << 20
