"""Commits as they happen, as server-sent events; whoever comes back goes on without gap or double."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial

from aiohttp import web
from pydantic import TypeAdapter

from controller.api.call import Call
from controller.api.errors import Rejected
from controller.api.events import event_view
from controller.api.views import job_view, node_view
from controller.core.inputs import Refusal
from controller.core.jobs import Job
from controller.core.records import job_of
from controller.core.rows import Entry
from controller.daemon import Daemon
from controller.feed import Commit, Lagged, Subscription
from controller.nodes.shells import Shell
from wire.api.cluster import StreamBatch
from wire.api.jobs import JobView
from wire.api.nodes import NodeView

BATCH = 500
HEARTBEAT_S = 5.0
SHARED = 8
"""Commits kept as they were sent: listeners that keep pace share the work of rendering them."""

HEARTBEAT = b":\n\n"

_BATCH = TypeAdapter(StreamBatch)


async def follow(call: Call) -> web.StreamResponse:
    """Commits behind `after` (or Last-Event-ID), then as they happen; a comment in five silent seconds."""
    after: int | None = call.query["after"]
    if after is None:
        after = _last_event_id(call.request.headers.get("Last-Event-ID", ""))
    await call.daemon.settled()
    last = call.daemon.seq
    if after is not None and after > last:
        message = f"the journal ends at {last}, before {after}"
        raise Rejected(Refusal("conflict", message, "after", "Load everything anew and go on from there."))
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(call.request)
    await response.write(HEARTBEAT)
    await _Listener(call.streams, response, last if after is None else after, call.query["rows"]).listen()
    await response.write_eof()
    return response


def _last_event_id(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


class Streams:
    """All listeners of one server, and what they share."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.shells: dict[str, tuple[str, Shell]] = {}
        self._closing = False
        self._open: set[Subscription] = set()
        self._rendered: deque[tuple[Commit, bool, bytes]] = deque(maxlen=SHARED)
        self._rendering = asyncio.Lock()

    def subscribe(self) -> Subscription:
        """Commits from now on, until close()."""
        subscription = self.daemon.subscribe()
        self._open.add(subscription)
        if self._closing:
            subscription.close()
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Nobody listens to this one any more."""
        self._open.discard(subscription)
        subscription.close()

    def close(self) -> None:
        """Let all listeners end."""
        self._closing = True
        for subscription in self._open:
            subscription.close()
        for _, shell in self.shells.values():
            shell.close()

    async def render(self, commit: Commit, rows: bool) -> bytes:
        """A live commit as it is sent, rendered once for all who keep pace."""
        async with self._rendering:
            for known, with_rows, data in self._rendered:
                if known is commit and with_rows is rows:
                    return data
            data = await (
                self.render_entries(commit.entries, rows) if commit.entries else self._readings(commit)
            )
            self._rendered.append((commit, rows, data))
            return data

    async def render_entries(self, entries: Sequence[Entry], rows: bool) -> bytes:
        """Entries in batches, each with its jobs and nodes as they are now: never older than the entries."""
        messages = []
        for start in range(0, len(entries), BATCH):
            part = entries[start : start + BATCH]
            jobs, nodes = await self._rows(part) if rows else ((), ())
            batch = StreamBatch(part[-1].seq, tuple(map(event_view, part)), jobs, nodes)
            messages.append(b"id: %d\ndata: %b\n\n" % (batch.seq, _BATCH.dump_json(batch)))
            await asyncio.sleep(0)  # an array of thousands must not keep everybody else waiting
        return b"".join(messages)

    async def _readings(self, commit: Commit) -> bytes:
        await self.daemon.settled()
        return b"data: %b\n\n" % _BATCH.dump_json(StreamBatch(commit.seq, nodes=self._nodes(commit.nodes)))

    async def _rows(self, entries: Sequence[Entry]) -> tuple[tuple[JobView, ...], tuple[NodeView, ...]]:
        known = {
            entry.job: self.daemon.state.jobs.get(entry.job) for entry in entries if entry.job is not None
        }
        known |= await self._forgotten([job for job, there in known.items() if there is None])
        await self.daemon.settled()
        # What memory forgets in between has ended: as it was known is how it stays.
        found = [self.daemon.state.jobs.get(job) or there for job, there in known.items()]
        jobs = [job for job in found if job is not None]
        names = {entry.node for entry in entries if entry.node is not None}
        names.update(node for job in jobs for node in job.members)
        return tuple(job_view(self.daemon.engine, job) for job in jobs), self._nodes(names)

    async def _forgotten(self, ids: Sequence[int]) -> dict[int, Job]:
        if not ids:
            return {}
        store = self.daemon.store
        rows = await self.daemon.read(lambda: [store.job(job) for job in ids])
        return {row.id: job_of(row) for row in rows if row is not None}

    def _nodes(self, names: set[str] | frozenset[str]) -> tuple[NodeView, ...]:
        state, samples, found = self.daemon.state, self.daemon.samples, self.daemon.processes
        idle = self.daemon.idleness.since
        known = [node for name in sorted(names) if (node := state.nodes.get(name)) is not None]
        return tuple(
            node_view(
                state, node, samples.get(node.name, {}), found.get(node.name, ()), idle.get(node.name, {})
            )
            for node in known
        )


class _Listener:
    """One connection and the last entry it was sent."""

    def __init__(self, streams: Streams, response: web.StreamResponse, seen: int, rows: bool) -> None:
        self.streams = streams
        self.response = response
        self.seen = seen
        self.rows = rows

    async def listen(self) -> None:
        """Until the server closes. Whoever falls too far behind reads the journal, and tries again."""
        while True:
            subscription = self.streams.subscribe()
            try:
                # Subscribed first: what is committed from here on arrives, all before is in the journal.
                await self._catch_up(self.streams.daemon.seq)
                return await self._follow(subscription)
            except Lagged:
                continue
            finally:
                self.streams.leave(subscription)

    async def _catch_up(self, last: int) -> None:
        daemon = self.streams.daemon
        while self.seen < last:
            limit = min(BATCH, last - self.seen)
            entries = await daemon.read(partial(daemon.store.journal, self.seen, limit))
            await self.response.write(await self.streams.render_entries(entries, self.rows))
            self.seen = entries[-1].seq

    async def _follow(self, subscription: Subscription) -> None:
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    commit = await anext(subscription, None)
            except TimeoutError:
                await self.response.write(HEARTBEAT)
                continue
            if commit is None:
                return
            if commit.entries or self.rows:
                await self.response.write(await self.streams.render(commit, self.rows))
            self.seen = commit.seq
