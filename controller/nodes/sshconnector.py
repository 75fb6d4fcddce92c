"""Connections to hosts by SSH: few at a time, host keys always checked, everything with a deadline."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh

from controller.nodes.knownhosts import KnownHosts, fingerprint
from controller.nodes.reconnecting import CannotConnect
from wire.hosts import SshAddress
from wire.text import plain

AT_ONCE = 32
"""Connections being made at a time: a handshake costs milliseconds of CPU, and 500 hosts come at once."""
CONNECT_S = 30.0
KEEPALIVE_S, KEEPALIVES = 15.0, 3

logging.getLogger("asyncssh").setLevel(logging.WARNING)  # every connection is news to it


class HostKeyUnknown(CannotConnect):
    """Nobody has said yet that this key is the host's; nothing was told to the host."""

    def __init__(self, node: str, key: asyncssh.SSHKey) -> None:
        self.key = key
        super().__init__(
            f"its host key {fingerprint(key)} is not known; 'corral nodes trust {node}' shows and pins it"
        )


class HostKeyChanged(CannotConnect):
    """The host shows another key than the pinned one; nothing was told to it."""

    def __init__(self, node: str, pinned: tuple[asyncssh.SSHKey, ...], shown: asyncssh.SSHKey | None) -> None:
        self.key = shown
        what = f"is now {fingerprint(shown)}" if shown is not None else "is now of another kind"
        super().__init__(
            f"ALERT: its host key changed: it {what}, and {' or '.join(map(fingerprint, pinned))} is pinned. "
            "Somebody may be in between; nothing was sent, and its jobs go on. "
            f"If the host was installed anew: 'corral nodes trust {node}'"
        )


class SshConnector:
    """What all SSH links of a controller share."""

    def __init__(
        self, known: KnownHosts, *, config: Path | None = None, connect_s: float = CONNECT_S
    ) -> None:
        self.known = known
        self._config = config
        self._connect_s = connect_s
        self._turn = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def turn(self, patience_s: float = 0.0) -> AsyncIterator[None]:
        """Few hosts at a time, and each for a limited time; raises CannotConnect."""
        patience_s = patience_s or self._connect_s
        async with self._turn:
            try:
                async with asyncio.timeout(patience_s):
                    yield
            except TimeoutError:
                raise CannotConnect(f"no answer within {patience_s:g} s") from None

    async def connect(
        self, node: str, address: SshAddress, identity: str = "", trusted: str = ""
    ) -> asyncssh.SSHClientConnection:
        """A connection of one's own, inside of a turn; raises CannotConnect."""
        pinned = (asyncssh.import_public_key(trusted),) if trusted else self.known.of(node)
        options: dict[str, object] = {
            "keepalive_interval": KEEPALIVE_S,
            "keepalive_count_max": KEEPALIVES,
            "compression_algs": None,
            "password_auth": False,
            "kbdint_auth": False,
            "agent_forwarding": False,
            "request_pty": False,
        }
        if address.user:
            options["username"] = address.user
        if address.port:
            options["port"] = address.port
        if identity:
            options["client_keys"] = [str(Path(identity).expanduser())]
        if pinned:
            options["known_hosts"] = (list(pinned), [], [])
        if self._config is not None:
            options["config"] = str(self._config)
        gatekeeper = _Gatekeeper()
        options["client_factory"] = lambda: gatekeeper
        try:
            return await asyncssh.connect(address.host, **options)
        except asyncssh.HostKeyNotVerifiable:
            if gatekeeper.shown is None:
                raise CannotConnect("the host key of a jump host on the way is not in known_hosts") from None
            if pinned:
                raise HostKeyChanged(node, pinned, gatekeeper.shown) from None
            raise HostKeyUnknown(node, gatekeeper.shown) from None
        except asyncssh.KeyExchangeFailed as error:
            if pinned and "host key" in str(error):
                raise HostKeyChanged(node, pinned, None) from None
            raise CannotConnect(sentence(error)) from None
        except (OSError, ValueError, asyncssh.Error, asyncssh.KeyImportError) as error:
            raise CannotConnect(sentence(error)) from None


class _Gatekeeper(asyncssh.SSHClient):
    """Remembers a key that nobody vouches for. Trusts none by itself."""

    shown: asyncssh.SSHKey | None = None

    def validate_host_public_key(
        self,
        host: str,  # noqa: ARG002
        addr: str,  # noqa: ARG002
        port: int,  # noqa: ARG002
        key: asyncssh.SSHKey,
    ) -> bool:
        """Asked only about keys that are not known."""
        self.shown = key
        return False


def sentence(error: Exception) -> str:
    """What went wrong on the way to a host, in words for people."""
    if isinstance(error, asyncssh.PermissionDenied):
        return "it lets us in with none of our keys; put the controller's public key into its authorized_keys"
    if isinstance(error, socket.gaierror):
        return "there is no host of that name"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens at its SSH port"
    if isinstance(error, asyncssh.SFTPError):
        return f"files cannot be copied to it: {plain(error.reason, 300)}"
    if isinstance(error, asyncssh.Error):
        return plain(error.reason, 300) or type(error).__name__
    if isinstance(error, OSError):
        file = f"{error.filename}: " if error.filename else ""
        return plain(f"{file}{error.strerror or error}", 300)
    return plain(str(error), 300)
