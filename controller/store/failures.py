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


class StoreHeldUp(StoreFailure):
    """The store takes nothing for now; what keeps it from that may pass by itself."""

    trouble = "held up"
    adrift = False
    """Is it unknown whether the last commit is durable? Then nothing counts until the store is resumed."""


class StoreFull(StoreHeldUp):
    """There is no room: nothing was written, and the same commit may be tried again."""

    trouble = "disk full"


class StoreLocked(StoreHeldUp):
    """Another program has the database for itself: nothing was written."""

    trouble = "database locked"


class StoreAway(StoreHeldUp):
    """The server is not there, or not ours to write to, any more."""

    trouble = "database away"
    adrift = True


class StoreBroken(StoreFailure):
    """Whether the last commit is durable is unknown; open the store anew and load what it holds."""
