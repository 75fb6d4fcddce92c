"""Sends commits to HTTP clients as server-sent events. A client that reconnects gets every commit exactly
once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial

from aiohttp import web
from pydantic import TypeAdapter

from controller.api.handlers.nodes.nodes import live_view
from controller.api.handlers.service.events import event_views, visible
from controller.api.server.access import Caller
from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.api.views.resources import job_view
from controller.commit_feed import Commit, Lagged, Subscription
from controller.core.model.events.access import PRIVATE
from controller.core.model.job import Job
from controller.core.model.rows import JournalEntry
from controller.core.state.job_and_node_rows import load_job
from controller.daemon import Daemon
from controller.nodes.exec_sessions import ExecSession
from wire.api.jobs import JobView
from wire.api.nodes import NodeView
from wire.api.service.cluster import StreamBatch

BATCH = 500
HEARTBEAT_S = 5.0
SHARED = 8
"""The number of latest commits whose encoded bytes are kept. Each commit is encoded only once, because all
streams send the same bytes.
"""

HEARTBEAT = b":\n\n"

_BATCH = TypeAdapter(StreamBatch)


async def follow(call: Call) -> web.StreamResponse:
    """Send the commits after journal entry number `after` (or Last-Event-ID), then each new commit."""
    after: int | None = call.query["after"]
    if after is None:
        after = _last_event_id(call.request.headers.get("Last-Event-ID", ""))
    await call.daemon.settled()
    last = call.daemon.seq
    if after is not None and after > last:
        message = f"the journal ends at {last}, before {after}"
        raise rejected(
            "conflict",
            message,
            "after",
            "Load all jobs and nodes again, and follow the events from that point.",
        )
    begins = call.daemon.store.begins
    if after is not None and after < begins:
        message = (
            f"the journal begins after entry {begins}; the entries between {after} and {begins} are deleted"
        )
        raise rejected(
            "conflict",
            message,
            "after",
            "Load all jobs and nodes again, and follow the events from that point.",
        )
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(call.request)
    await response.write(HEARTBEAT)
    begin = last if after is None else after
    await _Listener(call, response, begin).listen()
    await response.write_eof()
    return response


def _last_event_id(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


class EventStreams:
    """The open event streams of the server, and the encoded bytes of the latest commits, which all streams
    share.
    """

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.shells: dict[str, tuple[str, ExecSession]] = {}
        self._closing = False
        self._open: set[Subscription] = set()
        self._rendered: deque[tuple[Commit, bool, bytes]] = deque(maxlen=SHARED)
        self._rendering = asyncio.Lock()
        self.replaying = asyncio.Lock()
        """A stream holds this lock while it converts a batch of old journal entries. Only one stream at a
        time does so, so that other requests wait for at most one batch.
        """

    def subscribe(self, *, pulse: bool) -> Subscription:
        """Return a subscription that receives each new commit until close() is called. With `pulse`, the
        subscription also receives the samples of the cluster's figures (load, power, queue length).
        """
        subscription = self.daemon.subscribe(pulse=pulse)
        self._open.add(subscription)
        if self._closing:
            subscription.close()
        return subscription

    def leave(self, subscription: Subscription) -> None:
        self._open.discard(subscription)
        subscription.close()

    def close(self) -> None:
        """End all event streams and all commands of `corral exec`."""
        self._closing = True
        for subscription in self._open:
            subscription.close()
        for _, shell in self.shells.values():
            shell.close()

    async def render(self, commit: Commit, rows: bool, caller: Caller) -> bytes:
        """Return a commit as the bytes of server-sent events. The bytes are cached, because all streams send
        the same bytes.

        With `rows`, the bytes also contain the present state of the jobs and nodes that the commit
        changed. Commits with events that not all callers may see are encoded for each stream.
        """
        if any(entry.kind in PRIVATE for entry in commit.entries):
            return await self.render_entries(commit.entries, rows, caller)
        async with self._rendering:
            for known, with_rows, data in self._rendered:
                if known is commit and with_rows is rows:
                    return data
            if commit.pulse is not None:
                data = b"data: %b\n\n" % _BATCH.dump_json(StreamBatch(commit.seq, pulse=commit.pulse))
            elif commit.entries:
                data = await self.render_entries(commit.entries, rows, caller)
            else:
                data = await self._readings(commit)
            self._rendered.append((commit, rows, data))
            return data

    async def render_entries(self, entries: Sequence[JournalEntry], rows: bool, caller: Caller) -> bytes:
        """Return the events of these journal entries that the caller may see, as the bytes of server-sent
        events, with up to BATCH entries in one server-sent event.

        With `rows`, each server-sent event also contains the jobs and nodes that its journal entries change.
        The state of these jobs and nodes may be newer than the entries, but never older.
        """
        messages = []
        for start in range(0, len(entries), BATCH):
            part = entries[start : start + BATCH]
            jobs, nodes = await self._rows(part) if rows else ((), ())
            batch = StreamBatch(
                part[-1].seq, await event_views(self.daemon, visible(part, caller)), jobs, nodes
            )
            messages.append(b"id: %d\ndata: %b\n\n" % (batch.seq, _BATCH.dump_json(batch)))
            # Let the event loop serve other requests after each batch, because encoding the events of a large
            # job array takes long.
            await asyncio.sleep(0)
        return b"".join(messages)

    async def _readings(self, commit: Commit) -> bytes:
        await self.daemon.settled()
        return b"data: %b\n\n" % _BATCH.dump_json(StreamBatch(commit.seq, nodes=self._nodes(commit.nodes)))

    async def _rows(
        self, entries: Sequence[JournalEntry]
    ) -> tuple[tuple[JobView, ...], tuple[NodeView, ...]]:
        known = {
            entry.job: self.daemon.state.jobs.get(entry.job) for entry in entries if entry.job is not None
        }
        known |= await self._forgotten([job for job, there in known.items() if there is None])
        await self.daemon.settled()
        # For a job that is no longer in memory, use its row in the store. The row is up to date, because the
        # job has ended.
        found = [self.daemon.state.jobs.get(job) or there for job, there in known.items()]
        jobs = [job for job in found if job is not None]
        names = {entry.node for entry in entries if entry.node is not None}
        names.update(node for job in jobs for node in job.members)
        engine, use = self.daemon.engine, self.daemon.agents.running_usage
        return tuple(job_view(engine, job, use.of(job)) for job in jobs), self._nodes(names)

    async def _forgotten(self, ids: Sequence[int]) -> dict[int, Job]:
        if not ids:
            return {}
        store = self.daemon.store
        rows = await self.daemon.read(lambda: [store.job(job) for job in ids])
        return {row.id: load_job(row) for row in rows if row is not None}

    def _nodes(self, names: set[str] | frozenset[str]) -> tuple[NodeView, ...]:
        nodes = self.daemon.state.nodes
        known = [node for name in sorted(names) if (node := nodes.get(name)) is not None]
        return tuple(live_view(self.daemon, node) for node in known)


class _Listener:
    """One client's event stream. `seen` is the number of the last journal entry that the client has got."""

    def __init__(self, call: Call, response: web.StreamResponse, seen: int) -> None:
        self.streams = call.streams
        self.caller = call.caller
        self.response = response
        self.seen = seen
        self.rows: bool = call.query["rows"]
        self.pulse: bool = call.query["pulse"]

    async def listen(self) -> None:
        """Send commits until the server closes. If the client reads too slowly, so that commits were dropped,
        read these commits from the journal."""
        while True:
            subscription = self.streams.subscribe(pulse=self.pulse)
            try:
                # Read the journal after subscribing and not before, because a commit between the two steps
                # would otherwise be missed.
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
            async with self.streams.replaying:
                entries = await daemon.read(partial(daemon.store.journal, self.seen, limit))
                data = await self.streams.render_entries(entries, self.rows, self.caller)
            await self.response.write(data)
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
            if commit.entries or self.rows or commit.pulse is not None:
                await self.response.write(await self.streams.render(commit, self.rows, self.caller))
            self.seen = commit.seq
