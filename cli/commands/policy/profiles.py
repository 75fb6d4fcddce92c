"""corral profiles: shows scheduler profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cli.flags import argument
from cli.output.formats import Column, Format, Output, Table, write_data, write_facts
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.registry import application, examples
from wire.api.policy.profiles import ProfileView
from wire.http.client import Client
from wire.text import counted

Name = Annotated[str, argument("NAME", "Name of the scheduler profile.")]

app = application(invoke_without_command=True)


@app.callback(
    epilog=examples(
        "corral profiles",
        "corral profiles show inference",
        "corral submit --profile inference --gpus 1 -- serve",
        "corral queue --profile inference",
    )
)
@list_command
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show scheduler profiles: their jobs, nodes and scheduling policy. Without a command: list profiles."""
    return listing(output=output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral profiles list", "corral profiles list -o json"))
@list_command
def listing(output: Output = Format.TABLE) -> int:
    """List all scheduler profiles. A job gets the profile of its option --profile. Without --profile, a job
    gets the first profile in the list that accepts its user, project or queue.
    """
    body = Client().profiles()
    if not body.profiles and output in (Format.TABLE, Format.WIDE):
        print_note("there are no profiles: [scheduler] of scheduler.toml applies to all jobs")
        return 0
    profile_table().show(output, body.profiles, body)
    return 0


@app.command(epilog=examples("corral profiles show training", "corral profiles show training -o json"))
def show(name: Name, output: Output = Format.TABLE) -> int:
    """Show one scheduler profile: its jobs, its nodes and its scheduling policy."""
    view = Client().profile(name)
    if output.is_data:
        write_data(output, view)
    elif output == Format.TABLE:
        write_facts(facts_of(view))
    else:
        profile_table().show(output, [view], view)
    return 0


def profile_table() -> Table[ProfileView]:
    """Return the table of scheduler profiles. A job without --profile gets the first profile of this list
    that accepts the job.
    """
    return Table(
        [
            Column("PROFILE", lambda view: view.name, narrow=8),
            Column("JOBS OF", owners, rank=2, narrow=8),
            Column("NODES", lambda view: str(len(view.nodes)), right=True),
            Column("GPUS", lambda view: str(view.gpus), rank=3, right=True),
            Column("SHARES WITH", lambda view: ", ".join(view.shared) or "-", rank=6, narrow=8),
            Column("ORDER", lambda view: order_text(view.policy), rank=4),
            Column("BACKFILL", lambda view: str(view.policy["backfill"]), rank=5),
            Column("QUEUED", lambda view: str(view.queued), rank=1, right=True),
            Column("RUNNING", lambda view: str(view.running), rank=1, right=True),
            Column("ONLY NODES", lambda view: " and ".join(view.terms) or "-", rank=7, narrow=8, wide=True),
            Column("PREEMPTS BY", lambda view: _names(view.preemption["strategies"]), rank=8, wide=True),
        ],
        lambda view: view.name,
        kind=ProfileView,
    )


def facts_of(view: ProfileView) -> list[tuple[str, str]]:
    policy, preemption = dict(view.policy), dict(view.preemption)
    strategies = preemption.pop("strategies")
    return [
        ("profile", view.name),
        ("jobs of", owners(view)),
        ("only nodes", "\n".join(view.terms)),
        ("nodes", f"{counted(len(view.nodes), 'node')} with {counted(view.gpus, 'GPU')}"),
        ("", ", ".join(view.nodes)),
        ("shares with", ", ".join(view.shared) or "-"),
        ("queued", str(view.queued)),
        ("running", str(view.running)),
        ("order", order_text(policy)),
        ("backfill", _backfill(policy)),
        ("filters", _names(policy["filters"])),
        ("scorers", "\n".join(_scorer(name, each) for name, each in policy["scorers"].items())),
        ("picker", _plugin(policy["picker"])),
        ("preempts by", _names(strategies)),
        ("failing", "\n".join(view.failing)),
        ("protects", ", ".join(f"{name} {value:g}" for name, value in preemption.items())),
    ]


def owners(view: ProfileView) -> str:
    """Return the users, projects and queues whose jobs use this scheduler profile, as text; "all" if there is
    no restriction.
    """
    parts = (("queue", view.queues), ("project", view.projects), ("user", view.users))
    texts = [f"{kind} {' or '.join(names)}" for kind, names in parts if names]
    return ", ".join(texts) or "all"


def order_text(policy: Mapping[str, Any]) -> str:
    """Return the order plugins of a policy as text. Example: "priority, then fair" sorts jobs of equal
    priority by fair share.
    """
    then = policy.get("then")
    return _plugin(policy["order"]) + (f", then {_plugin(then)}" if then else "")


def _backfill(policy: Mapping[str, Any]) -> str:
    kind = str(policy["backfill"])
    texts = {
        "aggressive": f", by {policy['backfill_delay_s']:g} s at most",
        "conservative": f", {policy['backfill_depth']} reservations at most",
    }
    return kind + texts.get(kind, "")


def _names(plugins: Any) -> str:
    return ", ".join(map(_plugin, plugins)) or "-"


def _plugin(entry: Any) -> str:
    """Return the name of the plugin that an entry of the configuration selects. If the entry sets options,
    the options follow in parentheses.
    """
    if not isinstance(entry, Mapping):
        return str(entry)
    options = ", ".join(f"{name} {value}" for name, value in entry.items() if name != "name")
    return f"{entry['name']} ({options})" if options else str(entry["name"])


def _scorer(name: str, entry: Any) -> str:
    if not isinstance(entry, Mapping):
        return f"{entry:g} {name}"
    options = ", ".join(f"{key} {value}" for key, value in entry.items() if key != "weight")
    return f"{entry['weight']:g} {name} ({options})"
