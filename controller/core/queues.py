"""The queues of all profiles, as one: for whoever asks whether a job waits, and not for whose turn it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from controller.core.queue import Entry, Lane, Queue


class Queues:
    """A job waits in at most one of them."""

    def __init__(self, by_name: Mapping[str, Queue]) -> None:
        self.by_name = by_name

    def __len__(self) -> int:
        return sum(len(queue) for queue in self.by_name.values())

    def __contains__(self, job: int) -> bool:
        return any(job in queue for queue in self.by_name.values())

    def __iter__(self) -> Iterator[Lane]:
        for queue in self.by_name.values():
            yield from queue

    def remove(self, job: int) -> None:
        """The job waits no longer; a job that does not wait is left alone."""
        for queue in self.by_name.values():
            queue.remove(job)

    def lane(self, job: int) -> Lane | None:
        """The lane the job waits in."""
        return next((lane for queue in self.by_name.values() if (lane := queue.lane(job)) is not None), None)

    def entry(self, job: int) -> Entry:
        """The place of a waiting job, comparable with those of the same profile."""
        return next(queue.entry(job) for queue in self.by_name.values() if job in queue)
