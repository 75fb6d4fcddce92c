"""API bodies to verify and compact the store of the controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class VerifyLine:
    """A line of the answer to `GET /v1/store/verify`. It has the progress, or the report if `done` is True.

    `seq` is the number of the newest journal entry and `head` its hash. Retention has deleted the entries up
    to number `begins`.
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
    """Delete ended jobs and journal entries that are older than this. None: the value in [retention]."""

    jobs_days: Optional[float] = None
    journal_days: Optional[float] = None


@dataclass(frozen=True)
class Compacted:
    """The numbers of deleted jobs and journal entries. `begins` is the number of the last deleted entry."""

    jobs: int
    entries: int
    begins: int
