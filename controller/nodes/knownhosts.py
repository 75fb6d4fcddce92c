"""The controller's own known_hosts: which host key each node has, pinned when it was added."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import asyncssh


class KnownHosts:
    """A file in the manner of OpenSSH's known_hosts, with nodes' names where that has hosts' names."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, node: str) -> tuple[asyncssh.SSHKey, ...]:
        """The keys that are pinned for a node."""
        found = []
        for line in self._lines():
            name, _, key = line.partition(" ")
            if name == node:
                with suppress(asyncssh.KeyImportError):
                    found.append(asyncssh.import_public_key(key))
        return tuple(found)

    def pin(self, node: str, key: str) -> None:
        """From now on this node has this key, and no other."""
        self._write([*self._others(node), f"{node} {written(asyncssh.import_public_key(key))}"])

    def forget(self, node: str) -> None:
        """Nothing is pinned for this node any more."""
        if self.of(node):
            self._write(self._others(node))

    def _others(self, node: str) -> list[str]:
        return [line for line in self._lines() if line.partition(" ")[0] != node]

    def _lines(self) -> list[str]:
        with suppress(FileNotFoundError):
            return [line.strip() for line in self._path.read_text().splitlines() if line.strip()]
        return []

    def _write(self, lines: list[str]) -> None:
        """Whole or not at all: half a line would lock a host out."""
        fresh = self._path.with_name(f".{self._path.name}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)


def readable(key: str) -> bool:
    """Is it a public key as OpenSSH writes it?"""
    try:
        asyncssh.import_public_key(key)
    except asyncssh.KeyImportError:
        return False
    return True


def written(key: asyncssh.SSHKey) -> str:
    """A key as one line: its kind, and itself."""
    return " ".join(key.export_public_key().decode().split()[:2])


def fingerprint(key: asyncssh.SSHKey) -> str:
    """SHA256:…, as ssh-keygen -l shows it."""
    return str(key.get_fingerprint())
