"""The outbox: messages that wait for delivery, and dead letters (messages that are no longer tried)."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from dataclasses import replace

from controller.core.model.rows import NoteRow
from controller.notify.messages import NOTE, Message
from wire.codec import Malformed, decode, dumps, encode

MOST_NOTICES = 500
"""The most notices in one message. The end of the message states how many notices were left out."""


class Outbox:
    """The messages of all sinks. Each message has a database row until its delivery.

    1. The rows of new messages are written in the commit of their events (`row_of`). After the commit, `add`
       puts the messages into the heap of their sink.
    2. `take` returns the next due message of a sink. Messages of one bundle are first joined into one
       message, which keeps the id of the earliest. The caller writes the changed rows before sending a joined
       message. So if the message is sent twice, both copies have the same id and text.
    3. `delivered` deletes the message, `postpone` sets the time of the next try, and `give_up` makes the
       message a dead letter. The caller writes the changed rows later (`take_changed`). If the controller is
       killed before that, the message is sent again with the same id.

    Invariant: a message that is not delivered is in `waiting` or `dead`, and its row is in the database or in
    `take_changed`. Cost: O(log waiting messages) for each message.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, Message] = {}
        self.dead: dict[str, Message] = {}
        self._heaps: dict[str, list[tuple[float, float, str]]] = {}
        """A heap of the waiting messages of each sink, with entries (due, made_at, id). The old entry of a
        message whose `due` has changed is ignored.
        """
        self._bundles: dict[str, dict[str, None]] = {}
        self._changed: dict[str, None] = {}

    def add(self, messages: Iterable[Message]) -> None:
        """Add messages whose rows are already in the database."""
        for each in messages:
            if each.dead:
                self.dead[each.id] = each
            else:
                self._put(each)

    def load(self, notes: Iterable[NoteRow]) -> None:
        """Add the stored messages that are not in memory yet. Rows that this version cannot read are
        skipped.
        """
        for note in notes:
            known = note.name in self.waiting or note.name in self.dead or note.name in self._changed
            if note.kind == NOTE and note.body is not None and not known:
                try:
                    self.add([decode(Message, json.loads(note.body))])
                except (Malformed, ValueError):
                    continue

    def next_due(self, sink: str) -> float | None:
        """Return the time at which the next waiting message of a sink is due; None if no message waits."""
        heap = self._heaps.get(sink, [])
        while heap and not self._is_current(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take(self, sink: str, now: float) -> Message | None:
        """Return the next message of a sink if it is due, None if not. If the message belongs to a bundle,
        join all messages of the bundle first. The returned message stays in `waiting`.
        """
        due = self.next_due(sink)
        if due is None or due > now:
            return None
        message = self.waiting[heapq.heappop(self._heaps[sink])[2]]
        return self._join(message, now) if message.bundle else message

    def release(self, message: Message | None) -> None:
        """Make a message available to `take` again, because its delivery was interrupted. Do nothing if
        `message` is None."""
        if message is not None and message.id in self.waiting:
            self._put(self.waiting[message.id])

    def delivered(self, message: Message) -> None:
        """Remove a message that the sink has accepted."""
        self._drop(message.id)

    def postpone(self, message: Message, due: float, error: str) -> None:
        """Try a message again at the time `due`, because this try has failed with `error`."""
        if message.id in self.waiting:
            self._put(replace(message, due=due, tries=message.tries + 1, error=error))
            self._changed[message.id] = None

    def give_up(self, message: Message, error: str, most_dead: int) -> None:
        """Make a message a dead letter, which is not tried again. If there are more than `most_dead` dead
        letters, delete the oldest."""
        if self.waiting.pop(message.id, None) is None:
            return
        self._leave_bundle(message)
        self.dead[message.id] = replace(message, bundle="", tries=message.tries + 1, error=error, dead=True)
        self._changed[message.id] = None
        while len(self.dead) > most_dead:
            oldest = next(iter(self.dead))
            del self.dead[oldest]
            self._changed[oldest] = None

    def retry(self, ids: Iterable[str], now: float) -> list[Message]:
        """Make the messages with these ids due now, and return these messages. Only dead letters and messages
        that wait after a failure are made due. Ignore all other ids.
        """
        found = []
        for each in ids:
            message = self.dead.pop(each, None) or self.waiting.get(each)
            if message is None or not (message.dead or message.tries):
                continue
            again = replace(message, due=now, made_at=now if message.dead else message.made_at, dead=False)
            self._put(again)
            self._changed[each] = None
            found.append(again)
        return found

    def take_changed(self) -> list[NoteRow]:
        """Return the database rows of the messages that have changed since the last call."""
        rows = []
        for each in self._changed:
            message = self.waiting.get(each) or self.dead.get(each)
            rows.append(NoteRow(NOTE, each, None) if message is None else row_of(message))
        self._changed.clear()
        return rows

    def put_back(self, rows: Iterable[NoteRow]) -> None:
        """Mark rows from `take_changed` as changed again, because these rows could not be written."""
        self._changed.update((row.name, None) for row in rows)

    @property
    def changed(self) -> bool:
        """Return whether there are changed rows that are not written yet."""
        return bool(self._changed)

    def count(self, sink: str) -> tuple[int, int]:
        """Return how many messages of a sink wait, and how many are dead letters."""
        return (
            sum(each.sink == sink for each in self.waiting.values()),
            sum(each.sink == sink for each in self.dead.values()),
        )

    def _put(self, message: Message) -> None:
        self.waiting[message.id] = message
        heap = self._heaps.setdefault(message.sink, [])
        heapq.heappush(heap, (message.due, message.made_at, message.id))
        if message.bundle:
            self._bundles.setdefault(message.bundle, {})[message.id] = None

    def _is_current(self, entry: tuple[float, float, str]) -> bool:
        message = self.waiting.get(entry[2])
        return message is not None and message.due == entry[0]

    def _join(self, message: Message, now: float) -> Message:
        """Replace all messages of a bundle by one message with all their notices. The new message keeps the
        id of the earliest. It counts as made now, so that it is tried for the whole `give_up_s`.
        """
        parts = [self.waiting[each] for each in self._bundles.pop(message.bundle)]
        parts.sort(key=lambda each: (each.made_at, each.id))
        notices = [notice for each in parts for notice in each.notices]
        more = sum(each.more for each in parts) + max(0, len(notices) - MOST_NOTICES)
        joined = replace(parts[0], notices=tuple(notices[:MOST_NOTICES]), more=more, bundle="", made_at=now)
        for each in parts[1:]:
            del self.waiting[each.id]
            self._changed[each.id] = None
        self.waiting[joined.id] = joined
        self._changed[joined.id] = None
        return joined

    def _drop(self, name: str) -> None:
        if self.waiting.pop(name, None) is not None:
            self._changed[name] = None

    def _leave_bundle(self, message: Message) -> None:
        members = self._bundles.get(message.bundle)
        if members is not None:
            members.pop(message.id, None)


def row_of(message: Message) -> NoteRow:
    """Return the database row of a message."""
    return NoteRow(NOTE, message.id, dumps(encode(message)))
