"""The journal as people and programs read it."""

from __future__ import annotations

import json
from typing import Any

from controller.api.call import Call
from controller.api.sentences import sentence
from controller.core.rows import Entry
from wire.api.cluster import EventList, EventView


async def listing(call: Call) -> EventList:
    """A page of the journal behind `after`, of one job or of all."""
    after, limit, job = call.query["after"], call.query["limit"], call.query["job"]
    store = call.daemon.store
    entries = await call.daemon.read(lambda: store.journal(after, limit, job))
    return EventList(tuple(map(event_view, entries)), entries[-1].seq if entries else after)


def event_view(entry: Entry) -> EventView:
    """An entry with its sentence. Everybody sees events, so nobody sees what may hold secrets."""
    facts: dict[str, Any] = json.loads(entry.body)
    text = sentence(entry.kind, facts)
    for name in ("at", "job", "node", "key"):
        facts.pop(name, None)
    spec = facts.get("spec")
    if spec is not None:
        spec.pop("env", None)
        spec["command"] = spec["command"][:1]
    return EventView(entry.seq, entry.at, entry.kind, text, entry.job, entry.node, facts)
