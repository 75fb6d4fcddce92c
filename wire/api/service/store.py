"""API bodies to verify and compact the controller's store, which contains the journal."""

from __future__ import annotations

from typing import Optional

from wire.dataclass import dataclass


@dataclass(frozen=True)
class VerifyLine:
    """One line of the answer to `GET /v1/store/verify`: the progress, or, if `done` is True, the result.

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
    """A request to delete jobs that ended more than `jobs_days` days ago, and journal entries that are more
    than `journal_days` days old. None means the number of days in the table [retention] of scheduler.toml.
    """

    jobs_days: Optional[float] = None
    journal_days: Optional[float] = None


@dataclass(frozen=True)
class Compacted:
    """The numbers of jobs and journal entries that were deleted. `begins` is the number of the last deleted
    entry.
    """

    jobs: int
    entries: int
    begins: int
