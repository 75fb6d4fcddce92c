"""Decides which sinks and recipients get a notice, and when: at once, in a digest (one message with many
notices), or after quiet hours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from controller.config import Config
from controller.config.tables.notify import ADDRESS, TOPIC, NotifyRuleSection, SinkSection
from controller.core.quota.hours.week_hours import WeekHours, windows_of
from controller.notify.messages import Notice
from wire.notify import JOB_WORDS, NotifySettings

OWNER = "owner"
"""This word among the recipients of a rule stands for the user of the job that the notice is about."""


@dataclass(frozen=True, slots=True)
class Route:
    """One delivery of a notice: the sink, the recipient, and the time at which its message is sent."""

    sink: str
    to: str
    user: str
    due: float
    bundle: str = ""
    """The name of the bundle of the message. All due messages of one bundle are joined. Empty: the message is
    sent alone.
    """


@dataclass(frozen=True, slots=True)
class Wish:
    """A delivery that a rule, a user or a job requests for a notice: the sink, the recipient, the digest and
    the quiet hours.
    """

    sink: str
    to: str
    user: str
    every: str
    quiet: tuple[str, ...]
    urgent: bool = False


class NotifyRules:
    """Finds the routes (sink, recipient, time) of notices from the rules of [notify] and the users' settings.

    Algorithm of `routes`, for one notice
    1. Take the rules that name the kind of the notice and whose users, projects and queues match. The
       recipient `owner` is the user of the job, at the address that the user has set, or at USER@domain of
       the sink.
    2. Take the settings of the job's user if they name the kind of the notice. Then take the mail requests of
       the job (--mail-user).
    3. If two routes have the same sink and recipient, keep only the first.
    4. If the rule or the settings have the key `every`, send the message with the next digest. If not, and it
       is a quiet hour, send the message at the end of the quiet hours, unless the rule is urgent. In all
       other cases, send the message at once.

    Cost: one dictionary lookup for a notice whose kind no rule names.
    """

    def __init__(self, config: Config) -> None:
        notify = config.notify
        self.sinks: Mapping[str, SinkSection] = notify.sinks
        self._rules = notify.rules
        self._personal = notify.personal
        self._quiet = tuple(notify.quiet)
        self._zone_name = config.scheduler.time_zone
        self._digest_at = notify.digest_at
        self._of_word: dict[str, list[NotifyRuleSection]] = {}
        for rule in notify.rules.values():
            for word in rule.when:
                self._of_word.setdefault(word, []).append(rule)
        self._mail = next((name for name, each in self.sinks.items() if each.kind == "smtp"), "")
        self._ntfy = next((name for name, each in self.sinks.items() if each.kind == "ntfy"), "")

    @property
    def words(self) -> frozenset[str]:
        """Return the kinds of notices (such as mine.failed) that at least one rule names."""
        return frozenset(self._of_word)

    @property
    def mail_sink(self) -> str:
        """Return the name of the sink that sends mail to users: the first sink of kind smtp; empty if there
        is none."""
        return self._mail

    def personal_sinks(self, settings: NotifySettings) -> tuple[tuple[str, str], ...]:
        """Return (sink, recipient) for each address to which a user's own notices are sent."""
        if not self._personal:
            return ()
        wanted = ((self._mail, settings.mail), (self._ntfy, settings.ntfy))
        return tuple((sink, to) for sink, to in wanted if sink and to)

    def wants(self, word: str, settings: Mapping[str, NotifySettings]) -> bool:
        """Return whether a rule or a user's settings may request notices of the kind `word`."""
        return word in self._of_word or (word in JOB_WORDS and bool(settings))

    def routes(
        self, notice: Notice, settings: Mapping[str, NotifySettings], more: Iterable[Wish], now: float
    ) -> Iterator[Route]:
        """Yield the routes of a notice. `settings` are the settings of all users. `more` are the mail
        requests of the notice's job (--mail-user).
        """
        seen: set[tuple[str, str]] = set()
        for wish in (*self._by_rules(notice, settings), *self._by_settings(notice, settings), *more):
            if wish.sink in self.sinks and (wish.sink, wish.to) not in seen:
                seen.add((wish.sink, wish.to))
                yield self._route(wish, now)

    def address(self, user: str, sink: str, settings: Mapping[str, NotifySettings]) -> str:
        """Return the recipient of a user's messages in a sink: the address or topic that the user has set, or
        USER@domain for mail. Return "" if the sink has no address for this user.
        """
        section, own = self.sinks[sink], settings.get(user, NotifySettings())
        if section.kind == "smtp":
            found = own.mail or (f"{user}@{section.domain}" if section.domain else "")
            return found if allowed_address(section, found) else ""
        return own.ntfy or section.topic or "" if section.kind == "ntfy" else ""

    def mail_wish(self, mail_user: str, user: str) -> Wish | None:
        """Return the mail request of a job. The recipient is `mail_user` or, if it is empty, the job's user.
        A name without @ is completed by the domain of the mail sink. Return None if there is no mail sink or
        the address is not allowed.
        """
        if not self._mail:
            return None
        section, to = self.sinks[self._mail], mail_user or user
        if "@" not in to:
            to = f"{to}@{section.domain}" if section.domain else ""
        return Wish(self._mail, to, user, "", ()) if allowed_address(section, to) else None

    def _by_rules(self, notice: Notice, settings: Mapping[str, NotifySettings]) -> Iterator[Wish]:
        for rule in self._of_word.get(notice.word, ()):
            sink = self.sinks.get(rule.sink)
            if sink is None or not _matches(rule, notice):
                continue
            personal = sink.kind in ("smtp", "ntfy")
            for name in rule.to or ([OWNER] if notice.word in JOB_WORDS else [""]):
                to, user = name, ""
                if name == OWNER:
                    to, user = self.address(notice.user, rule.sink, settings), notice.user
                elif sink.kind == "ntfy":
                    to = name or sink.topic or ""
                if to or not personal:
                    yield Wish(rule.sink, to, user, rule.every, (*rule.quiet,), rule.urgent)

    def _by_settings(self, notice: Notice, settings: Mapping[str, NotifySettings]) -> Iterator[Wish]:
        own = settings.get(notice.user)
        if own is None or notice.word not in own.when or notice.word not in JOB_WORDS:
            return
        for sink, to in self.personal_sinks(own):
            if self.sinks[sink].kind != "smtp" or allowed_address(self.sinks[sink], to):
                yield Wish(sink, to, notice.user, own.every, own.quiet)

    def _route(self, wish: Wish, now: float) -> Route:
        place = f"{wish.sink}|{wish.to}"
        if wish.every:
            due = self.next_digest(wish.every, now)
            return Route(wish.sink, wish.to, wish.user, due, f"{place}|{wish.every}|{due:.0f}")
        quiet = () if wish.urgent else (*self._quiet, *wish.quiet)
        if quiet:
            hours = self._hours(quiet)
            if hours.is_open(now):
                due = hours.next_closing(now)
                return Route(wish.sink, wish.to, wish.user, due, f"{place}|quiet|{due:.0f}")
        return Route(wish.sink, wish.to, wish.user, now)

    def _hours(self, texts: tuple[str, ...]) -> WeekHours:
        windows = sorted(window for text in texts for window in windows_of(text))
        return WeekHours(texts, tuple(windows), ZoneInfo(self._zone_name), self._zone_name)

    def next_digest(self, every: str, now: float) -> float:
        """Return the time of the next digest: the next full hour ("1h"), the next `digest_at` ("1d"), or the
        next Monday at `digest_at` ("weekly"), in [scheduler] time_zone.
        """
        local = datetime.fromtimestamp(now, ZoneInfo(self._zone_name))
        if every == "1h":
            return float((int(now) // 3_600 + 1) * 3_600)
        hour, minute = map(int, self._digest_at.split(":"))
        at = local.replace(hour=hour, minute=minute, second=0, microsecond=0)
        if every == "weekly":
            at += timedelta(days=-local.weekday())
        step = timedelta(days=7 if every == "weekly" else 1)
        while at.timestamp() <= now:
            at += step
        return at.timestamp()


def _matches(rule: NotifyRuleSection, notice: Notice) -> bool:
    return (
        (not rule.users or notice.user in rule.users)
        and (not rule.projects or notice.project in rule.projects)
        and (not rule.queues or notice.queue in rule.queues)
    )


def allowed_address(sink: SinkSection, address: str) -> bool:
    """Return whether the sink may send mail to this address. The address must be well formed. If the sink has
    the key `allowed_domains`, the domain must be in it.
    """
    if ADDRESS.fullmatch(address) is None:
        return False
    domain = address.rpartition("@")[2].lower()
    return not sink.allowed_domains or domain in {each.lower() for each in sink.allowed_domains}


def settings_problem(settings: NotifySettings) -> tuple[str, str] | None:
    """Return (field, message) of the first mistake in the settings of a user; None if there is none."""
    for word in settings.when:
        if word not in JOB_WORDS:
            return "when", f"{word!r} is no kind of notice about a job; the kinds are {', '.join(JOB_WORDS)}"
    if settings.mail and ADDRESS.fullmatch(settings.mail) is None:
        return "mail", "this is not a mail address such as ada@example.org"
    if settings.ntfy and TOPIC.fullmatch(settings.ntfy) is None:
        return "ntfy", "a topic has up to 64 letters, digits, - and _"
    if settings.every not in ("", "1h", "1d", "weekly"):
        return "every", "must be 1h, 1d or weekly, or empty for a message at once"
    if len(settings.quiet) > 20:
        return "quiet", "at most 20 times are allowed"
    for text in settings.quiet:
        try:
            windows_of(text)
        except ValueError as error:
            return "quiet", str(error)
    return None
