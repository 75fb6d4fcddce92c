"""corral config add, trust, use, list and remove: manage contexts. A context is the address of a controller,
saved under a name.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from cli.exit_codes import NOT_FOUND, CommandError
from cli.flags import argument, option, switch
from cli.output.confirmation import confirmed
from cli.output.formats import Column, Format, Output, Table
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.registry import examples
from wire.http import contexts, discovery, pins
from wire.http.certificate_authority import read_authority
from wire.http.contexts import Context, Contexts
from wire.http.transport import Transport

Name = Annotated[str, argument("NAME", "Name of the saved controller address.")]


@dataclass(frozen=True)
class Row:
    """One named controller: a row of `corral config list`."""

    name: str
    url: str
    ca: str
    token_file: str
    current: bool


def add(
    name: Name,
    url: Annotated[
        str,
        argument("URL", "URL: ssh://[user@]host, https://host, http://host:port or unix:///path."),
    ],
    ca: Annotated[
        str,
        option(
            "--ca",
            "FILE",
            "PEM file of the certificate authority that signed the controller's certificate (https only).",
        ),
    ] = "",
    token_file: Annotated[
        str, option("--token-file", "FILE", "File with your access token (http and https only).")
    ] = "",
) -> int:
    """Save the address of a controller under a name. The first controller added is used by default."""
    # Raise an error for an invalid address or certificate file before the context is saved.
    Transport(url, 1.0, "", ca=ca).close()
    known = _load()
    made = {**known.known, name: Context(url, ca, token_file)}
    contexts.save(Contexts(known.current or name, made))
    print_note(f"context {name}: {url}" + (" (in use)" if (known.current or name) == name else ""))
    return 0


def trust(
    url: Annotated[str, argument("URL", "The https URL of a controller.")],
    fingerprint: Annotated[
        str,
        option(
            "--fingerprint",
            "SHA256:…",
            "Trust the authority only if it has this fingerprint, and do not ask. The controller logs the "
            "fingerprint when it starts.",
        ),
    ] = "",
    replace_pin: Annotated[
        bool, switch("--replace", "Trust a new authority instead of the one that is pinned for this address.")
    ] = False,
) -> int:
    """Pin the certificate authority of a controller, as SSH pins the key of a host. From then on, only this
    authority is trusted for the address.
    """
    if not url.startswith("https:"):
        raise CommandError(f"{url} is not an https URL", "Only https addresses have certificates.")
    Transport(url, 1.0, "").close()
    before, pem = pins.pinned(url), read_authority(url)
    found = pins.fingerprint(pem)
    if before == pem:
        print_note(f"{found} is pinned for {pins.key_of(url)} already")
        return 0
    if before and not replace_pin:
        message = f"{pins.key_of(url)} has another certificate authority than {pins.fingerprint(before)}"
        hint = (
            "Another computer may answer in place of the controller. Ask an admin, then use --replace with "
            "the fingerprint in the controller's log."
        )
        raise CommandError(message, hint)
    if fingerprint and fingerprint != found:
        raise CommandError(
            f"the authority of {pins.key_of(url)} has another fingerprint",
            "Another computer may answer in place of the controller. Compare with the controller's log.",
        )
    if not fingerprint and not sys.stdin.isatty():
        # Do not show the fingerprint, because a user could copy it without a comparison.
        hint = "Give the fingerprint from the controller's log: --fingerprint SHA256:…"
        raise CommandError("this question needs a terminal", hint)
    if not fingerprint and not confirmed(f"Trust the authority {found} for {pins.key_of(url)}?"):
        return 1
    pins.pin(url, pem)
    print_note(f"{found} is pinned for {pins.key_of(url)}")
    return 0


def use(name: Name) -> int:
    """Use this controller by default. The options --url and --context and environment variables override the
    default.
    """
    known = _load()
    _need(known, name)
    contexts.save(replace(known, current=name))
    print_note(f"context {name}: {known.known[name].url}")
    return 0


def remove(name: Name) -> int:
    """Remove a controller from 'corral config list'. The controller keeps running."""
    known = _load()
    _need(known, name)
    left = {each: context for each, context in known.known.items() if each != name}
    contexts.save(Contexts("" if known.current == name else known.current, left))
    return 0


@list_command
def listing(output: Output = Format.TABLE) -> int:
    """List the saved controllers, and show which controller the commands use now."""
    known = _load()
    rows = [
        Row(name, each.url, each.ca, each.token_file, name == known.current)
        for name, each in known.known.items()
    ]
    columns: list[Column[Row]] = [
        Column("IN USE", lambda row: "*" if row.current else ""),
        Column("NAME", lambda row: row.name),
        Column("URL", lambda row: row.url, narrow=12),
        Column("CA", lambda row: row.ca or "-", narrow=6, rank=1),
        Column("TOKEN FILE", lambda row: row.token_file or "-", narrow=6, rank=2),
    ]
    Table(columns, lambda row: row.name, kind=Row).show(output, rows, rows)
    if output in (Format.TABLE, Format.WIDE):
        found = discovery.find_controller()
        print_note(f"Commands here use {found.url} ({found.source}).")
    return 0


def _load() -> Contexts:
    try:
        return contexts.load()
    except contexts.InvalidContexts as unusable:
        raise CommandError(str(unusable), "Correct the file, or remove it.") from None


def _need(known: Contexts, name: str) -> None:
    if name not in known.known:
        there = ", ".join(known.known)
        hint = (
            f"There are: {there}." if there else "No context is saved. Add one: corral config add NAME URL."
        )
        raise CommandError(f"there is no context {name!r}", hint, NOT_FOUND)


def register(app: typer.Typer) -> None:
    app.command(
        "add",
        epilog=examples(
            "corral config add lab ssh://head.example.org",
            "corral config add prod https://corral.example.org --ca ca.pem --token-file ~/.corral-token",
        ),
    )(add)
    app.command("trust", epilog=examples("corral config trust https://head1:7070"))(trust)
    app.command("use", epilog=examples("corral config use prod"))(use)
    app.command("list", epilog=examples("corral config list"))(listing)
    app.command("remove", epilog=examples("corral config remove lab"))(remove)
