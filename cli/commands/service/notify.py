"""corral notify: shows sinks, rules and messages of notifications, and sets which notices a user gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from cli.exit_codes import FAILED, CommandError
from cli.flags import argument, option, switch
from cli.output.formats import Column, Format, Output, Table, write_data, write_facts
from cli.output.listing import list_command
from cli.output.stderr import print_error, print_note
from cli.output.table_columns import RED, YELLOW, clock
from cli.registry import application, examples
from wire.http.client import Client
from wire.notify import (
    DIGESTS,
    JOB_WORDS,
    WORDS,
    MessageView,
    NotifySettings,
    NotifySettingsView,
    RetryRequest,
    RuleView,
    SinkTest,
    SinkView,
)
from wire.text import counted, duration, printable

KINDS = {
    "started": "mine.started",
    "ended": "mine.ended",
    "failed": "mine.failed",
    "idle": "idle",
    "warned": "mine.warned",
    "efficiency": "efficiency",
}
"""A dict from the name of a flag, such as --started, to the kind of notices that the flag chooses."""

app = application(
    "Show notifications, try sinks, and choose which notices about your jobs are sent to you.",
    invoke_without_command=True,
)


@app.callback(
    epilog=examples(
        "corral notify",
        "corral notify me --failed --mail ada@example.org",
        "corral notify test ops",
        "corral notify outbox",
    )
)
@list_command
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show notifications, try sinks, and choose which notices about your jobs are sent to you. Without a
    command: list sinks and rules.
    """
    return listing(output=output) if context.invoked_subcommand is None else 0


@app.command(
    "list", epilog=examples("corral notify list", "corral notify list --kinds", "corral notify list -o json")
)
@list_command
def listing(
    kinds: Annotated[
        bool,
        switch(
            "--kinds",
            "List the kinds of notices (events about which messages are sent), instead of the sinks and "
            "rules.",
        ),
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """List the sinks, with their numbers of messages, and the rules."""
    if kinds:
        kind_table().show(output, [*WORDS.items()], dict(WORDS))
        return 0
    body = Client().notify()
    sink_table().show(output, body.sinks, body)
    if output in (Format.TABLE, Format.WIDE):
        if not body.sinks:
            print_note("This cluster has no sinks. Declare them in [notify.sinks.NAME] of scheduler.toml.")
        elif body.rules:
            print()
            rule_table().show(Format.TABLE, body.rules)
        else:
            print_note("There are no rules. Declare them in [notify.rules.NAME] of scheduler.toml.")
    return 0


@app.command(
    epilog=examples(
        "corral notify me",
        "corral notify me --failed --mail ada@example.org",
        "corral notify me --ended --every 1d --quiet 22:00-07:00",
        "corral notify me --when deadline.at-risk --when wait.long",
        "corral notify me --off",
    )
)
def me(
    started: Annotated[bool, switch("--started", "Send a notice when a job of yours starts.")] = False,
    ended: Annotated[bool, switch("--ended", "Send a notice when a job of yours has ended.")] = False,
    failed: Annotated[bool, switch("--failed", "Send a notice when a job of yours has failed.")] = False,
    idle: Annotated[
        bool, switch("--idle", "Send a notice when all GPUs of a job of yours are idle.")
    ] = False,
    warned: Annotated[
        bool, switch("--warned", "Send a notice before a job of yours reaches its time limit.")
    ] = False,
    efficiency: Annotated[
        bool,
        switch("--efficiency", "Send a notice every Monday: what your jobs requested and what they used."),
    ] = False,
    when: Annotated[
        list[str] | None,
        option(
            "--when",
            "KIND",
            "Send notices of this kind. 'corral notify list --kinds' lists the kinds. May be repeated.",
        ),
    ] = None,
    mail: Annotated[
        str | None,
        option("--mail", "ADDRESS", "Send the notices to this mail address. '' removes the address."),
    ] = None,
    ntfy: Annotated[
        str | None,
        option(
            "--ntfy", "TOPIC", "Send the notices to this topic of the service ntfy. '' removes the topic."
        ),
    ] = None,
    every: Annotated[
        str | None,
        option(
            "--every",
            "TIME",
            "Send one message with all collected notices every TIME: 1h, 1d or weekly. '' sends each "
            "notice at once. Default: at once.",
        ),
    ] = None,
    quiet: Annotated[
        list[str] | None,
        option(
            "--quiet",
            "HOURS",
            "Delay messages until the end of these HOURS (e.g. 22:00-07:00 or sat-sun). May be repeated. "
            "'' removes all HOURS.",
        ),
    ] = None,
    off: Annotated[
        bool, switch("--off", "Stop all notices to you, and delete your settings of notices.")
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Choose the notices about your jobs that are sent to you, and the addresses for these notices. Without
    options: show your choice.

    The kinds of notices that you name replace the kinds of your earlier choice. Settings that you do not name
    do not change.
    """
    flags = {
        "started": started,
        "ended": ended,
        "failed": failed,
        "idle": idle,
        "warned": warned,
        "efficiency": efficiency,
    }
    words = [word for name, word in KINDS.items() if flags[name]] + list(when or [])
    for word in words:
        if word not in JOB_WORDS:
            raise CommandError(
                f"--when: {printable(word)!r} is no kind of notice about a job",
                f"The kinds are {', '.join(JOB_WORDS)}.",
            )
    if every and every not in DIGESTS:
        raise CommandError(f"--every: {printable(every)!r} is not 1h, 1d or weekly")
    client = Client()
    changes = {"mail": mail, "ntfy": ntfy, "every": every}
    given = {name: value for name, value in changes.items() if value is not None}
    if off:
        if words or given or quiet is not None:
            raise CommandError("--off deletes your settings, so it has no other options")
        return _show(client.set_notify_settings(NotifySettings()), output)
    view = client.notify_settings()
    if words or given or quiet is not None:
        new = replace(
            view.settings,
            when=tuple(dict.fromkeys(words)) or view.settings.when,
            quiet=view.settings.quiet if quiet is None else tuple(filter(None, quiet)),
            **given,
        )
        view = client.set_notify_settings(new)
    return _show(view, output)


@app.command(
    "test", epilog=examples("corral notify test ops", "corral notify test mail --to ada@example.org")
)
def send_test(
    sink: Annotated[str, argument("SINK", "Name of the sink in scheduler.toml.")],
    to: Annotated[
        str,
        option(
            "--to",
            "RECIPIENT",
            "Mail address or ntfy topic that gets the message. Default: your own address, or the address in"
            " the settings of the sink.",
        ),
    ] = "",
    output: Output = Format.TABLE,
) -> int:
    """Send a test message to a sink now, and show whether the sink accepted the message. Operators only."""
    answer = Client().test_sink(SinkTest(sink, to))
    if output.is_data:
        write_data(output, answer)
    elif not answer.error:
        place = f" for {printable(answer.to)}" if answer.to else ""
        print_note(f"sink {printable(sink)} accepted message {answer.id}{place} after {answer.seconds:.1f} s")
    if answer.error:
        hint = f"Correct [notify.sinks.{printable(sink)}] of scheduler.toml, then: corral config apply"
        return print_error(f"sink {printable(sink)}: {answer.error}", hint, FAILED)
    return 0


@app.command(epilog=examples("corral notify outbox", "corral notify outbox --dead -o json"))
@list_command
def outbox(
    dead: Annotated[
        bool,
        switch("--dead", "List only dead letters: messages that the controller no longer tries to deliver."),
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """List the notifications that are not delivered: those that wait for delivery, those whose delivery
    failed and is tried again, and those whose delivery was given up. Users that are not operators see only
    their own.
    """
    body = Client().outbox()
    shown = [each for each in body.messages if each.dead or not dead]
    message_table(body.at).show(output, shown, replace(body, messages=tuple(shown)))
    if output in (Format.TABLE, Format.WIDE):
        print_note(f"{counted(body.waiting, 'message')} waiting, {body.dead} given up")
    return 0


@app.command(epilog=examples("corral notify retry 3f2a9c01-512-1", "corral notify retry --all"))
def retry(
    ids: Annotated[
        list[str] | None, argument("[ID]...", "Ids of messages, from 'corral notify outbox'.")
    ] = None,
    every: Annotated[
        bool,
        switch(
            "--all", "Deliver all dead letters again, and all messages that wait after a failed delivery."
        ),
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Deliver dead letters (messages that were given up) again now, and messages that wait after a failed
    delivery. Operators only.
    """
    if bool(ids) is every:
        raise CommandError("name either messages or --all", "Such as: corral notify retry --all")
    answer = Client().retry_messages(RetryRequest(tuple(ids or ()), every))
    if output.is_data:
        write_data(output, answer)
    else:
        print_note(f"{counted(len(answer.ids), 'message')} will be tried again")
    return 0


def _show(view: NotifySettingsView, output: Format) -> int:
    if output.is_data:
        write_data(output, view)
        return 0
    own = view.settings
    if output != Format.TABLE:
        print("\n".join(own.when))
        return 0
    if not own.when:
        print_note("You get no notices. Choose some, such as: corral notify me --failed --mail ADDRESS")
        return 0
    write_facts(
        [
            ("user", view.user),
            ("notices", ", ".join(own.when)),
            ("mail", own.mail),
            ("ntfy", own.ntfy),
            ("every", own.every),
            ("quiet", ", ".join(own.quiet)),
            ("sinks", ", ".join(view.sinks)),
        ]
    )
    if not view.sinks:
        print_note("No sink of this cluster can reach you now: ask an operator for a mail sink.")
    return 0


def sink_table() -> Table[SinkView]:
    """Return the table of sinks."""
    return Table(
        [
            Column("SINK", lambda each: each.name),
            Column("KIND", lambda each: each.kind),
            Column("HOST", lambda each: each.target, rank=2),
            Column("WAITING", lambda each: str(each.waiting), right=True),
            Column(
                "GIVEN-UP", lambda each: str(each.dead), right=True, colour=lambda each: RED * (each.dead > 0)
            ),
            Column("DELIVERED", lambda each: str(each.delivered), right=True, rank=1),
            Column("FAILED", lambda each: str(each.failed), right=True, rank=1),
            Column("PROBLEM", lambda each: each.problem, rank=3, narrow=12, colour=lambda _each: YELLOW),
        ],
        name=lambda each: each.name,
        kind=SinkView,
    )


def rule_table() -> Table[RuleView]:
    """Return the table of rules."""
    return Table(
        [
            Column("RULE", lambda each: each.name),
            Column("WHEN", lambda each: ", ".join(each.when), narrow=16),
            Column("SINK", lambda each: each.sink),
            Column("TO", lambda each: ", ".join(each.to), rank=1, narrow=8),
            Column("ONLY", _only, rank=2, narrow=8),
            Column("EVERY", lambda each: each.every, rank=3),
            Column("QUIET", lambda each: ", ".join(each.quiet), rank=4),
        ],
        name=lambda each: each.name,
        kind=RuleView,
    )


def _only(rule: RuleView) -> str:
    parts = (("users", rule.users), ("projects", rule.projects), ("queues", rule.queues))
    return "; ".join(f"{name} {', '.join(values)}" for name, values in parts if values)


def message_table(now: float) -> Table[MessageView]:
    """Return the table of messages in the outbox."""
    return Table(
        [
            Column("ID", lambda each: each.id),
            Column("SINK", lambda each: each.sink),
            Column("TO", lambda each: each.to, rank=2, narrow=8),
            Column("MADE", lambda each: clock(each.made_at, now), rank=3),
            Column("NEXT", lambda each: _next(each, now)),
            Column("TRIES", lambda each: str(each.tries), right=True, rank=4),
            Column("SUBJECT", lambda each: each.subject, rank=1, narrow=16),
            Column("ERROR", lambda each: each.error, rank=5, narrow=16, colour=lambda _each: YELLOW),
        ],
        name=lambda each: each.id,
        kind=MessageView,
    )


def _next(message: MessageView, now: float) -> str:
    if message.dead:
        return "given up"
    return "now" if message.due <= now else f"in {duration(message.due - now)}"


def kind_table() -> Table[tuple[str, str]]:
    """Return the table of the kinds of notices."""
    return Table(
        [
            Column("KIND", lambda each: each[0]),
            Column("ABOUT", lambda each: "your job" if each[0] in JOB_WORDS else "the cluster"),
            Column("SENT WHEN", lambda each: each[1], narrow=20),
        ],
        name=lambda each: each[0],
    )
