"""corral config show and explain: show the configuration in effect, and explain its policy in sentences."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cli import completion
from cli.exit_codes import NOT_FOUND, CommandError
from cli.flags import argument, option, switch
from cli.output.formats import Column, Format, Output, Table, write, write_facts
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import FAINT, YELLOW, clock
from cli.registry import nearest
from wire.api.service.config import (
    DEFAULT_SOURCE,
    ConfigSetting,
    ConfigView,
    PolicyExplanation,
    PolicyText,
)
from wire.cluster.quota import SCOPES
from wire.http.client import Client, Refused
from wire.text import counted, printable

Key = Annotated[
    str,
    argument("[KEY]", "Show only this key, or the keys of this table (e.g. scheduler or queues.short)."),
]
Everything = Annotated[bool, switch("--all -a", "Also show keys that have their default values.")]
Scope = Annotated[
    str,
    argument(
        "[user|project|queue]",
        "Kind of NAME. Default: explain the cluster and all declared projects and queues.",
        autocompletion=completion.words(*SCOPES),
    ),
]
Name = Annotated[
    str,
    argument("[NAME]", "Name of the user, project or queue.", autocompletion=completion.tenants),
]
File = Annotated[
    Path | None,
    option("--file", "FILE", "Explain this configuration file. Default: the configuration in effect."),
]


@list_command
def show(key: Key = "", everything: Everything = False, output: Output = Format.TABLE) -> int:
    """Show the configuration in effect: its file, the time and the user of its last change, and for operators
    each key with its value and the place where it was set.

    The place is a line of the file, an environment variable, or default. Secrets are not shown.
    """
    client = Client()
    view = client.config()
    try:
        found = client.config_keys().settings
    except Refused as refused:
        if (
            refused.problem.code != "not_allowed"
            or key
            or output not in (Format.TABLE, Format.WIDE, Format.JSON)
        ):
            raise
        _print_view(view, output)
        return 0
    chosen = [each for each in found if not key or each.key == key or each.key.startswith(f"{key}.")]
    if not chosen:
        hint = nearest(key, [*{each.key for each in found}, *{each.key.partition(".")[0] for each in found}])
        raise CommandError(
            f"there is no key {key!r} with a value",
            hint.strip() or "'corral config show --all' lists all keys.",
            NOT_FOUND,
        )
    shown = [each for each in chosen if everything or output.is_data or key or each.source != DEFAULT_SOURCE]
    if output in (Format.TABLE, Format.WIDE) and not key:
        write_facts(_facts(view))
        write("\n")
    settings_table().show(output, shown, {**asdict(view), "settings": shown})
    if output in (Format.TABLE, Format.WIDE) and len(shown) < len(chosen):
        sys.stdout.flush()
        print_note(f"{counted(len(chosen) - len(shown), 'key')} with default values not shown: add --all.")
    return 0


def _print_view(view: ConfigView, output: Format) -> None:
    """Print the configuration for a user that is not an operator."""
    if output.is_data:
        Table[ConfigView]((), lambda each: each.digest).show(output, [view], view)
        return
    write_facts(_facts(view))
    sys.stdout.flush()
    print_note("Only operators see the keys. 'corral config explain' says what they mean for you.")


def _facts(view: ConfigView) -> list[tuple[str, str]]:
    return [
        ("file", view.file or "none: all defaults"),
        ("digest", view.digest),
        ("since", clock(view.since)),
        ("by", view.by),
        ("previous kept", "yes" if view.previous else "no"),
    ]


def settings_table() -> Table[ConfigSetting]:
    return Table(
        [
            Column("KEY", lambda each: each.key),
            Column(
                "VALUE",
                _value,
                narrow=16,
                colour=lambda each: YELLOW if each.after_restart is not None else "",
            ),
            Column(
                "SET BY",
                lambda each: each.source,
                rank=1,
                narrow=12,
                colour=lambda each: FAINT if each.source == DEFAULT_SOURCE else "",
            ),
        ],
        lambda each: each.key,
        kind=ConfigSetting,
    )


def _value(each: ConfigSetting) -> str:
    return (
        each.value if each.after_restart is None else f"{each.value} (after a restart: {each.after_restart})"
    )


def explain(scope: Scope = "", name: Name = "", file: File = None, output: Output = Format.TABLE) -> int:
    """Explain in sentences what the scheduling policy means for a user, a project or a queue.

    The sentences are about the configuration in effect, with the quotas and weights that operators have set.
    With --file, the sentences are about the named file, and no controller is needed.
    """
    if scope and scope not in SCOPES:
        raise CommandError(f"{scope!r} is none of {', '.join(SCOPES)}", "Write for example: project vision")
    if scope and not name:
        raise CommandError(f"NAME is missing: which {scope}?", f"Write for example: {scope} NAME")
    body = Client().explain_policy(scope, name) if file is None else _of_file(file, scope, name)
    if output.is_data or output == Format.NAME or output == Format.CSV:
        Table([], lambda each: each.about.replace(" ", "/"), kind=PolicyText).show(output, body.texts, body)
        return 0
    for number, text in enumerate(body.texts):
        write(("\n" if number else "") + f"{_capital(printable(text.about))}\n")
        write("".join(f"  {printable(sentence, 1_000)}\n" for sentence in text.sentences))
    return 0


def _of_file(file: Path, scope: str, name: str) -> PolicyExplanation:
    from controller.config import ConfigRefused
    from controller.registry import build_pipeline, check_config
    from controller.registry.checks.policy_explanation import configured_explainer, explanation

    try:
        config = check_config(file)
    except ConfigRefused as refused:
        hint = f"'corral config check {file}' lists all problems."
        raise CommandError(str(refused.problems[0]), hint) from None
    explainer = configured_explainer(config, build_pipeline(config))
    queues = explainer.queue_names()
    if scope == "queue" and queues and name not in queues:
        hint = nearest(name, queues).strip() or f"Queues are {', '.join(queues)}."
        raise CommandError(f"{file} has no queue {name!r}", hint, NOT_FOUND)
    return explanation(explainer, scope, name)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
