"""The calls about access: the caller, tokens and the audit log."""

from __future__ import annotations

from wire.api.service.access import (
    AuditPage,
    LoginAnswer,
    LoginOffer,
    LoginRequest,
    TokenList,
    TokenMade,
    TokenRequest,
    TokenView,
    WhoAmI,
)
from wire.http.calls.api_calls import ApiCalls, quoted


class AccessCalls(ApiCalls):
    def whoami(self) -> WhoAmI:
        return self._get(WhoAmI, "/v1/whoami")

    def login_offer(self) -> LoginOffer:
        """Return the identity provider at which people log in. No token is needed."""
        return self._get(LoginOffer, "/v1/login")

    def login(self, request: LoginRequest) -> LoginAnswer:
        """Make a session from an ID token of the identity provider. No token is needed."""
        return self._post(LoginAnswer, "/v1/login", request)

    def audit(self, after: int = 0, limit: int = 1_000) -> AuditPage:
        """Return the entries of the audit log after number `after`."""
        return self._get(AuditPage, "/v1/audit", [("after", after), ("limit", limit)])

    def tokens(self) -> TokenList:
        """Return the tokens of the caller; for admins, all tokens."""
        return self._get(TokenList, "/v1/tokens")

    def create_token(self, request: TokenRequest) -> TokenMade:
        return self._post(TokenMade, "/v1/tokens", request)

    def revoke_token(self, token: str) -> TokenView:
        return self._post(TokenView, f"/v1/tokens/{quoted(token)}/revoke")
