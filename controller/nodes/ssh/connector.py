"""Opens SSH connections with host key checks and time limits. Only a limited number is being opened at a
time.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh

from controller.nodes.reconnecting import CannotConnect
from controller.nodes.ssh.host_key_check import HostKeyCheck
from controller.nodes.ssh.known_hosts import KnownHosts
from controller.nodes.ssh.ssh_attempt import SshAttempt, is_dropped
from wire.cluster.hosts import SshAddress

AT_ONCE = 32
"""The most connections that are opened at the same time, because each handshake takes milliseconds of CPU
time.
"""
CONNECT_S = 30.0
PAUSES_S = (0.3, 0.6, 1.2, 2.4)
KEEPALIVE_S, KEEPALIVES = 15.0, 3

# Hide the log messages of asyncssh, because asyncssh logs every connection.
logging.getLogger("asyncssh").setLevel(logging.WARNING)


class SshConnector:
    """Opens the SSH connections of a controller. All connections share the pinned host keys, and a limit on
    how many are being opened at the same time."""

    def __init__(
        self, known: KnownHosts, *, config: Path | None = None, connect_s: float = CONNECT_S
    ) -> None:
        self.known = known
        self._config = config
        self._connect_s = connect_s
        self._turn = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def turn(self, patience_s: float = 0.0) -> AsyncIterator[None]:
        """Wait until fewer than AT_ONCE connections are being opened, then run the `async with` block, which
        opens a connection.

        Raise CannotConnect if the block takes longer than `patience_s` seconds (0: the default).
        """
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
        """Open an SSH connection to a node's host. `trusted` is a host key that is accepted instead of the
        pinned key. Call this method inside a `turn` block. Raise CannotConnect if no connection can be
        opened.
        """
        pinned = (asyncssh.import_public_key(trusted),) if trusted else self.known.of(node)
        attempt = SshAttempt(address, identity, self._config, HostKeyCheck(node, pinned))
        options: dict[str, object] = {
            "keepalive_interval": KEEPALIVE_S,
            "keepalive_count_max": KEEPALIVES,
            "compression_algs": None,
            "password_auth": False,
            "kbdint_auth": False,
            "agent_forwarding": False,
            "request_pty": False,
            # Skip key files with a passphrase, because ssh-agent may hold the same keys unlocked.
            "ignore_encrypted": True,
            "client_factory": lambda: attempt.check,
            **attempt.files(),
        }
        if address.user:
            options["username"] = address.user
        if address.port:
            options["port"] = address.port
        if self._config is not None:
            options["config"] = str(self._config)
        try:
            async with asyncio.timeout(self._connect_s) as limit:
                return await _retry_dropped(lambda: asyncssh.connect(address.host, **options))
        except (OSError, ValueError, asyncssh.Error) as error:
            if limit.expired():
                raise CannotConnect(f"no answer within {self._connect_s:g} s") from None
            raise attempt.explain(error) from None


async def _retry_dropped(
    connect: Callable[[], Awaitable[asyncssh.SSHClientConnection]],
) -> asyncssh.SSHClientConnection:
    """Call `connect`, and call it again if the server drops the connection.

    sshd drops connections at random while more than MaxStartups logins are in progress.
    """
    for pause in PAUSES_S:
        try:
            return await connect()
        except (OSError, asyncssh.Error) as error:
            if not is_dropped(error):
                raise
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - so that not all come again at once
    return await connect()
