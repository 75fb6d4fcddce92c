"""An aiohttp server with a limit on the number of connections, which sends every error as JSON
(`Problem`)."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from controller.api.server.errors import refusal_response
from controller.api.server.identity import Identity, peer_uid
from controller.core.model.decision.decision import Refusal

IDLE_S = 20.0
"""A connection is closed if no complete request head arrives within this many seconds after the connection
was opened, or after the last answer.
"""

STALLED_S = 30.0
"""Seconds after which a client that does not read is disconnected, even in the middle of a stream."""

LINGER_S = 1.0
"""Seconds for which the server reads the rest of a refused request body. Many clients read the answer only
after sending the whole body.
"""

PATIENCE = 64
"""The most refused connections that may be open at a time. A refused connection stays open until its first
request is answered with an error. Further refused connections are closed without an answer.
"""


def connection_limit(wanted: int) -> int:
    """Return the most connections that may be open at a time: `wanted`, but at most half of the file
    descriptors that the process may open.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if allowed == resource.RLIM_INFINITY else max(1, min(wanted, allowed // 2))


class ConnectionLimit:
    """Counts the open connections of each user, and decides which new connections are accepted.

    1. Root and the controller's user are always accepted on the unix socket, where the kernel reports the
       uid.
    2. Any other user, and all TCP clients together, may have at most half of the connections.
    3. The user of a TCP connection is unknown until a request with the API token arrives. If TCP connections
       already use their half, a new TCP connection replaces the oldest TCP connection that has sent no token.
       So clients without the token replace only connections of each other: a client with the token sends it
       long before its connection is the oldest.
    4. Of the TCP connections that have sent no token, at most `per_address` may come from one address.
    5. All other connections are refused. At most PATIENCE refused connections at a time are open and get an
       error as the answer; further refused connections are closed at once.

    Cost: O(1) for each connection.
    """

    def __init__(self, identity: Identity, most: int, per_address: int = 100_000) -> None:
        self._identity = identity
        self._most = most
        self._per_address = per_address
        self._of_address: Counter[str] = Counter()
        """The number of TCP connections that have sent no token, by address."""
        self._open: Counter[int | None] = Counter()
        self._without_token: dict[Connection, None] = {}
        """TCP connections that have not sent the API token, the oldest first."""
        self.refused_open = 0

    def enter(self, connection: Connection) -> bool:
        """Count a new connection, and return True. Return False if the connection must be refused, because
        the limit is reached.
        """
        uid = connection.uid
        if uid is None and self._of_address[connection.address] >= self._per_address:
            self.refused_open += 1
            return False
        if self._is_full(uid):
            oldest = next(iter(self._without_token), None) if uid is None else None
            if oldest is None:
                self.refused_open += 1
                return False
            self.leave(oldest)
            oldest.accepted = None
            oldest.force_close()
        self._open[uid] += 1
        if uid is None:
            self._without_token[connection] = None
            self._of_address[connection.address] += 1
        return True

    def closes_at_once(self, uid: int | None) -> bool:
        """Return whether a new connection of this uid would be closed at once, without an answer."""
        return uid is not None and self.refused_open > PATIENCE and self._is_full(uid)

    def _is_full(self, uid: int | None) -> bool:
        full = self._open.total() >= self._most or self._open[uid] >= max(1, self._most // 2)
        return full and not self._identity.privileged(uid)

    def note_token(self, connection: Connection) -> None:
        """Record that a request with the API token has arrived on this TCP connection. New connections then
        cannot replace this connection.
        """
        if connection in self._without_token:
            del self._without_token[connection]
            self._of_address[connection.address] -= 1
            if not self._of_address[connection.address]:
                del self._of_address[connection.address]

    def leave(self, connection: Connection) -> None:
        """Remove a closed connection from the count. A second call does nothing."""
        if connection.accepted is False:
            self.refused_open -= 1
        elif connection.accepted:
            self.note_token(connection)
            self._open[connection.uid] -= 1
            if not self._open[connection.uid]:
                del self._open[connection.uid]


class Connection(web.RequestHandler):
    """One connection of a client. `uid` is the client's user, or None on TCP."""

    __slots__ = ("_limit", "_stalled", "accepted", "address", "uid")

    def __init__(self, manager: web.Server, limit: ConnectionLimit, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._limit = limit
        self._stalled: asyncio.TimerHandle | None = None
        self.uid: int | None = None
        self.address = ""
        """The IP address of the client; empty on a unix socket."""
        self.accepted: bool | None = True
        """False if the connection was refused. Its first request is then answered with an error.

        None if the connection was closed to make room for a newer TCP connection.
        """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find the uid of the client, and accept or refuse the connection."""
        self.uid = peer_uid(transport.get_extra_info("socket"))
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self.accepted = self._limit.enter(self)
        super().connection_made(transport)
        if not self.accepted and self._limit.refused_open > PATIENCE:
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the timer that pause_writing() started, and remove the connection from the count."""
        super().connection_lost(exc)
        self._cancel_timer()
        self._limit.leave(self)

    def note_token(self) -> None:
        self._limit.note_token(self)

    def pause_writing(self) -> None:
        """Start a timer that closes the connection if the client does not read for STALLED_S seconds."""
        super().pause_writing()
        transport = self.transport
        if transport is not None and self._stalled is None:
            self._stalled = asyncio.get_running_loop().call_later(STALLED_S, transport.abort)

    def resume_writing(self) -> None:
        """Cancel the timer that would close the connection, because the client reads again."""
        super().resume_writing()
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,  # noqa: ARG002
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that is not valid HTTP with a JSON body (Problem). aiohttp itself would send plain
        text and log an error.
        """
        if request.writer.output_size:
            # A part of the answer is already sent. Close the connection, so that the client notices that the
            # rest is missing.
            raise ConnectionResetError
        reason = (message or str(exc) or "").partition("\n")[0].rstrip(":")
        response = refusal_response(Refusal("invalid", f"this is not a request in HTTP: {reason}"))
        response.force_close()
        return response


class Connections(web.Server):
    """The aiohttp server. It makes a Connection object for each accepted socket."""

    def __init__(
        self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], limit: ConnectionLimit
    ) -> None:
        super().__init__(handle, handler_cancellation=True)
        self._limit = limit

    def closes_at_once(self, uid: int | None) -> bool:
        return self._limit.closes_at_once(uid)

    def __call__(self) -> Connection:
        return Connection(
            self,
            self._limit,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=IDLE_S,
            lingering_time=LINGER_S,
            access_log=None,
            auto_decompress=False,
        )
