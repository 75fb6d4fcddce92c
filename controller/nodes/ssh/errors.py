"""Finds the reason why an SSH connection failed, and the remedy."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import asyncssh

from controller.nodes.reconnecting import CannotConnect
from controller.nodes.ssh.known_hosts import fingerprint
from wire.cluster.hosts import SshAddress
from wire.text import printable

_DEFAULT_KEYS = [f"~/.ssh/id_{kind}" for kind in ("ed25519", "ecdsa", "rsa")]
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


class AuthenticationFailed(CannotConnect):
    """Raised if the host accepts none of the controller's keys."""

    def __init__(self, locked: Sequence[str], address: SshAddress) -> None:
        why = "the host accepts none of the controller's keys; its authorized_keys lacks the public key"
        self.remedy = (
            f"As the controller's user: ssh-copy-id {address.words()}. If the host already has the key, find "
            "the reason in the log of its SSH server (a shell that does not exist, AllowUsers, from=…)."
        )
        if locked:
            why = (
                f"the host accepts none of the controller's keys; {', '.join(locked)} "
                f"{'has' if len(locked) == 1 else 'have'} a passphrase and can be used only through ssh-agent"
            )
            self.remedy = (
                f"As the controller's user: ssh-add {locked[0]}, "
                "and start the controller with the SSH_AUTH_SOCK of that ssh-agent."
            )
        super().__init__(printable(why, 500))


class HostKeyRecorder(asyncssh.SSHClient):
    """Records the host key and the address of a host whose key asyncssh does not know, and refuses the
    key."""

    reached = False
    shown: asyncssh.SSHKey | None = None
    place: tuple[str, str, int]

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:  # noqa: ARG002
        """Record that a connection to the host itself was opened, and not only to a jump host."""
        self.reached = True

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Record the host key and refuse the host key. asyncssh calls this method only for
        unknown host keys.
        """
        self.shown, self.place = key, (host, addr, port)
        return False


class SshConfig(Protocol):
    """The options of ~/.ssh/config that apply to a host."""

    def get(self, option: str, default: Any = None) -> Any:
        """Return the value of an option, or `default` for an option that is not set."""


@dataclass(frozen=True, slots=True)
class SshAttempt:
    """One attempt to connect to a host: the address, the keys, and a recorder of the host's answers."""

    node: str
    address: SshAddress
    identity: str
    pinned: Sequence[asyncssh.SSHKey]
    config: Path | None
    recorder: HostKeyRecorder

    def files(self) -> dict[str, object]:
        """Return the options for asyncssh about host keys and key files. Files that do not exist are left
        out, as ssh does."""
        config, options = self._ssh_config(), dict[str, object]()
        ours = [self.identity] if self.identity else _there(config, "IdentityFile")
        if ours is not None:
            options["client_keys"] = [str(Path(file).expanduser()) for file in ours]
        known = _there(config, "UserKnownHostsFile")
        if self.pinned:
            options["known_hosts"] = (list(self.pinned), [], [])
        elif known is not None:
            options["known_hosts"] = known or ([], [], [])
        return options

    def explain(self, error: Exception) -> CannotConnect:
        """Return an error whose message gives the reason why the attempt failed."""
        config = self._ssh_config()
        jumps = config.get("ProxyJump") if config is not None else None
        if jumps and not self.recorder.reached:
            if isinstance(error, asyncssh.HostKeyNotVerifiable):
                return CannotConnect(
                    f"the host key of a jump host is not in known_hosts (jump hosts: {jumps})"
                )
            if isinstance(error, asyncssh.ChannelOpenError):
                return CannotConnect(
                    "a jump host cannot reach the host, or does not forward connections (AllowTcpForwarding "
                    f"in its sshd_config; jump hosts: {jumps}): {describe_error(error)}"
                )
            return CannotConnect(
                f"the connection through the jump hosts {jumps} failed: {_without_connection(error)}"
            )
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return self._unverified(error, config)
        if isinstance(error, asyncssh.KeyExchangeFailed) and self.pinned and "host key" in str(error):
            return self._changed(None)
        if isinstance(error, asyncssh.PermissionDenied):
            return AuthenticationFailed(self._locked(config), self.address)
        if isinstance(error, asyncssh.KeyImportError) and self.identity:
            return CannotConnect(printable(f"the key {self.identity} cannot be used: {error}", 300))
        return CannotConnect(_without_connection(error))

    def _ssh_config(self) -> SshConfig | None:
        """Return the options of ~/.ssh/config for the host, or None if this file cannot be read."""
        with suppress(OSError, ValueError):
            where = {} if self.config is None else {"config": str(self.config)}
            made = asyncssh.SSHClientConnectionOptions(host=self.address.host, client_keys=None, **where)
            config: SshConfig = made.config
            return config
        return None

    def _changed(self, shown: asyncssh.SSHKey | None) -> HostKeyChanged:
        return HostKeyChanged("is pinned", self.pinned, shown, f"'corral nodes trust {self.node}'")

    def _unverified(self, error: asyncssh.HostKeyNotVerifiable, config: SshConfig | None) -> CannotConnect:
        """Return the error for a host key that is unknown, changed or revoked."""
        shown = self.recorder.shown
        if shown is None:
            return CannotConnect(f"the host key is not trusted: {printable(error.reason, 200)}")
        if self.pinned:
            return self._changed(shown)
        files = _there(config, "UserKnownHostsFile")
        known: list[asyncssh.SSHKey] = []
        for file in [str(Path("~/.ssh/known_hosts").expanduser())] if files is None else files:
            with suppress(OSError, ValueError):
                known += asyncssh.match_known_hosts(file, *self.recorder.place)[0]
        if known:
            host, _, port = self.recorder.place
            named = host if port == _PORT else f"[{host}]:{port}"
            remedy = f"\"ssh-keygen -R '{named}'\" as the controller's user"
            return HostKeyChanged("is in known_hosts", [*dict.fromkeys(known)], shown, remedy)
        return HostKeyUnknown(self.node, shown)

    def _locked(self, config: SshConfig | None) -> list[str]:
        """Return the key files that were skipped because of a passphrase."""
        files = [self.identity] if self.identity else (config and config.get("IdentityFile")) or _DEFAULT_KEYS
        return [file for file in files if _is_locked(file)]


def _there(config: SshConfig | None, option: str) -> list[str] | None:
    """Return the existing files that an option of ~/.ssh/config names; None if the option is not set."""
    files = config.get(option) if config is not None else None
    if not files:
        return None
    return [str(path) for path in (Path(file).expanduser() for file in files) if path.exists()]


def _is_locked(file: str) -> bool:
    try:
        asyncssh.read_private_key(Path(file).expanduser())
    except asyncssh.KeyImportError as error:
        return str(error).startswith("Passphrase")
    except (OSError, ValueError):
        return False
    return False


def _without_connection(error: Exception) -> str:
    """Return the reason why no connection could be opened, as a clause such as "nothing listens on the SSH
    port"."""
    if is_dropped(error):
        return (
            "the SSH server closes each connection at once: too many connections arrive at a time "
            "(MaxStartups in sshd_config), or connections from this machine are not allowed"
        )
    return describe_error(error)


def is_dropped(error: Exception) -> bool:
    """Return whether the server accepted the connection and then closed the connection."""
    dropped = isinstance(error, (ConnectionError, asyncssh.ConnectionLost))
    return dropped and not isinstance(error, ConnectionRefusedError)


def describe_error(error: Exception) -> str:
    """Return the cause of an SSH or network error, as a clause such as "nothing listens on the SSH port"."""
    if isinstance(error, asyncssh.PermissionDenied):
        return "none of the controller's keys is accepted"
    if isinstance(error, socket.gaierror):
        if error.errno == socket.EAI_NONAME:
            return "there is no host with this name"
        return f"the host name cannot be looked up now: {error.strerror}"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens on the SSH port"
    if isinstance(error, asyncssh.Error):
        return printable(error.reason, 300) or type(error).__name__
    if isinstance(error, OSError):
        file = f"{error.filename}: " if error.filename else ""
        return printable(f"{file}{error.strerror or error}", 300)
    return printable(str(error), 300)
