"""Reads the limits of accounts and QOS of Slurm, and the amounts in use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from controller.engines.batch_systems.slurm.text_output import rows
from controller.engines.batch_systems.slurm.units import memory_mib
from controller.engines.contract import EngineUnavailable, ForeignQuota
from controller.engines.tightest_quota import tightest
from wire.cluster.quota import Limits

ACCOUNT_LIMITS = (
    "cluster=$(scontrol show config | sed -n 's/^ClusterName *= *//p') && [ -n \"$cluster\" ] || exit 1\n"
    'sacctmgr -nP show assoc where cluster="$cluster" format=Account,User,ParentName,GrpJobs,GrpTRES'
)
"""The command that prints the limits of the associations (accounts and users) of this cluster. One slurmdbd
may have the accounts of several clusters.
"""
QOS_LIMITS = "sacctmgr -nP show qos format=Name,GrpJobs,GrpTRES"
AMOUNTS_IN_USE = (
    "found=$(scontrol -o show assoc_mgr flags=assoc,qos) || exit 1\n"
    "printf '%s\\n' \"$found\" | grep -E ' UserName= |^QOS=' || true"
)
"""The command that prints the amounts that running jobs of accounts and QOS use. sshare shows only use in
the past, in seconds that count less with age, and GrpTRES and GrpJobs limit other amounts.
"""
_IN_USE = re.compile(
    r"(?:.*? Account=(?P<account>\S+) UserName= |QOS=(?P<qos>[^\s(]+)\()"
    r".*? GrpJobs=[^\s(]*\((?P<jobs>\d+)\).*? GrpTRES=(?P<tres>\S*)"
)
_AMOUNT = re.compile(r"([^=,]+)=[^,(]*\(([^)]*)\)")
_Key = tuple[str, str]
"""The words "account" or "qos", and a name."""


def quota_of(name: str, accounts: str, qos: str, in_use: str) -> ForeignQuota:
    """Return the quota of a name such as `account=vision,qos=tight` from the outputs of ACCOUNT_LIMITS,
    QOS_LIMITS and AMOUNTS_IN_USE. Raise EngineUnavailable if Slurm has no such account or QOS.

    1. A job counts for its account, for all accounts above it, and for its QOS.
    2. For each amount, take the limit that leaves the least.
    """
    hard: dict[_Key, Limits] = {}
    parents: dict[str, str] = {}
    for account, user, parent, jobs, tres in rows(accounts, 5):
        if not user:
            hard["account", account] = _limits(jobs, _tres(tres))
            parents[account] = parent
    for each, jobs, tres in rows(qos, 3):
        hard["qos", each] = _limits(jobs, _tres(tres))
    used = dict(_uses(in_use))
    keys: list[_Key] = []
    for word in name.split(","):
        kind, _, each = word.partition("=")
        if (kind, each) not in hard:
            raise EngineUnavailable(f"Slurm has no {'QOS' if kind == 'qos' else kind} {each!r}")
        while (kind, each) in hard and (kind, each) not in keys:
            keys.append((kind, each))
            each = parents.get(each, "") if kind == "account" else ""
    return tightest(ForeignQuota(hard[key], used.get(key, Limits())) for key in keys)


def _uses(text: str) -> Iterator[tuple[_Key, Limits]]:
    for line in text.splitlines():
        if (match := _IN_USE.match(line)) is not None:
            key = ("qos", match["qos"]) if match["qos"] else ("account", match["account"])
            yield key, _limits(match["jobs"], dict(_AMOUNT.findall(match["tres"])))


def _tres(text: str) -> dict[str, str]:
    """Return the amounts of a text such as `cpu=8,gres/gpu=4,mem=2G` by name."""
    return dict(part.split("=", 1) for part in text.split(",") if part)


def _limits(jobs: str, tres: dict[str, str]) -> Limits:
    found: dict[str, Any] = {}
    if jobs:
        found["running"] = int(jobs)
    if "cpu" in tres:
        found["cpu_milli"] = 1_000 * int(tres["cpu"])
    if "mem" in tres:
        found["memory_mib"] = memory_mib(tres["mem"])
    if "gres/gpu" in tres:
        found["gpus"] = float(tres["gres/gpu"])
    return Limits(**found)
