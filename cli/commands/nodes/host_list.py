"""Reads the hosts of `corral nodes add`: names, names with addresses, or a file with one host on each
line.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from cli.exit_codes import CommandError
from wire.api.nodes import NodeRequest
from wire.cluster.hosts import HostSpec, checked_node_name, host_problems

MOST = 10_000
_HINT = "Write NAME, NAME=ADDRESS or NAME ADDRESS, where ADDRESS is [user@]host[:port]."
_KEYS = ("identity", "python", "spool", "address", "gpus", "memory", "scratch", "scratch_dir")


def requests(words: Sequence[str], file: Path | None, common: HostSpec) -> list[NodeRequest]:
    """Return one request for each new node that the words of the command line or the lines of `file` name.
    The options in `common` apply to all nodes.
    """
    found = [(name, replace(common, ssh=address)) for name, address in _pairs(words)]
    if file is not None:
        found += _of_file(file, common)
    if not found:
        raise CommandError("no host is named", _HINT)
    names = [name for name, _ in found]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(names) <= MOST else []
    if twice:
        raise CommandError(f"node {twice[0]} is named twice")
    return [_checked(name, host) for name, host in found]


def _pairs(words: Iterable[str]) -> list[tuple[str, str]]:
    """Return the name and the address of each host. The words have the form NAME=ADDRESS, NAME, or NAME
    ADDRESS.

    A word is an address if it contains a user or a port, if it is an IP address, or if it has dots and
    follows a name without dots. Therefore `gpu01 gpu02` names two hosts, `a.example.org b.example.org` also
    names two hosts, and `gpu01 10.0.0.7` names one host.
    """
    found: list[tuple[str, str]] = []
    for word in words:
        name, equals, address = word.partition("=")
        # If the previous word is a host name without an address, the present word may be the address of this
        # host.
        alone = bool(found) and found[-1][1] == found[-1][0]
        if equals:
            found.append((name, address))
        elif _only_an_address(word):
            if not alone:
                raise CommandError(f"{word!r} is an address without a name", _HINT)
            found[-1] = (found[-1][0], word)
        elif alone and "." in word and "." not in found[-1][0]:
            found[-1] = (found[-1][0], word)
        else:
            found.append((word, word))
    return found


def _only_an_address(word: str) -> bool:
    if "@" in word or ":" in word:
        return True
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True


def _of_file(file: Path, common: HostSpec) -> list[tuple[str, HostSpec]]:
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise CommandError(f"{file}: {why}") from None
    found = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words:
            try:
                found.append(_of_line(words, common))
            except ValueError as error:
                hint = "A line is NAME [ADDRESS] [KEY=VALUE]…, such as: gpu01 ada@10.0.0.7:22 label.rack=r1"
                raise CommandError(f"{file}:{number}: {error}", hint) from None
    return found


def _of_line(words: list[str], common: HostSpec) -> tuple[str, HostSpec]:
    name, *rest = words
    address = rest.pop(0) if rest and "=" not in rest[0] else name
    host = replace(common, ssh=address)
    for word in rest:
        key, equals, value = word.partition("=")
        if key.startswith("label.") and equals:
            host = replace(host, labels={**host.labels, key[6:]: value})
        elif key == "cpus" and value.isascii() and value.isdigit():
            host = replace(host, cpus=int(value))
        elif key in _KEYS and equals:
            host = replace(host, **{key: value})  # type: ignore[arg-type]
        else:
            raise ValueError(f"unknown setting {word!r}; write {', '.join(_KEYS)}, cpus or label.NAME")
    return name, host


def _checked(name: str, host: HostSpec) -> NodeRequest:
    try:
        checked_node_name(name)
    except ValueError as error:
        raise CommandError(str(error), _HINT) from None
    for where, message in host_problems(host):
        raise CommandError(f"{name}: {where}: {message}")
    return NodeRequest(name, host)
