"""Waits for jobs to start or end, even if the controller restarts meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from cli import exit_codes
from cli.exit_codes import CommandError
from cli.jobs.selection import pages
from cli.output.stderr import print_note
from wire.api.jobs import JobView
from wire.http.client import Client, Refused, Unreachable

PATIENCE_S = 60.0
"""After this many seconds without a connection to the controller, the command fails. The jobs keep
running.
"""

PAUSE_S = 0.5
FEW = 20


def wait_until_ended(ids: Collection[int], deadline: float | None = None) -> list[JobView]:
    """Wait until all jobs have ended, and return the jobs in the order of their ids. Raise CommandError at
    the deadline, a time of `time.monotonic()`.
    """
    ended: dict[int, JobView] = {}
    for job in changes(ids, deadline):
        if job.state.terminal:
            ended[job.id] = job
        if len(ended) == len(ids):
            break
    return [ended[job] for job in sorted(ended)]


def wait_until_started(job: int) -> None:
    for view in changes([job]):
        if view.attempt or view.state.terminal:
            return


def first_failure(jobs: Iterable[JobView]) -> int:
    """Return the exit code of the first job with an exit code other than 0; 0 if all jobs have completed."""
    return next((code for code in map(exit_codes.of_job, jobs) if code), 0)


class RetryLimit:
    """Limits the time for which a command tries to reconnect after a lost connection."""

    def __init__(self, deadline: float | None = None, *, quiet: bool = False) -> None:
        self._deadline = deadline
        self._quiet = quiet
        self._since: float | None = None

    def connected(self) -> None:
        """Record that the controller has answered. After the next loss of the connection, the limit of
        PATIENCE_S seconds starts again.
        """
        self._since = None
        self._check()

    def disconnected(self, error: Unreachable | Refused) -> None:
        """Sleep before the next attempt to connect. Raise the error after PATIENCE_S seconds without a
        connection.
        """
        self._check()
        now = time.monotonic()
        if self._since is None:
            self._since = now
            if not self._quiet:
                print_note(f"corral: {error}; trying again for {PATIENCE_S:.0f} s")
        if now - self._since > PATIENCE_S:
            raise error
        time.sleep(PAUSE_S)

    def _check(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise CommandError(
                "not all jobs have ended within --timeout; they keep running", code=exit_codes.TIMEOUT
            ) from None


def changes(ids: Collection[int], deadline: float | None = None) -> Iterator[JobView]:
    """Yield each job in its present state, and again after each change of the job. Raise CommandError at the
    deadline, a time of `time.monotonic()`.
    """
    retries = RetryLimit(deadline)
    while True:
        client = Client()
        try:
            with _ending_at(deadline, client):
                for job in _changes(client, ids):
                    retries.connected()
                    if job is not None:
                        yield job
            # The stream ends when the controller stops. Wait before connecting again, because a restart of
            # the controller takes time.
            time.sleep(PAUSE_S)
        except Unreachable as lost:
            retries.disconnected(lost)
        finally:
            client.close()


def _changes(client: Client, ids: Collection[int]) -> Iterator[JobView | None]:
    """Yield the jobs in their present state, and then each job after each change. Also yield None for each
    heartbeat of the event stream.
    """
    # Read the journal position before the jobs, so that no change is missed. A change between the two reads
    # is then yielded twice.
    seq = client.health().seq
    unseen = set(ids)
    if len(ids) > FEW:
        for job in pages(client, after=min(ids) - 1):
            if job.id in unseen:
                unseen.discard(job.id)
                yield job
            if not unseen or job.id > max(unseen):
                break
    # Request the jobs in `unseen` one by one: all jobs if there are few, and jobs that ended long ago,
    # because the job list does not contain these.
    yield from (client.job(job).job for job in sorted(unseen))
    for batch in client.stream(seq):
        yield from (job for job in batch.jobs if job.id in ids) if batch is not None else [None]


@contextmanager
def _ending_at(deadline: float | None, client: Client) -> Iterator[None]:
    """Context manager that closes the connections of the client at the deadline, so that no read lasts until
    after the deadline. `deadline` is a time of `time.monotonic()`; None means no deadline.
    """
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
