"""The route of events: pages of journal entries, each with a sentence for users."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from controller.api.server.access import Caller, Role
from controller.api.server.request import Call
from controller.api.views.event_sentences import jobs_of, labelled, sentence
from controller.core.model.events.access import PRIVATE
from controller.core.model.rows import JournalEntry
from controller.core.state.job_and_node_rows import load_job
from controller.core.state.state import State
from controller.daemon import Daemon
from wire.api.service.cluster import EventList, EventView


async def listing(call: Call) -> EventList:
    """List up to `limit` journal entries with numbers above `after`; with `job`, only entries of one job."""
    after, limit, job = call.query["after"], call.query["limit"], call.query["job"]
    store = call.daemon.store
    entries = await call.daemon.read(lambda: store.journal(after, limit, job))
    views = await event_views(call.daemon, visible(entries, call.caller))
    return EventList(views, entries[-1].seq if entries else after, store.begins)


def visible(entries: Sequence[JournalEntry], caller: Caller) -> list[JournalEntry]:
    """Return the entries that the caller may see. Only admins and the user of a token see events about the
    token.
    """
    return [
        entry
        for entry in entries
        if entry.kind not in PRIVATE or caller.role is Role.ADMIN or _token_user(entry) == caller.user
    ]


def _token_user(entry: JournalEntry) -> str:
    facts = json.loads(entry.body)
    return str(facts.get("token", facts)["user"])


async def event_views(daemon: Daemon, entries: Sequence[JournalEntry]) -> tuple[EventView, ...]:
    """Return the API's views of journal entries. Each view has a sentence that names jobs by display id (such
    as 12_3) and not by internal id.
    """
    bodies = [json.loads(entry.body) for entry in entries]
    for facts in bodies:
        name_gpu(daemon.state, facts)
    labels = await _labels(daemon, {job for facts in bodies for job in jobs_of(facts)})
    return tuple(_view(entry, facts, labels) for entry, facts in zip(entries, bodies, strict=True))


def name_gpu(state: State, facts: dict[str, Any]) -> None:
    """If the event `facts` names a GPU by UUID, add the name of the GPU, such as gpu03:2, under the key
    `gpu`.
    """
    node = state.nodes.get(str(facts.get("node")))
    index = {gpu.uuid: gpu.index for gpu in node.facts.gpus} if node is not None else {}
    if facts.get("uuid") in index:
        facts["gpu"] = f"{facts['node']}:{index[facts['uuid']]}"


async def _labels(daemon: Daemon, ids: Collection[int]) -> dict[int, str]:
    """Return a dict from each of these internal ids to the display id (17 or 12_3) of the job, from memory or
    from the store.
    """
    known = {job: there.label for job in ids if (there := daemon.state.jobs.get(job)) is not None}
    missing = [job for job in ids if job not in known]
    if missing:
        rows = await daemon.read(lambda: daemon.store.jobs_of_ids(missing))
        # Decode the whole stored job only if the job is an array element, because the display id of an
        # element contains its index.
        known.update((row.id, str(row.id) if row.array is None else load_job(row).label) for row in rows)
    return known


def _view(entry: JournalEntry, facts: dict[str, Any], labels: Mapping[int, str]) -> EventView:
    """Return the API's view of an event without fields that may contain secrets, because every user may
    read events."""
    text = sentence(entry.kind, labelled(facts, labels))
    for name in ("at", "job", "node", "key", "policy"):
        facts.pop(name, None)
    spec = facts.get("spec")
    if spec is not None:
        spec.pop("env", None)
        spec["command"] = spec["command"][:1]
    if entry.kind == "WorkloadSubmitted":
        facts["asked"]["tasks"] = [task["name"] for task in facts["asked"]["tasks"]]
    if entry.kind in PRIVATE:
        facts.get("token", {}).pop("digest", None)
    label = "" if entry.job is None else labels.get(entry.job, str(entry.job))
    return EventView(entry.seq, entry.at, entry.kind, text, entry.job, entry.node, facts, label)
