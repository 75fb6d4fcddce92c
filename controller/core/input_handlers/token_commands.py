"""Handles the commands on API tokens: create and revoke."""

from __future__ import annotations

from controller.core.input_handlers.context import Context
from controller.core.model.decision.decision import DONE, Refusal, Reply
from controller.core.model.events.access import TokenCreated, TokenRevoked
from controller.core.model.inputs import access_inputs
from controller.core.model.tokens import FORGET_S

BY_CONTROLLER = ""


class TokenCommands:
    """Handles the commands on API tokens. The API has checked the rights of the caller before."""

    def __init__(self, context: Context) -> None:
        self._state = context.state
        self._record = context.record

    def create(self, given: access_inputs.CreateToken, now: float) -> Reply:
        """Add a token, and remove tokens that expired long ago."""
        token, tokens = given.token, self._state.tokens.by_id
        if token.id in tokens:
            return Refusal("conflict", f"there is a token {token.id} already", "id")
        own = [each for each in tokens.values() if each.user == token.user and each.is_valid(now)]
        if len(own) >= given.most:
            return Refusal(
                "conflict",
                f"{token.user} has {len(own)} tokens already, and at most {given.most} are allowed",
                "name",
                "Revoke one: corral token revoke ID. [access] tokens_per_user sets the limit.",
            )
        for each in list(tokens.values()):
            if each.expires_at is not None and each.expires_at + FORGET_S < now:
                self._record(TokenRevoked(now, each.id, each.user, each.name, BY_CONTROLLER))
        self._record(TokenCreated(now, token))
        return DONE

    def revoke(self, given: access_inputs.RevokeToken, now: float) -> Reply:
        """Revoke a token: it is removed and no longer accepted."""
        token = self._state.tokens.by_id.get(given.id)
        if token is None:
            return Refusal("not_found", "there is no such token", "token", "corral token list shows all.")
        self._record(TokenRevoked(now, token.id, token.user, token.name, given.by))
        return DONE
