"""Checks the host key of an SSH connection: the key must be pinned for the node, or be in known_hosts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import asyncssh

from controller.nodes.reconnecting import CannotConnect
from controller.nodes.ssh.known_hosts import fingerprint
from wire.text import printable

_PORT = 22


class HostKeyUnknown(CannotConnect):
    """Raised if the host key is neither pinned nor in known_hosts. No data has been sent to the host."""

    def __init__(self, node: str, key: asyncssh.SSHKey) -> None:
        self.key = key
        super().__init__(
            f"the host key {fingerprint(key)} is not known; 'corral nodes trust {node}' shows and pins it"
        )


class HostKeyChanged(CannotConnect):
    """Raised if the host key differs from the pinned key, or from the key in known_hosts. No data has been
    sent to the host."""

    def __init__(
        self, record: str, known: Sequence[asyncssh.SSHKey], shown: asyncssh.SSHKey | None, remedy: str
    ) -> None:
        self.key = shown
        now = f"it is now {fingerprint(shown)}" if shown is not None else "it now has another type"
        before = " or ".join(map(fingerprint, known))
        super().__init__(
            f"ALERT: the host key has changed: {now}, but {before} {record}. "
            "The connection may be intercepted. Nothing was sent to the host, and its jobs continue. "
            f"If the host was reinstalled: {remedy}"
        )


class HostKeyCheck(asyncssh.SSHClient):
    """Checks the host key of one connection to a node.

    1. If a key is pinned for the node, asyncssh accepts only this key. If none is pinned, asyncssh accepts
       the keys in the known_hosts files of the controller's user (`options`).
    2. asyncssh calls `validate_host_public_key` for any other key. The method records the key and refuses it.
    3. `refusal` compares the refused key with the pinned or known keys, and returns an error that says
       whether the host key is unknown or has changed.
    """

    reached = False
    shown: asyncssh.SSHKey | None = None
    place: tuple[str, str, int]

    def __init__(self, node: str, pinned: Sequence[asyncssh.SSHKey]) -> None:
        self.node = node
        self.pinned = pinned

    def options(self, files: list[str] | None) -> dict[str, object]:
        """Return the option of asyncssh that names the accepted host keys. `files` are the existing files
        that the option UserKnownHostsFile of ~/.ssh/config names; None if this option is not set.
        """
        if self.pinned:
            return {"known_hosts": (list(self.pinned), [], [])}
        if files is not None:
            return {"known_hosts": files or ([], [], [])}
        return {}

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:  # noqa: ARG002
        """Record that a connection to the host itself was opened, and not only to a jump host."""
        self.reached = True

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Record the host key and refuse it. asyncssh calls this method only for a key that is not among the
        accepted keys.
        """
        self.shown, self.place = key, (host, addr, port)
        return False

    def changed(self, shown: asyncssh.SSHKey | None) -> HostKeyChanged:
        """Return the error for a host key that differs from the pinned key. `shown` is the key that the host
        sent; None if asyncssh did not pass it on.
        """
        return HostKeyChanged("is pinned", self.pinned, shown, f"'corral nodes trust {self.node}'")

    def refusal(self, error: asyncssh.HostKeyNotVerifiable, files: list[str] | None) -> CannotConnect:
        """Return the error for a host key that is unknown, changed or revoked. `files` are as in
        `options`.
        """
        shown = self.shown
        if shown is None:
            return CannotConnect(f"the host key is not trusted: {printable(error.reason, 200)}")
        if self.pinned:
            return self.changed(shown)
        known: list[asyncssh.SSHKey] = []
        for file in [str(Path("~/.ssh/known_hosts").expanduser())] if files is None else files:
            with suppress(OSError, ValueError):
                known += asyncssh.match_known_hosts(file, *self.place)[0]
        if known:
            host, _, port = self.place
            named = host if port == _PORT else f"[{host}]:{port}"
            remedy = f"\"ssh-keygen -R '{named}'\" as the controller's user"
            return HostKeyChanged("is in known_hosts", [*dict.fromkeys(known)], shown, remedy)
        return HostKeyUnknown(self.node, shown)
