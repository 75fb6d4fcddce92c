"""The API tokens that are valid, or that have expired and are still listed (`FORGET_S`)."""

from __future__ import annotations

from controller.core.model.tokens import TokenRecord


class Tokens:
    """The API tokens by id. `version` increases with each change of the tokens."""

    def __init__(self) -> None:
        self.by_id: dict[str, TokenRecord] = {}
        self.version = 0

    def add(self, token: TokenRecord) -> None:
        self.by_id[token.id] = token
        self.version += 1

    def remove(self, id: str) -> None:
        self.by_id.pop(id, None)
        self.version += 1
