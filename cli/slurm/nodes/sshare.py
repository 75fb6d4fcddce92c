"""Prints the shares of accounts and users, as sshare does."""

from __future__ import annotations

import os
from typing import Any

from cli.slurm.arguments import COMMON, Option, parse, prints_only_help, switch
from cli.slurm.formats.output_formats import print_lines
from cli.slurm.formats.sacct_columns import columns_of, lines, shape_of
from cli.slurm.nodes.accounts import text_column, user_name
from cli.slurm.show.controller import ask, controller
from wire.http.controllers import Controllers

Rows = list[dict[str, Any]]

OPTIONS = (
    Option("accounts", "A", help="Only these accounts (projects), and the account root."),
    switch("all", "a", "Print the shares of all users. Default: those of the user that runs the command."),
    switch("helpformat", "e", "List all fields of --format."),
    switch("long", "l"),
    switch("partition", "m"),
    Option("clusters", "M"),
    switch("noheader", "n", "Print no header."),
    Option("format", "o", help="The fields to print, such as Account,User,FairShare."),
    switch("parsable", "p", "Print '|' after each value."),
    switch("parsable2", "P", "Print '|' between the values."),
    Option("users", "u", help="The shares of these users, instead of the user that runs the command."),
    switch("Users", "U", "Only users, no accounts."),
    switch("verbose", "v"),
    switch("help", "h", "Show this help and exit."),
    *COMMON[1:],
)
_SHARES = (
    text_column("Account", -20, "indented"),
    text_column("User", 10),
    *(text_column("RawShares", 10), text_column("NormShares", 11), text_column("RawUsage", 11)),
    *(text_column("EffectvUsage", 13), text_column("FairShare", 10)),
)


def main(words: list[str]) -> int:
    """Print the shares that the options select. Return exit code 0."""
    arguments = parse(OPTIONS, words)
    if prints_only_help(arguments, "sshare [OPTIONS]", OPTIONS):
        return 0
    if arguments.has("helpformat"):
        print(" ".join(column.name for column in _SHARES))
        return 0
    columns = columns_of(arguments.last("format"), _SHARES) if arguments.has("format") else list(_SHARES)
    users = arguments.last("users").split(",") if arguments.has("users") else [user_name(os.geteuid())]
    wanted = arguments.last("accounts").split(",") if arguments.has("accounts") else []
    with controller() as transport:
        rows = _share_rows(transport)
    chosen = [
        row
        for row in rows
        if (arguments.has("all") or not row["user"] or row["user"] in users)
        and (not wanted or row["account"] in wanted or row["account"] == "root")
        and (row["user"] or not arguments.has("Users"))
    ]
    shape = shape_of(arguments)
    print_lines(lines(columns, chosen, shape))
    return 0


def _share_rows(transport: Controllers) -> Rows:
    entries = ask(transport, "/v1/shares")["shares"]
    total = sum(entry["used"] for entry in entries if len(entry["path"]) == 1)
    root = {"account": "root", "indented": "root", "user": "", "normshares": "0.000000"}
    found: Rows = [{**root, "rawusage": round(total), "effectvusage": "1.000000"}]
    for entry in entries:
        account, slash, user = entry["share"].partition("/")
        depth = len(entry["path"])
        found.append(
            {
                "account": account,
                "indented": " " * depth + account,
                "user": user,
                "rawshares": round(entry["weight"]),
                "normshares": f"{entry['part']:.6f}",
                "rawusage": round(entry["used"]),
                "effectvusage": f"{entry['used'] / total if total else 0.0:.6f}",
                "fairshare": f"{entry['factor']:.6f}" if slash else "",
            }
        )
    return found
