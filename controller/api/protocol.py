"""aiohttp's server with a door: so many connections and no more, and every answer a Problem of ours."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from controller.api.errors import refuse
from controller.api.identity import Identity, peer_uid
from controller.core.inputs import Refusal

IDLE_S = 20.0
"""A connection that has not brought a whole request head for so long is closed."""

STALLED_S = 30.0
"""Who leaves what was sent untaken for so long is cut off, in the middle of a log or a stream too."""

LINGER_S = 1.0
"""So long what is left of a refused body is read and thrown away, so that the answer can be read."""

PATIENCE = 64
"""So many who found no room are told so; more are cut off without a word."""


def room(wanted: int) -> int:
    """How many connections there are descriptors for, if half of these are left to agents and files."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if allowed == resource.RLIM_INFINITY else max(1, min(wanted, allowed // 2))


class Door:
    """Counts who is in. One user, and all of TCP, get at most half of the room; admins get in in any case."""

    def __init__(self, identity: Identity, room: int) -> None:
        self._identity = identity
        self._room = room
        self._inside: Counter[int | None] = Counter()
        self.turned_away = 0

    def enter(self, uid: int | None) -> bool:
        """Count somebody in; False if there is no room for him."""
        mine = self._inside[uid]
        full = self._inside.total() >= self._room or mine >= max(1, self._room // 2)
        if full and not self._identity.privileged(uid):
            return False
        self._inside[uid] = mine + 1
        return True

    def leave(self, uid: int | None) -> None:
        """Count somebody out."""
        self._inside[uid] -= 1
        if not self._inside[uid]:
            del self._inside[uid]


class Connection(web.RequestHandler):
    """One connection, with the uid at its other end (None on TCP)."""

    __slots__ = ("_door", "_stalled", "uid", "welcome")

    def __init__(self, manager: web.Server, door: Door, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._door = door
        self._stalled: asyncio.TimerHandle | None = None
        self.uid: int | None = None
        self.welcome = True
        """False if there was no room: told in answer to the first request, while that does no harm."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look who it is, and whether there is room."""
        self.uid = peer_uid(transport.get_extra_info("socket"))
        self.welcome = self._door.enter(self.uid)
        self._door.turned_away += not self.welcome
        super().connection_made(transport)
        if self._door.turned_away > PATIENCE:
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Make room for somebody else."""
        super().connection_lost(exc)
        self._taken()
        if self.welcome:
            self._door.leave(self.uid)
        else:
            self._door.turned_away -= 1

    def pause_writing(self) -> None:
        """The other end is not reading: not for ever."""
        super().pause_writing()
        transport = self.transport
        if transport is not None and self._stalled is None:
            self._stalled = asyncio.get_running_loop().call_later(STALLED_S, transport.abort)

    def resume_writing(self) -> None:
        """The other end has read."""
        super().resume_writing()
        self._taken()

    def _taken(self) -> None:
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
        """Not HTTP, or an answer that failed halfway; aiohttp would answer in text, and log it as a fault."""
        if request.writer.output_size:
            # The connection breaks, so that nobody takes half an answer for a whole one.
            raise ConnectionResetError
        told = (message or str(exc) or "").partition("\n")[0].rstrip(":")
        response = refuse(Refusal("invalid", f"this is not a request in HTTP: {told}"))
        response.force_close()
        return response


class Connections(web.Server):
    """Makes connections for aiohttp."""

    def __init__(
        self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], door: Door
    ) -> None:
        super().__init__(handle, handler_cancellation=True)
        self._door = door

    def __call__(self) -> Connection:
        """A protocol for one new connection."""
        return Connection(
            self,
            self._door,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=IDLE_S,
            lingering_time=LINGER_S,
            access_log=None,
            auto_decompress=False,
        )
