"""The links that sign a browser in to corral web. A link can be used once."""

from __future__ import annotations

import secrets
from typing import Final

KEPT: Final = 100


class SignInLinks:
    """The token of the link that can be used now, and the cookies of the browsers that have used a link.

    Invariant: one token is valid at any time. A used token is void, so a link in the history of a browser,
    in a log or in a screenshot does not sign in another browser. At most KEPT browsers are signed in; another
    browser replaces the one that signed in first.
    """

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self._cookies: list[str] = []

    def redeem(self, token: str) -> str | None:
        """Return a new cookie value for the browser that sent `token`, and replace the token. Return None if
        the token is wrong or was used before.
        """
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return None
        self.token = secrets.token_urlsafe(32)
        cookie = secrets.token_urlsafe(32)
        self._cookies = [*self._cookies, cookie][-KEPT:]
        return cookie

    def known(self, cookie: str) -> bool:
        """Return whether this server has given out the cookie."""
        return any(secrets.compare_digest(cookie.encode(), each.encode()) for each in self._cookies)
