"""Finds mistakes and rules without effect in [notify]."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from controller.config import Config, ConfigProblem, Key, nearest, problem_at
from controller.config.tables.notify import ADDRESS, TOPIC, NotifyRuleSection, SinkSection
from controller.core.input_handlers.submission_checks import DEFAULT_QUEUE
from controller.core.pipeline.pipeline import Pipeline
from wire.notify import CLUSTER_WORDS, JOB_WORDS
from wire.text import printable

OWNER = "owner"


def notify_problems(config: Config) -> Iterator[ConfigProblem]:
    """Yield the mistakes in [notify]: rules for a sink (mail server, webhook or chat) that does not exist,
    recipients that the sink of a rule cannot reach, rules about the cluster without a recipient, and a `link`
    that is not a URL.
    """
    source, notify = config.source, config.notify
    for name, rule in notify.rules.items():
        key: Key = ("notify", "rules", name)
        sink = notify.sinks.get(rule.sink)
        if sink is None:
            hint = nearest(rule.sink, notify.sinks) or f"Add the table [notify.sinks.{printable(rule.sink)}]."
            yield problem_at(source, (*key, "sink"), f"there is no sink {printable(rule.sink)!r}", hint)
            continue
        for index, to in enumerate(rule.to):
            found = _recipient_problem(sink, to)
            if found:
                yield problem_at(source, (*key, "to", index), *found)
        cluster = [word for word in rule.when if word in CLUSTER_WORDS]
        reaches = rule.to or sink.kind not in ("smtp", "ntfy") or (sink.kind == "ntfy" and sink.topic)
        if cluster and not reaches:
            what = "mail addresses" if sink.kind == "smtp" else "topics"
            message = f"a notice {cluster[0]!r} is not about a job, so it has no owner, and `to` is not set"
            yield problem_at(source, key, message, f"Set `to` to {what}.")
    if notify.link and not notify.link.startswith(("http://", "https://")):
        message = "must be a URL with {job} in place of the job, or empty"
        yield problem_at(source, ("notify", "link"), message, 'Such as "https://head/jobs/{job}".')


def notify_warnings(config: Config, _pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each probable mistake in [notify]: sinks that no rule uses, webhooks without a
    signature, files of a sink that this process cannot read, rules for queues that do not exist, mail to
    users without an address, and quiet hours of a digest.
    """
    source, notify = config.source, config.notify
    used = {rule.sink for rule in notify.rules.values()}
    for name, sink in notify.sinks.items():
        key: Key = ("notify", "sinks", name)
        personal = notify.personal and sink.kind in ("smtp", "ntfy")
        if name not in used and not personal:
            yield problem_at(source, key, "no rule sends to this sink", f'Add a rule with sink = "{name}".')
        if sink.kind == "webhook" and sink.secret_file is None and sink.secret_env is None:
            message = "messages are not signed, so the receiver cannot tell who sent them"
            yield problem_at(source, key, message, "Set secret_file or secret_env.")
        yield from _secret_warnings(config, name, sink)
    for name, rule in notify.rules.items():
        yield from _rule_warnings(config, name, rule)


def _recipient_problem(sink: SinkSection, to: str) -> tuple[str, str] | None:
    """Return an error message and a hint if a rule cannot send to the recipient `to` through the sink; None
    if it can.
    """
    if to == OWNER:
        return None
    if sink.kind == "smtp" and ADDRESS.fullmatch(to) is None:
        return f"{printable(to)!r} is not a mail address", 'Write an address, or "owner" for the job\'s user.'
    if sink.kind == "smtp" and sink.allowed_domains:
        domain = to.rpartition("@")[2].lower()
        if domain not in {each.lower() for each in sink.allowed_domains}:
            return f"{printable(to)} is not in allowed_domains of the sink", f"Add {domain!r} there."
    if sink.kind == "ntfy" and TOPIC.fullmatch(to) is None:
        return f"{printable(to)!r} is not a topic", "A topic has up to 64 letters, digits, - and _."
    if sink.kind in ("webhook", "slack", "mattermost"):
        return f"a {sink.kind} sink has one place for all messages", "Leave `to` out."
    return None


def _secret_warnings(config: Config, name: str, sink: SinkSection) -> Iterator[ConfigProblem]:
    for field in ("url_file", "secret_file", "ca_file"):
        path = getattr(sink, field)
        if path is not None and not os.access(Path(path).expanduser(), os.R_OK):
            key: Key = ("notify", "sinks", name, field)
            yield problem_at(config.source, key, "this file cannot be read here", "Create it with mode 0600.")


def _rule_warnings(config: Config, name: str, rule: NotifyRuleSection) -> Iterator[ConfigProblem]:
    key: Key = ("notify", "rules", name)
    sink, known = config.notify.sinks.get(rule.sink), {*config.queues, DEFAULT_QUEUE}
    for index, queue in enumerate(rule.queues):
        if config.queues and queue not in known:
            message = f"there is no queue {printable(queue)!r}"
            yield problem_at(config.source, (*key, "queues", index), message, nearest(queue, known))
    to_owner = OWNER in rule.to or (not rule.to and any(word in JOB_WORDS for word in rule.when))
    if sink is not None and sink.kind == "smtp" and to_owner and sink.domain is None:
        message = "users without an address get no mail, because the sink has no `domain`"
        hint = "Set `domain` of the sink, so that a user gets mail at USER@domain."
        yield problem_at(config.source, key, message, hint)
    if rule.every and rule.quiet:
        yield problem_at(config.source, (*key, "quiet"), "has no effect on a digest", "Leave quiet out.")
