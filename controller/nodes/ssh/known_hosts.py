"""The pinned host key of each node. The keys are stored in the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import asyncssh


class KnownHosts:
    """The pinned keys in the controller's state, one per node, in the format of OpenSSH."""

    def __init__(self, pinned: Callable[[], Mapping[str, str]]) -> None:
        self._pinned = pinned

    def of(self, node: str) -> tuple[asyncssh.SSHKey, ...]:
        """The pinned key of a node as a tuple. The tuple is empty if no key is pinned."""
        key = self._pinned().get(node)
        return () if key is None else (asyncssh.import_public_key(key),)


def read_legacy_file(path: Path) -> dict[str, str]:
    """The keys by node from the file in which older controllers kept them."""
    found = {}
    with suppress(OSError):
        for line in path.read_text(errors="replace").splitlines():
            name, _, key = line.strip().partition(" ")
            if is_public_key(key):
                found[name] = without_comment(key)
    return found


def is_public_key(key: str) -> bool:
    """Whether this text is a public key in the format of OpenSSH."""
    try:
        asyncssh.import_public_key(key)
    except asyncssh.KeyImportError:
        return False
    return True


def without_comment(key: str) -> str:
    """The key without its comment."""
    return key_line(asyncssh.import_public_key(key))


def key_line(key: asyncssh.SSHKey) -> str:
    """The key as one line: type and base64 data."""
    return " ".join(key.export_public_key().decode().split()[:2])


def fingerprint(key: asyncssh.SSHKey) -> str:
    """The fingerprint SHA256:…, as ssh-keygen -l shows it."""
    return str(key.get_fingerprint())
