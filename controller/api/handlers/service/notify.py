"""Routes of notifications: sinks and rules, the settings of the caller, the outbox, tests and retries."""

from __future__ import annotations

import time

from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.config.tables.notify import TOPIC, SinkSection
from controller.notify.messages import Message
from controller.notify.rules import allowed_address, settings_problem
from controller.notify.sinks.delivery_error import DeliveryFailed, url_of
from controller.notify.sinks.http import host_of
from wire.notify import (
    MessageView,
    NotifySettings,
    NotifySettingsView,
    NotifyView,
    OutboxView,
    RetryAnswer,
    RetryRequest,
    RuleView,
    SinkTest,
    SinkTestAnswer,
    SinkView,
)

SHOWN = 1_000
"""The most messages in one answer."""


async def show(call: Call) -> NotifyView:
    """List the sinks (mail servers, webhooks, chats) with their numbers of messages, and the rules."""
    notify, notifier = call.daemon.config.notify, call.daemon.notifier
    delivery = notifier.delivery
    sinks = []
    for name, each in notify.sinks.items():
        waiting, dead = notifier.outbox.count(name)
        done, failed = delivery.delivered[name], delivery.failed[name]
        problem = delivery.problems.get(name, "") if call.caller.operates else ""
        sinks.append(SinkView(name, each.kind, _target(each), waiting, dead, done, failed, problem))
    rules = (
        RuleView(
            name,
            tuple(each.when),
            each.sink,
            tuple(each.to),
            tuple(each.users),
            tuple(each.projects),
            tuple(each.queues),
            each.every,
            tuple(each.quiet),
            each.urgent,
        )
        for name, each in notify.rules.items()
    )
    return NotifyView(tuple(sinks), tuple(rules))


async def settings(call: Call) -> NotifySettingsView:
    """Show which notices the caller gets, and at which addresses."""
    notifier, user = call.daemon.notifier, call.caller.user
    found = notifier.settings.get(user, NotifySettings())
    return NotifySettingsView(user, found, tuple(sink for sink, _ in notifier.rules.personal_sinks(found)))


async def change_settings(call: Call, request: NotifySettings) -> NotifySettingsView:
    """Set which notices the caller gets, and at which addresses. Empty settings are deleted."""
    problem = settings_problem(request)
    if problem is not None:
        field, message = problem
        raise rejected("invalid", message, field)
    notify, notifier = call.daemon.config.notify, call.daemon.notifier
    if not notify.personal:
        hint = "An operator can add rules for you in scheduler.toml."
        raise rejected("not_allowed", "[notify] personal is false: users have no settings here", hint=hint)
    for field, kind, to in (("mail", "smtp", request.mail), ("ntfy", "ntfy", request.ntfy)):
        sink = next((each for each in notify.sinks.values() if each.kind == kind), None)
        if to and sink is None:
            message = f"this cluster has no sink of kind {kind}"
            raise rejected("invalid", message, field, "An operator can add one: [notify.sinks.NAME].")
        if to and sink is not None and kind == "smtp" and not allowed_address(sink, to):
            allowed = ", ".join(sink.allowed_domains)
            raise rejected("invalid", f"mail is sent only to addresses at {allowed}", field)
    if request.when and not (request.mail or request.ntfy):
        raise rejected(
            "invalid", "there is no address for these notices", "mail", "Set a mail address: --mail."
        )
    await notifier.set_settings(call.caller.user, request)
    return await settings(call)


async def outbox(call: Call) -> OutboxView:
    """List messages that wait or were given up. Callers without the operator role see only their own."""
    found = call.daemon.notifier.outbox
    messages = [
        each
        for each in (*found.waiting.values(), *found.dead.values())
        if call.caller.operates or each.user == call.caller.user
    ]
    messages.sort(key=lambda each: (each.made_at, each.id))
    dead = sum(each.dead for each in messages)
    shown = tuple(map(_view, messages[:SHOWN]))
    return OutboxView(shown, len(messages) - dead, dead, call.daemon.now())


async def retry(call: Call, request: RetryRequest) -> RetryAnswer:
    """Try again now to deliver messages that wait after a failure or were given up."""
    found = call.daemon.notifier.outbox
    ids = (*found.dead, *found.waiting) if request.all else request.ids
    missing = [each for each in ids if each not in found.dead and each not in found.waiting]
    if missing:
        raise rejected(
            "not_found",
            f"there is no message {missing[0]!r} in the outbox",
            "ids",
            "See them: corral notify outbox",
        )
    return RetryAnswer(tuple(each.id for each in call.daemon.notifier.retry(ids)))


async def test(call: Call, request: SinkTest) -> SinkTestAnswer:
    """Send a test message to a sink now, and report whether the sink accepted the message."""
    notifier, sinks = call.daemon.notifier, call.daemon.config.notify.sinks
    sink = sinks.get(request.sink)
    if sink is None:
        hint = f"The sinks are {', '.join(sinks)}." if sinks else "Add one: [notify.sinks.NAME]."
        raise rejected("not_found", f"there is no sink {request.sink!r}", "sink", hint)
    to = request.to or notifier.rules.address(call.caller.user, request.sink, notifier.settings)
    if sink.kind == "smtp" and not allowed_address(sink, to):
        message = "there is no valid mail address for this test"
        raise rejected("invalid", message, "to", "Name an address that the sink allows: --to ADDRESS.")
    if sink.kind == "ntfy" and TOPIC.fullmatch(to) is None:
        raise rejected("invalid", "there is no topic for this test", "to", "Name a topic: --to TOPIC.")
    began = time.monotonic()
    name, error = await notifier.test(request.sink, to, call.caller.user)
    return SinkTestAnswer(request.sink, to, name, time.monotonic() - began, error)


def _view(message: Message) -> MessageView:
    return MessageView(
        message.id,
        message.sink,
        message.to,
        message.user,
        message.words,
        message.subject,
        message.made_at,
        message.due,
        message.tries,
        message.dead,
        message.error,
    )


def _target(sink: SinkSection) -> str:
    """Return the host of a sink. Leave out the path of its URL, because the path may be a secret."""
    if sink.kind == "smtp":
        return f"{sink.host}"
    try:
        return host_of(url_of(sink))
    except DeliveryFailed:
        return "?"
