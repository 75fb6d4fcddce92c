"""What the outside can do to the store, as three exceptions with a sentence and a remedy."""

from __future__ import annotations


class StoreFailure(Exception):
    """Something outside failed: `message` says what and where, `hint` what to do next."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class StoreRefused(StoreFailure):
    """The store cannot be opened as it stands; nothing was changed."""


class StoreFull(StoreFailure):
    """There is no room: nothing was written, and the same commit may be tried again."""


class StoreBroken(StoreFailure):
    """Whether the last commit is durable is unknown; open the store anew and load what it holds."""
