"""corral token: creates, lists and revokes API tokens."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from cli.flags import FlagGroup, argument, option, with_flag_groups
from cli.output.formats import Column, Format, Output, Table, write, write_data
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import clock
from cli.registry import application, examples
from wire.api.service.access import ABILITIES, TokenList, TokenRequest, TokenView
from wire.http.client import Client
from wire.text import printable

app = application(invoke_without_command=True)


@dataclass(frozen=True)
class TokenFlags(FlagGroup):
    name: Annotated[str, argument("NAME", "A name that tells where the token is used, such as laptop.")]
    can: Annotated[
        list[str] | None,
        option(
            "--can",
            "ABILITY",
            f"What the token can do: {', '.join(ABILITIES)}. May be repeated. Default: read, submit and "
            "change. A token never has more rights than its user.",
        ),
    ] = None
    project: Annotated[
        list[str] | None,
        option("--project", "PROJECT", "Restrict the token to jobs of this project. May be repeated."),
    ] = None
    days: Annotated[
        float | None,
        option("--days", "DAYS", "Days until the token expires. Default: [access] token_days.", min=0),
    ] = None
    user: Annotated[
        str, option("--user", "USER", "Make the token for this user. Only admins may do so. Default: you.")
    ] = ""
    robot: Annotated[
        str, option("--robot", "NAME", "Make a token for [access.robots.NAME]. Only admins may do so.")
    ] = ""

    def request(self) -> TokenRequest:
        usual = ("read", "submit") if self.robot else ("read", "submit", "change")
        can = tuple(self.can or usual)
        return TokenRequest(self.name, can, tuple(self.project or ()), self.days, self.user, self.robot)


@app.callback(epilog=examples("corral token", "corral token create laptop --days 30"))
@list_command
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Create, list and revoke API tokens. Without a command: list tokens."""
    return listing(output=output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral token list", "corral token list -o json"))
@list_command
def listing(output: Output = Format.TABLE) -> int:
    """List your tokens; as an admin, all tokens."""
    return _show(Client().tokens(), output)


@app.command(
    "create",
    epilog=examples(
        "corral token create laptop",
        "corral token create ci --can submit --can read --project vision --days 30",
        "corral token create nightly --robot ci",
    ),
)
@with_flag_groups
def create(flags: TokenFlags, output: Output = Format.TABLE) -> int:
    """Create a token, and print it. The token is not shown again, because only its hash is kept."""
    made = Client().create_token(flags.request())
    if output.is_data:
        write_data(output, made)
        return 0
    write(made.text)
    sys.stdout.flush()
    print_note(
        f"Token {made.token.id} is not shown again. Use it as $CORRAL_TOKEN, or save it in a file and name "
        "the file: corral config add NAME URL --token-file FILE"
    )
    return 0


@app.command("revoke", epilog=examples("corral token revoke k3m7qx2abc"))
def revoke(
    token: Annotated[str, argument("ID", "The id of the token: 'corral token list' shows it.")],
) -> int:
    """Revoke a token. Requests and streams that are open with the token end within a second."""
    gone = Client().revoke_token(token)
    print_note(f"token {gone.id} ({printable(gone.name, 40)}) of {printable(gone.user, 40)} is revoked")
    return 0


def _show(body: TokenList, output: Format) -> int:
    table().show(output, body.tokens, body)
    return 0


def table() -> Table[TokenView]:
    return Table(
        [
            Column("ID", lambda each: each.id),
            Column("NAME", lambda each: each.name, narrow=10),
            Column("USER", lambda each: f"robot:{each.robot}" if each.robot else each.user, narrow=8),
            Column("KIND", lambda each: each.kind, rank=2),
            Column("CAN", lambda each: ",".join(each.can), narrow=12),
            Column("PROJECTS", lambda each: ",".join(each.projects) or "all", narrow=8, rank=1),
            Column("EXPIRES", lambda each: clock(each.expires_at)),
            Column("USED", lambda each: clock(each.used_at), rank=1),
            Column("FROM", lambda each: each.used_from, rank=2),
        ],
        lambda each: each.id,
        kind=TokenView,
    )
