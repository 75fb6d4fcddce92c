"""Commands on API tokens."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass
from controller.core.model.inputs.input import Input
from controller.core.model.tokens import TokenRecord


@dataclass(frozen=True, slots=True)
class CreateToken(Input):
    """Add a token. A user may have at most `most` tokens."""

    token: TokenRecord
    most: int = 100


@dataclass(frozen=True, slots=True)
class RevokeToken(Input):
    """Remove a token. Later requests with the token are refused."""

    id: str
    by: str
