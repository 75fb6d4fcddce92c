"""Verifying and compacting the store through the controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class VerifyLine:
    """A line of the answer to `GET /v1/store/verify`: progress, and with `done` the report.

    `head` is the hash of entry `seq`, the newest. Entries up to `begins` were deleted by retention.
    """

    done: bool = False
    doing: str = ""
    count: int = 0
    store: str = ""
    begins: int = 0
    seq: int = 0
    head: str = ""
    jobs: int = 0
    compared: int = 0
    nodes: int = 0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompactRequest:
    """Delete ended jobs and journal entries older than this number of days; None: as in [retention]."""

    jobs_days: Optional[float] = None
    journal_days: Optional[float] = None


@dataclass(frozen=True)
class Compacted:
    """The number of deleted rows, and the entry after which the journal begins now."""

    jobs: int
    entries: int
    begins: int
