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
from controller.nodes.ssh.host_key_check import HostKeyCheck
from wire.cluster.hosts import SshAddress
from wire.text import printable

_DEFAULT_KEYS = [f"~/.ssh/id_{kind}" for kind in ("ed25519", "ecdsa", "rsa")]


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


class SshConfig(Protocol):
    """The options of ~/.ssh/config that apply to a host."""

    def get(self, option: str, default: Any = None) -> Any:
        """Return the value of an option, or `default` for an option that is not set."""


@dataclass(frozen=True, slots=True)
class SshAttempt:
    """One attempt to connect to a host, with the address, the key file, and the check of the host key."""

    address: SshAddress
    identity: str
    config: Path | None
    check: HostKeyCheck

    def files(self) -> dict[str, object]:
        """Return the options for asyncssh about host keys and key files. Files that do not exist are left
        out, as ssh does."""
        config, options = self._ssh_config(), dict[str, object]()
        ours = [self.identity] if self.identity else _there(config, "IdentityFile")
        if ours is not None:
            options["client_keys"] = [str(Path(file).expanduser()) for file in ours]
        return options | self.check.options(_there(config, "UserKnownHostsFile"))

    def explain(self, error: Exception) -> CannotConnect:
        """Return an error whose message gives the reason why the attempt failed."""
        config = self._ssh_config()
        jumps = config.get("ProxyJump") if config is not None else None
        if jumps and not self.check.reached:
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
            return self.check.refusal(error, _there(config, "UserKnownHostsFile"))
        if isinstance(error, asyncssh.KeyExchangeFailed) and self.check.pinned and "host key" in str(error):
            return self.check.changed(None)
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

    def _locked(self, config: SshConfig | None) -> list[str]:
        """Return the key files that were skipped because they have a passphrase."""
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
