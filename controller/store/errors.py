"""The failures of a store, each with a sentence and a remedy."""

from __future__ import annotations


class StoreFailure(Exception):
    """A failure outside the controller. `message` says what and where, `hint` what to do next."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class StoreRefused(StoreFailure):
    """The store cannot be opened. Nothing was changed."""


class StoreUnavailable(StoreFailure):
    """The store takes no writes now. The cause may pass by itself."""

    trouble = "held up"
    adrift = False
    """Whether it is unknown if the last commit is durable. Then the state is not valid until a resume."""


class StoreFull(StoreUnavailable):
    """The disk is full. Nothing was written, and the same commit may be tried again."""

    trouble = "disk full"


class StoreLocked(StoreUnavailable):
    """Another program has locked the database. Nothing was written."""

    trouble = "database locked"


class StoreAway(StoreUnavailable):
    """The database server is away, or this controller may not write to it any more."""

    trouble = "database away"
    adrift = True


class StoreBroken(StoreFailure):
    """It is unknown whether the last commit is durable. The store must be opened and loaded again."""
