"""Opens the HTTP connections of an engine at its first request."""

from __future__ import annotations

import aiohttp


class HttpSession:
    """The connections of one engine. They are opened at the first request, because an engine is made before
    the event loop runs. The number of connections has no limit here: each call of an HTTP function holds one.
    """

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    def get(self) -> aiohttp.ClientSession:
        """Return the open session."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout())
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
