"""sacctmgr: lists accounts (projects), users and other objects."""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cli.slurm.arguments import COMMON, Arguments, parse, prints_only_help, switch
from cli.slurm.formats.output_formats import print_lines
from cli.slurm.formats.sacct_columns import Column, choose, lines, shape_of
from cli.slurm.programs import SlurmError
from cli.slurm.show.controller import ask, controller
from wire.http.controllers import Controllers
from wire.names import SLURM_QOS

OPTIONS = (
    switch("help", "h", "Show this help and exit."),
    switch("immediate", "i"),
    switch("noheader", "n", "Print no header."),
    switch("oneliner", "o"),
    switch("parsable", "p", "Print '|' after each value."),
    switch("parsable2", "P", "Print '|' between the values."),
    switch("quiet", "Q"),
    switch("readonly", "r"),
    switch("associations", "s", "With users: print the accounts of each user."),
    switch("verbose", "v"),
    *COMMON[1:],
)
USAGE = "sacctmgr [OPTIONS] show|list ENTITY [KEY=VALUE...]"
DEFAULT_PROJECT = "default"


def text_column(name: str, width: int, key: str = "") -> Column:
    """Return a column whose value is `row[key]`; empty if the row does not have the key. Without `key`, the
    key is the name in lower case.
    """
    return Column(name, width, (), lambda row: str(row.get(key or name.lower(), "")))


def _columns(text: str) -> tuple[Column, ...]:
    """Return the columns that a text such as `Cluster 10, Def Acct 10 account` describes: for each column its
    heading, its width, and the key of its value in a row. Without a key, the key is the heading in lower
    case.
    """
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(.+?) (\d+)(?: (\w+))?\s*", part)
        assert match is not None, part
        found.append(text_column(match[1], int(match[2]), match[3] or ""))
    return tuple(found)


_LIMITS = (
    "GrpJobs 7, GrpTRES 13, GrpSubmit 9, GrpWall 11, GrpTRESMins 13, MaxJobs 7, MaxTRES 13, "
    "MaxTRESPerNode 14, MaxSubmit 9, MaxWall 11, MaxTRESMins 13"
)
_ASSOCIATIONS = (
    f"Cluster 10, Account 10, User 10, Partition 10, Share 9, Priority 10, {_LIMITS}, QOS 20, "
    "Def QOS 9 default_qos, GrpTRESRunMins 13"
)
_USERS = "User 10, Def Acct 10 account, Admin 9"
_TABLES = {
    "association": _ASSOCIATIONS,
    "user": _USERS,
    "account": "Account 10, Descr 20 account, Org 20 account",
    "cluster": f"Cluster 10, ControlHost 15, ControlPort 12, RPC 5, Share 9, {_LIMITS}, QOS 20, Def QOS 9",
    "qos": "Name 10, Priority 10, GraceTime 10, Preempt 10, PreemptExemptTime 19, PreemptMode 11, Flags 40, "
    f"UsageThres 10, UsageFactor 11, {_LIMITS}",
    "tres": "Type 8, Name 15, ID 6",
    "wckey": "WCKey 10, Cluster 10, User 10",
    "federation": "Federation 10, Cluster 10, ID 2",
    "event": "Cluster 10, NodeName 15, TimeStart 19, TimeEnd 19, State 6, Reason 30, User 10",
    "problem": "Cluster 10, Account 10, User 10, Problem 40",
    "transaction": "Time 19, Action 20, Actor 10, Where 20, Info 20",
    "resource": "Name 10, Server 10, Type 8, Count 6",
    "reservation": "Cluster 10, Name 15",
}
"""The columns of each kind of object, as texts that `_columns` reads. Kinds without a counterpart in Corral
have no rows.
"""
_ALIASES = {
    "defaultaccount": "def acct",
    "description": "descr",
    "organization": "org",
    "adminlevel": "admin",
    "defaultqos": "def qos",
    "fairshare": "share",
    "accounts": "account",
    "users": "user",
}
"""Other names of columns that Slurm accepts in `format=`, each with the heading of the column in lower case.
"""

Rows = list[dict[str, Any]]


def main(words: list[str]) -> int:
    """Print the objects that `sacctmgr show` or `sacctmgr list` names. Other verbs are an error, because
    scheduler.toml, and not sacctmgr, sets the accounts and users of Corral.
    """
    arguments = parse(OPTIONS, words)
    if prints_only_help(arguments, USAGE, OPTIONS):
        return 0
    verb = arguments.words[0].lower() if arguments.words else ""
    if verb not in ("show", "list"):
        raise SlurmError(
            f"Corral has no 'sacctmgr {verb}'.",
            "Projects, users and limits are in scheduler.toml; see corral quota, corral shares.",
        )
    entity = _entity(arguments.words[1].lower() if len(arguments.words) > 1 else "")
    if not entity:
        kinds = '"Account", "Association", "Cluster", "QOS", "TRES" or "User"'
        print(f"No valid entity in list command\nInput line must include {kinds}", file=sys.stderr)
        return 1
    return _show(entity, arguments)


def _entity(word: str) -> str:
    word = word.removesuffix("s") if word not in ("qos", "tres") else word
    return next((name for name in _TABLES if len(word) > 2 and name.startswith(word)), "")


def _show(entity: str, arguments: Arguments) -> int:
    conditions, names, form = _conditions(arguments.words[2:])
    with_accounts = arguments.has("associations") or "withassoc" in names
    names = [name for name in names if name != "withassoc"]
    conditions.setdefault({"association": "user", "qos": "name", "tres": "type"}.get(entity, entity), names)
    if entity == "user" and "name" in conditions:
        conditions["user"] = conditions.pop("name")
    table = _columns(_TABLES[entity])
    if entity == "user" and with_accounts:
        table += tuple(column for column in _columns(_ASSOCIATIONS) if column.name != "User")
    columns, unknown = choose(form, table) if form else (list(table), [])
    if unknown:
        print(f" Unknown field '{unknown[0]}'", file=sys.stderr)
        return 1
    with controller() as transport:
        found = _ROWS[entity](transport, conditions.get("user") or [], with_accounts)
    rows = [
        row
        for row in found
        if all(not values or str(row.get(key, "")) in values for key, values in conditions.items())
    ]
    shape = shape_of(arguments)
    print_lines(lines(columns, rows, shape))
    return 0


def _conditions(words: Sequence[str]) -> tuple[dict[str, list[str]], list[str], str]:
    """Return the conditions (a dict from key to values, for words such as user=ada), the words without =, and
    the value of format=. Words with any other key are ignored.
    """
    conditions: dict[str, list[str]] = {}
    names: list[str] = []
    form = ""
    for word in words:
        key, equals, value = word.partition("=")
        key = key.lower().removesuffix("s")
        if not equals:
            names += (
                [] if word.lower() in ("where", "set") else [word.lower() if word == "WithAssoc" else word]
            )
        elif key in ("format", "fields", "field"):
            form = ",".join(_field(field) for field in value.split(","))
        elif key in ("user", "account", "cluster", "name"):
            conditions[key] = value.split(",")
    return conditions, names, form


def _field(text: str) -> str:
    name, percent, width = text.strip().partition("%")
    return _ALIASES.get(name.lower(), name) + percent + width


def _associations(transport: Controllers, users: Sequence[str], _: bool = True) -> Rows:
    """Return a row for each account, followed by a row for each user of the account. The account `default`
    also has rows for the user that runs the command and for `users`, if these users exist on this host,
    because a user without jobs may submit to this account.
    """
    cluster, qos = ask(transport, "/v1/cluster")["name"], ",".join(_qos_names(transport))
    accounts: dict[str, dict[str, Any]] = {}
    members: dict[tuple[str, str], dict[str, Any]] = {}
    for share in ask(transport, "/v1/shares")["shares"]:
        project, slash, user = share["share"].partition("/")
        row = {"cluster": cluster, "account": project, "user": user, "share": round(share["weight"])}
        row |= {"qos": qos, "default_qos": ""}
        (members if slash else accounts)[(project, user) if slash else project] = row  # type: ignore[index]
    plain = {"cluster": cluster, "account": DEFAULT_PROJECT, "share": 1, "qos": qos, "default_qos": ""}
    accounts.setdefault(DEFAULT_PROJECT, {**plain, "user": ""})
    for user in (*users, user_name(os.geteuid())):
        if user and _exists(user):
            members.setdefault((DEFAULT_PROJECT, user), {**plain, "user": user})
    found: Rows = []
    for account in sorted(accounts):
        found.append(accounts[account])
        found += [row for (project, _), row in sorted(members.items()) if project == account]
    return found


def _user_rows(transport: Controllers, users: Sequence[str], with_accounts: bool) -> Rows:
    rows = [row for row in _associations(transport, users) if row["user"]]
    for row in rows:
        row["admin"] = "Administrator" if row["user"] == "root" else "None"
    if with_accounts:
        return rows
    return list({str(row["user"]): row for row in reversed(rows)}.values())


def _account_rows(transport: Controllers, users: Sequence[str], _: bool) -> Rows:
    return [row for row in _associations(transport, users) if not row["user"]]


def _cluster_rows(transport: Controllers, _users: Sequence[str], _: bool) -> Rows:
    cluster = ask(transport, "/v1/cluster")["name"]
    own = {"cluster": cluster, "controlhost": "127.0.0.1", "controlport": 6_817, "rpc": 9_728, "share": 1}
    return [{**own, "qos": ",".join(_qos_names(transport))}]


def _qos_rows(transport: Controllers, _users: Sequence[str], _: bool) -> Rows:
    plain = {"priority": 0, "gracetime": "00:00:00", "preemptmode": "cluster", "usagefactor": "1.000000"}
    return [{"name": name, **plain} for name in _qos_names(transport)]


def _qos_names(transport: Controllers) -> list[str]:
    """Return the names of all QOS: `normal`, and each QOS that scheduler.toml sets for a queue."""
    queues = ask(transport, "/v1/queues")["queues"]
    return [SLURM_QOS, *sorted({each["settings"]["qos"] for each in queues if each["settings"].get("qos")})]


def _tres_rows(_transport: Controllers, _users: Sequence[str], _: bool) -> Rows:
    known = (("cpu", "", 1), ("mem", "", 2), ("energy", "", 3), ("node", "", 4), ("billing", "", 5))
    return [
        {"type": kind, "name": name, "id": number} for kind, name, number in (*known, ("gres", "gpu", 1_001))
    ]


def _nothing(_transport: Controllers, _users: Sequence[str], _: bool) -> Rows:
    return []


_ROWS: Mapping[str, Callable[[Controllers, Sequence[str], bool], Rows]] = {
    **dict.fromkeys(_TABLES, _nothing),
    "association": _associations,
    "user": _user_rows,
    "account": _account_rows,
    "cluster": _cluster_rows,
    "qos": _qos_rows,
    "tres": _tres_rows,
}


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
