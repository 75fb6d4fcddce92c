"""Reads the values of options that several commands share: lists of hosts, --clusters and --iterate."""

from __future__ import annotations

import re
from collections.abc import Callable

from cli.slurm.arguments import Arguments
from cli.slurm.programs import SlurmError
from wire.cluster.hostlist import expand_hostlist

LONGEST_PAUSE_S = 86_400 * 365
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)


def hosts(text: str) -> list[str]:
    """Return the names in a list of hosts such as n[1-4],login. Raise SlurmError if the list is invalid."""
    try:
        return expand_hostlist(text)
    except ValueError as error:
        raise SlurmError(str(error)) from None


def pause_s(arguments: Arguments, words: str = "") -> int:
    """Return the value of --iterate in seconds, at most a year; 0 without this option. If the value is
    invalid, raise SlurmError with a last line that begins with `words`.
    """
    if not arguments.has("iterate"):
        return 0
    text = arguments.last("iterate")
    if not _WHOLE.fullmatch(text) or not int(text):
        raise SlurmError("Write a number of seconds, such as -i 10", f"{words}--iterate={text}")
    return min(int(text), LONGEST_PAUSE_S)


def require_own_cluster(arguments: Arguments, own: Callable[[], str]) -> None:
    """Raise SlurmError if --clusters names only other clusters. `own` returns the name of this controller's
    cluster.
    """
    text = arguments.last("clusters") or arguments.last("cluster")
    if not text or text in ("all", "-1"):
        return
    name = own()
    if name not in text.split(","):
        raise SlurmError(
            f"This controller has the cluster '{name}'; choose another controller with CORRAL_URL.",
            f"'{text}' can't be reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list "
            "clusters' to see available clusters.",
        )
