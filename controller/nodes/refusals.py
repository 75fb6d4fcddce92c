"""Why there is no connection to a host: what was shown, who refused whom, and whose turn it is to do what."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import asyncssh

from controller.nodes.knownhosts import fingerprint
from controller.nodes.reconnecting import CannotConnect
from wire.hosts import SshAddress
from wire.text import plain

_DEFAULT_KEYS = [f"~/.ssh/id_{kind}" for kind in ("ed25519", "ecdsa", "rsa")]
_PORT = 22


class HostKeyUnknown(CannotConnect):
    """Nobody has said yet that this key is the host's; nothing was told to the host."""

    def __init__(self, node: str, key: asyncssh.SSHKey) -> None:
        self.key = key
        super().__init__(
            f"its host key {fingerprint(key)} is not known; 'corral nodes trust {node}' shows and pins it"
        )


class HostKeyChanged(CannotConnect):
    """The host shows another key than the one on record; nothing was told to it."""

    def __init__(
        self, record: str, known: Sequence[asyncssh.SSHKey], shown: asyncssh.SSHKey | None, remedy: str
    ) -> None:
        self.key = shown
        what = f"is now {fingerprint(shown)}" if shown is not None else "is now of another kind"
        super().__init__(
            f"ALERT: its host key changed: it {what}, and {' or '.join(map(fingerprint, known))} {record}. "
            "Somebody may be in between; nothing was sent, and its jobs go on. "
            f"If the host was installed anew: {remedy}"
        )


class NotLetIn(CannotConnect):
    """It is the right host, and it wants none of our keys."""

    def __init__(self, locked: Sequence[str], address: SshAddress) -> None:
        why = "it lets us in with none of our keys; put the controller's public key into its authorized_keys"
        self.remedy = (
            f"As the controller's user: ssh-copy-id {address.words()}. If the key is there, the log of the "
            "SSH server there says why (a shell that does not exist, AllowUsers, from=…)."
        )
        if locked:
            why = (
                f"it lets us in with none of our keys; {', '.join(locked)} has a passphrase, "
                "and is only tried when ssh-agent holds it"
            )
            self.remedy = (
                f"As the controller's user: ssh-add {locked[0]}, "
                "and start the controller with that agent's SSH_AUTH_SOCK."
            )
        super().__init__(plain(why, 500))


class Gatekeeper(asyncssh.SSHClient):
    """Remembers a key that nobody vouches for, and where it was shown. Trusts none by itself."""

    reached = False
    shown: asyncssh.SSHKey | None = None
    place: tuple[str, str, int]

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:  # noqa: ARG002
        """The host itself is there, and all jump hosts are behind us."""
        self.reached = True

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Asked only about keys that are not known."""
        self.shown, self.place = key, (host, addr, port)
        return False


class Told(Protocol):
    """What ~/.ssh/config says of a host."""

    def get(self, option: str, default: Any = None) -> Any:
        """One of its options."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One connection that is tried: to whom, with what, and what was seen on the way."""

    node: str
    address: SshAddress
    identity: str
    pinned: Sequence[asyncssh.SSHKey]
    config: Path | None
    gatekeeper: Gatekeeper

    def files(self) -> dict[str, object]:
        """Whose keys are known and which of ours are tried; as for ssh, files may be missing."""
        told, options = self._told(), dict[str, object]()
        ours = [self.identity] if self.identity else _there(told, "IdentityFile")
        if ours is not None:
            options["client_keys"] = [str(Path(file).expanduser()) for file in ours]
        known = _there(told, "UserKnownHostsFile")
        if self.pinned:
            options["known_hosts"] = (list(self.pinned), [], [])
        elif known is not None:
            options["known_hosts"] = known or ([], [], [])
        return options

    def explain(self, error: Exception) -> CannotConnect:
        """Why it came to nothing, and whose turn it is."""
        told = self._told()
        jumps = told.get("ProxyJump") if told is not None else None
        if jumps and not self.gatekeeper.reached:
            if isinstance(error, asyncssh.HostKeyNotVerifiable):
                return CannotConnect(
                    f"the host key of a jump host on the way ({jumps}) is not in known_hosts"
                )
            if isinstance(error, asyncssh.ChannelOpenError):
                return CannotConnect(
                    f"the jump host on the way ({jumps}) does not reach it, or may forward nothing "
                    f"(AllowTcpForwarding in its sshd_config): {sentence(error)}"
                )
            return CannotConnect(f"on the way to it, by the jump hosts {jumps}: {_at_the_door(error)}")
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return self._unverified(error, told)
        if isinstance(error, asyncssh.KeyExchangeFailed) and self.pinned and "host key" in str(error):
            return self._changed(None)
        if isinstance(error, asyncssh.PermissionDenied):
            return NotLetIn(self._locked(told), self.address)
        if isinstance(error, asyncssh.KeyImportError) and self.identity:
            return CannotConnect(plain(f"{self.identity} cannot be used: {error}", 300))
        return CannotConnect(_at_the_door(error))

    def _told(self) -> Told | None:
        """None if it cannot be read; then that is the error."""
        with suppress(OSError, ValueError):
            where = {} if self.config is None else {"config": str(self.config)}
            made = asyncssh.SSHClientConnectionOptions(host=self.address.host, client_keys=None, **where)
            told: Told = made.config
            return told
        return None

    def _changed(self, shown: asyncssh.SSHKey | None) -> HostKeyChanged:
        return HostKeyChanged("is pinned", self.pinned, shown, f"'corral nodes trust {self.node}'")

    def _unverified(self, error: asyncssh.HostKeyNotVerifiable, told: Told | None) -> CannotConnect:
        """A key that is unknown, or another one than is on record, or one that is never to be taken."""
        shown = self.gatekeeper.shown
        if shown is None:
            return CannotConnect(f"its host key is not to be trusted: {plain(error.reason, 200)}")
        if self.pinned:
            return self._changed(shown)
        files = _there(told, "UserKnownHostsFile")
        known: list[asyncssh.SSHKey] = []
        for file in [str(Path("~/.ssh/known_hosts").expanduser())] if files is None else files:
            with suppress(OSError, ValueError):
                known += asyncssh.match_known_hosts(file, *self.gatekeeper.place)[0]
        if known:
            host, _, port = self.gatekeeper.place
            named = host if port == _PORT else f"[{host}]:{port}"
            remedy = f"\"ssh-keygen -R '{named}'\" as the controller's user"
            return HostKeyChanged("stands in known_hosts", [*dict.fromkeys(known)], shown, remedy)
        return HostKeyUnknown(self.node, shown)

    def _locked(self, told: Told | None) -> list[str]:
        """Keys that would have been tried if they had no passphrase: nobody is here to type it."""
        files = [self.identity] if self.identity else (told and told.get("IdentityFile")) or _DEFAULT_KEYS
        return [file for file in files if _is_locked(file)]


def _there(told: Told | None, option: str) -> list[str] | None:
    """The files that an option names and that are there; None if it names none."""
    files = told.get(option) if told is not None else None
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


def _at_the_door(error: Exception) -> str:
    """As `sentence`, for a connection that has not come about."""
    if is_dropped(error):
        return (
            "it closes the connection at once, again and again: there are too many at a time "
            "(MaxStartups in its sshd_config), or it wants none from this machine"
        )
    return sentence(error)


def is_dropped(error: Exception) -> bool:
    """Somebody was there, and hung up."""
    dropped = isinstance(error, (ConnectionError, asyncssh.ConnectionLost))
    return dropped and not isinstance(error, ConnectionRefusedError)


def sentence(error: Exception) -> str:
    """What went wrong on the way to a host, in words for people."""
    if isinstance(error, asyncssh.PermissionDenied):
        return "it lets us in with none of our keys"
    if isinstance(error, socket.gaierror):
        if error.errno == socket.EAI_NONAME:
            return "there is no host of that name"
        return f"its name cannot be looked up now: {error.strerror}"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens at its SSH port"
    if isinstance(error, asyncssh.Error):
        return plain(error.reason, 300) or type(error).__name__
    if isinstance(error, OSError):
        file = f"{error.filename}: " if error.filename else ""
        return plain(f"{file}{error.strerror or error}", 300)
    return plain(str(error), 300)
