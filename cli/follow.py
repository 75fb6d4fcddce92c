"""Jobs watched until they end, over restarts of the controller."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from cli import exits
from cli.exits import Mistake
from cli.messages import note
from cli.selection import pages
from wire.api.jobs import JobView
from wire.client import Client, Refused, Unreachable

PATIENCE_S = 60.0
"""So long a controller may be away before a watch gives up; the jobs go on without it."""

PAUSE_S = 0.5
FEW = 20


def until_over(ids: Collection[int], deadline: float | None = None) -> list[JobView]:
    """Wait until all have ended; gives them as they ended, by id."""
    ended: dict[int, JobView] = {}
    for job in changes(ids, deadline):
        if job.state.terminal:
            ended[job.id] = job
        if len(ended) == len(ids):
            break
    return [ended[job] for job in sorted(ended)]


def until_started(job: int) -> None:
    """Wait until it writes, or never will."""
    for view in changes([job]):
        if view.attempt or view.state.terminal:
            return


def worst(jobs: Iterable[JobView]) -> int:
    """The first exit code that is not 0."""
    return next((code for code in map(exits.of_job, jobs) if code), 0)


class Patience:
    """Lets what went away come back, for a while."""

    def __init__(self, deadline: float | None = None, *, quiet: bool = False) -> None:
        self._deadline = deadline
        self._quiet = quiet
        self._since: float | None = None

    def heard(self) -> None:
        """It is there."""
        self._since = None
        self._check()

    def lost(self, error: Unreachable | Refused) -> None:
        """It is not: wait a little, or give up."""
        self._check()
        now = time.monotonic()
        if self._since is None:
            self._since = now
            if not self._quiet:
                note(f"corral: {error}; trying again for {PATIENCE_S:.0f} s")
        if now - self._since > PATIENCE_S:
            raise error
        time.sleep(PAUSE_S)

    def _check(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise Mistake("the time to wait is over; the jobs go on", code=exits.TIMEOUT) from None


def changes(ids: Collection[int], deadline: float | None = None) -> Iterator[JobView]:
    """These jobs as they are now, and again whenever they change."""
    patience = Patience(deadline)
    while True:
        client = Client()
        try:
            with _ending_at(deadline, client):
                for job in _changes(client, ids):
                    patience.heard()
                    if job is not None:
                        yield job
            time.sleep(PAUSE_S)  # ended in order: the controller stops
        except Unreachable as lost:
            patience.lost(lost)
        finally:
            client.close()


def _changes(client: Client, ids: Collection[int]) -> Iterator[JobView | None]:
    """As they are, and as they change; None for a heartbeat."""
    # The position first: what changes after it comes through the stream, perhaps twice, never not at all.
    seq = client.health().seq
    unseen = set(ids)
    if len(ids) > FEW:
        for job in pages(client, after=min(ids) - 1):
            if job.id in unseen:
                unseen.discard(job.id)
                yield job
            if not unseen or job.id > max(unseen):
                break
    # The listing forgets what ended long ago; asked for by name it is remembered.
    yield from (client.job(job).job for job in sorted(unseen))
    for batch in client.stream(seq):
        yield from (job for job in batch.jobs if job.id in ids) if batch is not None else [None]


@contextmanager
def _ending_at(deadline: float | None, client: Client) -> Iterator[None]:
    """Cut the client's connections at the deadline, so that no read outlasts it."""
    if deadline is None:
        yield
        return
    alarm = threading.Timer(max(0.0, deadline - time.monotonic()), client.close)
    alarm.daemon = True
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()
