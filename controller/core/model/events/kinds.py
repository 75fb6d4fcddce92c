"""The registry of events: the class of each kind of journal entry, and the conversion between events and
JSON.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from controller.core.model.events import (
    access,
    attempts,
    controller,
    nodes,
    nominations,
    queued,
    reservations,
    services,
    tenants,
    workloads,
)
from controller.core.model.events.event import Event
from wire.codec import decode, dumps, encode

JOURNAL_NAMES = {
    "OffQueueProcessStarted": "StrangerCame",
    "OffQueueProcessEnded": "StrangerLeft",
    "DeadlineAtRisk": "DeadlineDoubted",
}
"""The old names of renamed event classes, by their present name. The journal, the API and saved traces still
use the old names.
"""

MODULES: tuple[ModuleType, ...] = (
    queued,
    attempts,
    nominations,
    nodes,
    tenants,
    reservations,
    services,
    workloads,
    controller,
    access,
)
"""The modules that define events. Each class in these modules that derives from a base class in event.py is
one kind of event.
"""

_KIND_OF: dict[type[Any], str] = {
    event: JOURNAL_NAMES.get(name, name)
    for module in MODULES
    for name, event in vars(module).items()
    if isinstance(event, type) and issubclass(event, Event) and event.__bases__ != (object,)
}
KINDS: dict[str, type[Any]] = {kind: event for event, kind in _KIND_OF.items()}
"""The event class of each kind of journal entry, by the name of the kind."""


def kind_of(event: Event) -> str:
    """Return the name of the event's kind in the journal. The kind has the name of the event's class, or the
    old name if the class was renamed.
    """
    return _KIND_OF[type(event)]


def body_of(event: Event) -> str:
    """Return the event as JSON, for the body of its journal entry."""
    return dumps(encode(event))


def event_of(kind: str, body: str) -> Event:
    """Return the event of a journal entry. Raise KeyError for an unknown kind, and Malformed for an invalid
    body.
    """
    event: Event = decode(KINDS[kind], json.loads(body))
    return event
