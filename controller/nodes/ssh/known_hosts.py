"""The pinned SSH host key of each node. The keys are stored in the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import asyncssh


class KnownHosts:
    """Looks up the pinned host key of a node in the controller's state."""

    def __init__(self, pinned: Callable[[], Mapping[str, str]]) -> None:
        self._pinned = pinned

    def of(self, node: str) -> tuple[asyncssh.SSHKey, ...]:
        """Return the pinned host key of a node as a tuple with one key; an empty tuple if no key is
        pinned.
        """
        key = self._pinned().get(node)
        return () if key is None else (asyncssh.import_public_key(key),)


def read_legacy_file(path: Path) -> dict[str, str]:
    """Return the host key of each node, by node name, from the file of older controller versions. Empty if
    there is no such file.
    """
    found = {}
    with suppress(OSError):
        for line in path.read_text(errors="replace").splitlines():
            name, _, key = line.strip().partition(" ")
            if is_public_key(key):
                found[name] = without_comment(key)
    return found


def is_public_key(key: str) -> bool:
    """Return whether this text is a public key in the format of OpenSSH."""
    try:
        asyncssh.import_public_key(key)
    except asyncssh.KeyImportError:
        return False
    return True


def without_comment(key: str) -> str:
    """Return the public key in the format of OpenSSH, without its comment."""
    return key_line(asyncssh.import_public_key(key))


def key_line(key: asyncssh.SSHKey) -> str:
    """Return the key as one line of text: type and base64 data."""
    return " ".join(key.export_public_key().decode().split()[:2])


def fingerprint(key: asyncssh.SSHKey) -> str:
    """Return the fingerprint of the key as SHA256:…, in the format of ssh-keygen -l."""
    return str(key.get_fingerprint())
