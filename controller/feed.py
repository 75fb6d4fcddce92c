"""Commits handed on to whoever listens, each at its own pace."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from controller.core.rows import Entry

BEHIND = 4_096
"""Commits a listener may be behind before it has to resume from the journal."""


class Lagged(Exception):
    """The listener was too slow: resume from the last seq it saw."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit and whom it touched; without entries only GPU readings changed."""

    seq: int
    entries: tuple[Entry, ...]
    jobs: frozenset[int]
    nodes: frozenset[str]


class Subscription:
    """Commits from the moment of subscribing; ends when the feed closes."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._waiting: deque[Commit] = deque()
        self._arrived = asyncio.Event()
        self._closed = False
        self._lagged = False

    def push(self, commit: Commit) -> None:
        """Called by the feed: never waits, and a slow listener loses its place instead."""
        if len(self._waiting) >= BEHIND:
            self._lagged = True
            self._waiting.clear()
        if not self._lagged:
            self._waiting.append(commit)
        self._arrived.set()

    def close(self) -> None:
        """Listen no more."""
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


class Feed:
    """All subscriptions of one daemon."""

    def __init__(self) -> None:
        self._listeners: set[Subscription] = set()

    def subscribe(self) -> Subscription:
        """A new listener."""
        listener = Subscription(self)
        self._listeners.add(listener)
        return listener

    def drop(self, listener: Subscription) -> None:
        """Forget a listener."""
        self._listeners.discard(listener)

    def publish(self, commit: Commit) -> None:
        """Hand a commit to everybody."""
        for listener in self._listeners:
            listener.push(commit)

    def close(self) -> None:
        """End every subscription."""
        for listener in list(self._listeners):
            listener.close()
