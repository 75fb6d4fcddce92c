"""Which host key each node has, pinned when it was added; the journal has them for whoever comes after us."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import asyncssh


class KnownHosts:
    """What is pinned, as the controller's state has it: one key a node, as OpenSSH writes it."""

    def __init__(self, pinned: Callable[[], Mapping[str, str]]) -> None:
        self._pinned = pinned

    def of(self, node: str) -> tuple[asyncssh.SSHKey, ...]:
        """The keys that are pinned for a node."""
        key = self._pinned().get(node)
        return () if key is None else (asyncssh.import_public_key(key),)


def left_by_older(path: Path) -> dict[str, str]:
    """What a file says in which controllers kept their keys before the journal had them."""
    found = {}
    with suppress(OSError):
        for line in path.read_text(errors="replace").splitlines():
            name, _, key = line.strip().partition(" ")
            if readable(key):
                found[name] = plainly(key)
    return found


def readable(key: str) -> bool:
    """Is it a public key as OpenSSH writes it?"""
    try:
        asyncssh.import_public_key(key)
    except asyncssh.KeyImportError:
        return False
    return True


def plainly(key: str) -> str:
    """The key without what people write behind it."""
    return written(asyncssh.import_public_key(key))


def written(key: asyncssh.SSHKey) -> str:
    """A key as one line: its kind, and itself."""
    return " ".join(key.export_public_key().decode().split()[:2])


def fingerprint(key: asyncssh.SSHKey) -> str:
    """SHA256:…, as ssh-keygen -l shows it."""
    return str(key.get_fingerprint())
