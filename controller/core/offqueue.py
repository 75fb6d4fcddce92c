"""Who works on GPUs past the queue: since when, until when, and charged to whom, if the site wants that.

A stint is a user on one GPU, with however many processes. What happens on a node that is away nobody knows:
its stints are over when it goes, and others begin when it is back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from controller.core.shares import Path, Shares, Sharing

KEPT = 5_000
"""Stints that are over and remembered; the journal has all."""

Key = tuple[str, str, str]
"""Node, GPU, user."""


@dataclass(frozen=True, slots=True)
class Stint:
    """One of them; `rate` is what it costs its user, in units per hour."""

    node: str
    uuid: str
    user: str
    pid: int
    command: str
    since: float
    rate: float = 0.0
    until: float | None = None

    def gpu_hours(self, since: float, until: float) -> float:
        """Of a window; the GPU counts whole."""
        end = until if self.until is None else min(until, self.until)
        return max(0.0, end - max(since, self.since)) / 3_600


@dataclass(slots=True)
class OffQueue:
    """All stints: those that go on, and the newest of those that are over, by number."""

    open: dict[Key, Stint] = field(default_factory=dict)
    over: dict[int, Stint] = field(default_factory=dict)
    next: int = 1
    touched: dict[str, None] = field(default_factory=dict)
    ended: dict[int, None] = field(default_factory=dict)
    charged: dict[Path, None] = field(default_factory=dict)
    """What has changed since the rows were last made: nodes, stints that are over, accounts."""

    def begin(self, stint: Stint, shares: Shares) -> None:
        """Somebody has come."""
        self.open[stint.node, stint.uuid, stint.user] = stint
        self.touched[stint.node] = None
        self._charge(stint, stint.rate, stint.since, shares)

    def end(self, key: Key, at: float, shares: Shares) -> None:
        """And gone."""
        stint = self.open.pop(key)
        self.touched[stint.node] = None
        self.over[self.next] = replace(stint, until=at)
        self.ended[self.next] = None
        self.next += 1
        for number in list(self.over)[: max(0, len(self.over) - KEPT)]:
            del self.over[number]
            self.ended[number] = None
        self._charge(stint, -stint.rate, at, shares)

    def leave(self, node: str, at: float, shares: Shares) -> None:
        """Nobody sees what happens on the node any more."""
        for key in self.on(node):
            self.end(key, at, shares)

    def on(self, node: str) -> list[Key]:
        """The stints that go on there."""
        return [key for key in self.open if key[0] == node]

    def within(self, since: float, until: float) -> Iterator[Stint]:
        """All that have a part in a window, the newest first."""
        for stint in (*reversed(self.open.values()), *reversed(self.over.values())):
            if stint.since < until and (stint.until is None or stint.until > since):
                yield stint

    def _charge(self, stint: Stint, rate: float, at: float, shares: Shares) -> None:
        if stint.rate:
            path = shares.path(shares.sharing.off_queue or "", stint.user)
            shares.open(path)
            shares.use(path, rate, at)
            self.charged.update((path[:depth], None) for depth in range(len(path) + 1))


def rate_of(sharing: Sharing, model: str) -> float:
    """What a GPU costs those who come past the queue; nothing unless a project is named for that."""
    if not sharing.off_queue:
        return 0.0
    billing: Mapping[str, float] = sharing.billing
    return billing.get(f"gpu.{model}", billing.get("gpu", 0.0))
