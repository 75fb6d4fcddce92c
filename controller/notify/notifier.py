"""Makes messages about the events of each commit, keeps the users' settings, and starts the delivery of the
messages."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from uuid import uuid4

from controller.config import Config
from controller.core.lifecycle.failure_classes import FailureRule
from controller.core.model.events.event import Event, JobEvent
from controller.core.model.events.nodes import GpuHealthRecorded
from controller.core.model.job import Job
from controller.core.model.rows import NoteRow
from controller.core.state.state import State
from controller.notify.conditions import QUOTA_WORDS, Conditions
from controller.notify.delivery import Delivery, deliver
from controller.notify.job_mail import NO_MAIL, mail_words_of
from controller.notify.limit_mails import LimitMails, limit_notice
from controller.notify.messages import Message, Notice
from controller.notify.notices import notices_of, words_of
from controller.notify.outbox import MOST_NOTICES, Outbox, row_of
from controller.notify.rules import NotifyRules, Route, Wish
from controller.notify.sinks.delivery_error import DeliveryFailed
from controller.notify.weekly_efficiency import WEEK_S, WORD, WeeklyEfficiency, WeekOf
from controller.store.errors import StoreFailure
from wire.codec import Malformed, decode, dumps, encode
from wire.notify import NotifySettings

SETTINGS_NOTE = "notify-user"
"""The `kind` column of the database rows with the users' settings for notifications."""
WRITE_EVERY_S = 0.5
"""The results of deliveries are collected for this many seconds, and then written in one transaction."""
HOUR_S = 3_600

log = logging.getLogger("corral.notify")

Write = Callable[[Sequence[NoteRow]], Awaitable[None]]
"""A function that writes database rows in a transaction, and returns when the rows are on disk."""


class Notifier:
    """The notifications of one controller.

    1. `prepare` is called with the events of each commit. It makes the messages and returns their database
       rows, which become part of the same commit.
    2. `committed` is called after the commit. It puts the messages into the outbox, from which they are sent.
    3. The results of deliveries are written every WRITE_EVERY_S seconds, outside of the commits of events.

    Invariant: no message is sent before its events are on disk. A message whose events are on disk is sent at
    least once, or becomes a dead letter. Cost: one dictionary lookup for an event that no rule or setting
    names; nothing if there are no rules and settings.
    """

    def __init__(
        self,
        config: Config,
        store_id: str,
        now: Callable[[], float],
        write: Write,
        state: Callable[[], State],
        week_of: WeekOf,
    ) -> None:
        self.outbox = Outbox()
        self.settings: dict[str, NotifySettings] = {}
        self.rules = NotifyRules(config)
        self.dropped = 0
        """The number of notices that were dropped because the outbox (the messages that wait for delivery)
        was full.
        """
        self._config = config
        self._prefix = store_id[:8]
        self._now = now
        self._write = write
        self._state = state
        self._conditions = Conditions()
        self._limit_mails = LimitMails()
        self._weekly = WeeklyEfficiency(week_of)
        self._prepared: list[Message] = []
        self._wanted: frozenset[str] = frozenset()
        self._sent: dict[tuple[str, str], int] = {}
        """The number of messages in the present hour, by sink and recipient."""
        self._sent_hour = 0
        self._writing = asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None
        self.delivery = Delivery(self.outbox, now, self.flush)
        self._find_wanted()

    # --- called by the main loop ---

    def load(self, notes: Iterable[NoteRow]) -> None:
        """Load messages, users' settings and the records of sent notices from the database. Called at the
        start, and after the engine was loaded again.
        """
        notes = list(notes)
        self._prepared = []
        self.outbox.load(notes)
        self._conditions.load(notes)
        self._limit_mails.load(notes)
        self._weekly.load(notes)
        for note in notes:
            if note.kind == SETTINGS_NOTE and note.body is not None:
                with suppress(Malformed, ValueError):
                    self.settings[note.name] = decode(NotifySettings, json.loads(note.body))
        self._find_wanted()

    def pass_took(self, seconds: float, now: float) -> None:
        """Record how long a scheduling cycle took, for notices about slow cycles."""
        self._conditions.pass_took(seconds, self._config.notify.slow_cycle_s, now)

    def prepare(
        self, state: State, last_seq: int, events: Sequence[Event], failures: Sequence[FailureRule] = ()
    ) -> list[NoteRow]:
        """Make the messages about the events of a commit, and return the database rows to write in the same
        commit. `last_seq` is the number of the last journal entry before these events, and `failures` are the
        rules of the site's failure classes.
        """
        self._prepared = []
        if not self._wanted and not self.rules.mail_sink:
            return []
        now = events[-1].at
        routed: dict[Route, list[Notice]] = {}
        last: dict[Route, int] = {}
        for place, notice, mail in self._notices(state, events, failures):
            for route in self.rules.routes(notice, self.settings, mail, now):
                # One event may cause two notices, such as mine.failed and mine.ended. Send only the first of
                # them to a recipient.
                if place < 0 or last.get(route) != place:
                    last[route] = place
                    routed.setdefault(route, []).append(notice)
        prefix = f"{self._prefix}-{last_seq + 1}"
        self._prepared = self._messages(routed, prefix, now)
        ended = self._limit_mails.observe(events, state) if self.rules.mail_sink else []
        return [*map(row_of, self._prepared), *self._conditions.take_changed(), *ended]

    def committed(self) -> None:
        """Put the messages of the last prepare() into the outbox, because their commit is on disk."""
        if self._prepared:
            self.outbox.add(self._prepared)
            self._prepared = []
            self.delivery.wake()

    def open(self) -> None:
        """Start delivering messages."""
        self._writer = asyncio.create_task(self._write_outcomes())
        self.delivery.adopt(self._config)

    def reconfigure(self, config: Config) -> None:
        """Use the sinks and rules of another configuration."""
        self._config = config
        self.rules = NotifyRules(config)
        self._find_wanted()
        self._limit_mails.look_again()
        self.delivery.adopt(config)

    async def close(self) -> None:
        """Stop delivering messages, and write the outcomes of finished deliveries."""
        self.delivery.close()
        if self._writer is not None:
            self._writer.cancel()
        with suppress(StoreFailure):
            await self.flush()

    # --- notices that are caused by the time and not by an event ---

    async def send_due(self) -> None:
        """Make the messages that are due at a time: mails about used percentages of time limits, and the
        weekly notices. Write them in one transaction with the rows that record them as sent. Raise
        StoreFailure if the store cannot be written.
        """
        now = self._now()
        if self.rules.mail_sink:
            await self._send_limit_mails(now)
        if WORD in self._wanted:
            monday = self.rules.next_digest("weekly", now) - WEEK_S
            if self._weekly.is_due(monday):
                notices = await self._weekly.notices(monday, now)
                wanted = [(each, ()) for each in notices]
                await self._send_timed(wanted, [self._weekly.row_of(monday)], now)
                self._weekly.sent(monday)

    async def _send_limit_mails(self, now: float) -> None:
        found: list[tuple[Notice, tuple[Wish, ...]]] = []
        rows: list[NoteRow] = []
        jobs: list[Job] = []
        for job, percent in self._limit_mails.due(self._state(), now):
            jobs.append(job)
            rows.append(self._limit_mails.told(job, percent))
            wish = self.rules.mail_wish(job.spec.mail_user, job.user)
            if wish is not None:
                found.append((limit_notice(job, percent, now), (wish,)))
        if rows:
            try:
                await self._send_timed(found, rows, now)
            except BaseException:
                for job in jobs:
                    self._limit_mails.not_told(job)
                raise

    async def _send_timed(
        self, notices: Iterable[tuple[Notice, tuple[Wish, ...]]], rows: Iterable[NoteRow], now: float
    ) -> None:
        """Write the messages with these notices and the given rows to the database in one transaction, then
        send the messages.
        """
        routed: dict[Route, list[Notice]] = {}
        for notice, wishes in notices:
            for route in self.rules.routes(notice, self.settings, wishes, now):
                routed.setdefault(route, []).append(notice)
        messages = self._messages(routed, f"{self._prefix}-{uuid4().hex[:12]}", now)
        await self._write([*map(row_of, messages), *rows])
        self.outbox.add(messages)
        self.delivery.wake()

    # --- called by the API ---

    async def set_settings(self, user: str, settings: NotifySettings) -> None:
        """Store the settings of a user, or delete the stored settings if these settings are the defaults.
        Raise StoreFailure if the store cannot be written.
        """
        body = dumps(encode(settings)) if settings != NotifySettings() else None
        await self._write([NoteRow(SETTINGS_NOTE, user, body)])
        if body is None:
            self.settings.pop(user, None)
        else:
            self.settings[user] = settings
        self._find_wanted()

    async def test(self, sink: str, to: str, user: str) -> tuple[str, str]:
        """Send a test message to a sink now, without the outbox. Return (id of the message, reason of the
        failed delivery). The reason is "" after a delivery.
        """
        notify, now = self._config.notify, self._now()
        notice = Notice(
            "test",
            now,
            "test of notifications",
            f"This is a test message to sink {sink}, which {user} ordered.",
            "See sinks and rules: corral notify list",
            user=user,
        )
        message = Message(f"{self._prefix}-test-{uuid4().hex[:12]}", sink, (notice,), now, now, to, user)
        try:
            await deliver(notify.sinks[sink], message, self._config.cluster.name, notify.link)
        except DeliveryFailed as failed:
            return message.id, failed.message
        return message.id, ""

    def retry(self, ids: Iterable[str]) -> list[Message]:
        """Try these messages again now, if they are dead letters (messages that are no longer tried) or wait
        after a failure. Return the messages that are tried.
        """
        found = self.outbox.retry(ids, self._now())
        self.delivery.end_pauses()
        return found

    async def flush(self) -> None:
        """Write the rows of changed messages to the database. Raise StoreFailure if the store cannot be
        written."""
        async with self._writing:
            rows = self.outbox.take_changed()
            if rows:
                try:
                    await self._write(rows)
                except BaseException:
                    self.outbox.put_back(rows)
                    raise

    # --- notices and messages ---

    def _find_wanted(self) -> None:
        chosen = {word for each in self.settings.values() for word in each.when}
        self._wanted = self.rules.words | chosen

    def _notices(
        self, state: State, events: Sequence[Event], failures: Sequence[FailureRule]
    ) -> Iterator[tuple[int, Notice, tuple[Wish, ...]]]:
        """Yield (index of the event in the commit, notice, mail requests of its job) for each notice that a
        rule, a user's settings or a job request. The index is -1 for a notice that is not about one event.
        """
        wanted, mails = self._wanted, bool(self.rules.mail_sink)
        for place, event in enumerate(events):
            if isinstance(event, GpuHealthRecorded) and not self._conditions.is_news(event):
                continue
            words = words_of(event)
            mail_words = mail_words_of(event, state) if mails and words else NO_MAIL
            if wanted.isdisjoint(words) and not mail_words:
                continue
            for notice in notices_of(event, state, failures):
                if notice.word in mail_words and isinstance(event, JobEvent):
                    job = state.jobs[event.job]
                    wish = self.rules.mail_wish(job.spec.mail_user, job.user)
                    yield place, notice, () if wish is None else (wish,)
                elif notice.word in wanted:
                    yield place, notice, ()
        if not wanted.isdisjoint(QUOTA_WORDS):
            yield from (
                (-1, each, ()) for each in self._conditions.quotas(state, events) if each.word in wanted
            )
        yield from ((-1, each, ()) for each in self._conditions.take_slow() if each.word in wanted)

    def _messages(self, routed: dict[Route, list[Notice]], prefix: str, now: float) -> list[Message]:
        """Return one message for each route (sink and recipient) of the notices. After the greatest number of
        messages in an hour, a recipient gets the later notices of this hour in one message at its end.
        """
        found: list[Message] = []
        room = self._config.notify.max_waiting - len(self.outbox.waiting)
        for route, notices in routed.items():
            if len(found) >= room:
                self._drop(len(notices))
                continue
            due, bundle = route.due, route.bundle
            if not bundle and self._is_over(route, now):
                due = float((int(now) // HOUR_S + 1) * HOUR_S)
                bundle = f"{route.sink}|{route.to}|hour|{due:.0f}"
            name = f"{prefix}-{len(found) + 1}"
            more = max(0, len(notices) - MOST_NOTICES)
            shown = tuple(notices[:MOST_NOTICES])
            found.append(Message(name, route.sink, shown, now, due, route.to, route.user, bundle, more))
        return found

    def _is_over(self, route: Route, now: float) -> bool:
        """Count a message to the recipient of this route. Return whether the recipient has now got more
        messages in this hour than allowed.
        """
        hour = int(now) // HOUR_S
        if hour != self._sent_hour:
            self._sent_hour = hour
            self._sent.clear()
        key = route.sink, route.to
        self._sent[key] = self._sent.get(key, 0) + 1
        return self._sent[key] > self._config.notify.sinks[route.sink].max_per_hour

    def _drop(self, notices: int) -> None:
        if not self.dropped:
            log.error(
                "the outbox has %d messages, as many as [notify] max_waiting allows; new notices are dropped",
                len(self.outbox.waiting),
            )
        self.dropped += notices

    async def _write_outcomes(self) -> None:
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            try:
                await self.send_due()
                if self.outbox.changed:
                    await self.flush()
            except StoreFailure:
                continue
            except Exception:
                log.exception("notifications could not be written")
