"""Passes each commit (a group of journal entries that were written together) to subscribers, such as event
streams. A slow subscriber does not delay other subscribers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from controller.core.model.rows import JournalEntry
from wire.api.service.cluster import PulseSample

MAX_PENDING_COMMITS = 4_096
"""The most unread commits of one subscriber. If a subscriber has more, all its unread commits are dropped,
and the subscriber must read the journal instead.
"""


class Lagged(Exception):
    """Raised by the subscription of a subscriber that read too slowly, so that commits were dropped. The
    subscriber must read from the journal the entries after the last one that it received.
    """


@dataclass(frozen=True, slots=True)
class Commit:
    """The journal entries that were written together, and the jobs and nodes that they changed. There
    are two kinds of commits without entries: with `pulse`, a new sample of the cluster's figures; without
    `pulse`, new GPU measurements of `nodes`.
    """

    seq: int
    entries: tuple[JournalEntry, ...]
    jobs: frozenset[int]
    nodes: frozenset[str]
    pulse: PulseSample | None = None
    """A sample of the cluster's figures (load, power, queue length). Only subscriptions with `pulse` get
    samples."""


class Subscription:
    """An asynchronous iterator that yields each commit made after subscribe(). The iteration ends when the
    subscription or the feed is closed."""

    def __init__(self, feed: CommitFeed, pulse: bool = False) -> None:
        self._feed = feed
        self.pulse = pulse
        self._waiting: deque[Commit] = deque()
        self._arrived = asyncio.Event()
        self._closed = False
        self._lagged = False

    def push(self, commit: Commit) -> None:
        """Add a commit without blocking. If the subscriber already has MAX_PENDING_COMMITS unread commits,
        drop all of them, and let the iteration raise Lagged.
        """
        if len(self._waiting) >= MAX_PENDING_COMMITS:
            self._lagged = True
            self._waiting.clear()
        if not self._lagged:
            self._waiting.append(commit)
        self._arrived.set()

    def close(self) -> None:
        self._closed = True
        self._arrived.set()
        self._feed.drop(self)

    def __aiter__(self) -> AsyncIterator[Commit]:
        return self

    async def __anext__(self) -> Commit:
        while not self._waiting:
            if self._lagged:
                raise Lagged
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()


class CommitFeed:
    """Passes each commit of the controller to all subscriptions."""

    def __init__(self) -> None:
        self._listeners: set[Subscription] = set()

    def subscribe(self, *, pulse: bool = False) -> Subscription:
        """Return a subscription that receives each commit after this call. With `pulse`, the subscription
        also receives the samples of the cluster's figures.
        """
        listener = Subscription(self, pulse)
        self._listeners.add(listener)
        return listener

    def drop(self, listener: Subscription) -> None:
        self._listeners.discard(listener)

    def publish(self, commit: Commit) -> None:
        for listener in self._listeners:
            if commit.pulse is None or listener.pulse:
                listener.push(commit)

    def close(self) -> None:
        for listener in list(self._listeners):
            listener.close()
