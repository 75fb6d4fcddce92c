"""The errors of a store. Each has a sentence about the failure and a hint for the operator."""

from __future__ import annotations


class StoreFailure(Exception):
    """Raised if the store fails for a reason outside the controller, such as a full disk.

    `message` names the failure and the file or server, `hint` the remedy.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class StoreRefused(StoreFailure):
    """Raised if an operation on the store, such as opening the store, is refused. Nothing was changed."""


class StoreUnavailable(StoreFailure):
    """Raised if the store cannot be written now. The store may become writable again without an action of an
    operator.
    """

    trouble = "held up"
    adrift = False
    """True if it is unknown whether the last commit is durable. The state in the controller's memory is then
    invalid until Store.resume() has succeeded.
    """


class StoreFull(StoreUnavailable):
    """Raised if the disk is full. Nothing was written, so the same commit can be repeated."""

    trouble = "disk full"


class StoreLocked(StoreUnavailable):
    """Raised if another program has locked the database. Nothing was written."""

    trouble = "database locked"


class StoreAway(StoreUnavailable):
    """Raised if the database server does not answer, or if this controller may no longer write to the
    server."""

    trouble = "database away"
    adrift = True


class StoreBroken(StoreFailure):
    """Raised if the store is damaged, or if it is unknown whether the last commit is durable. The controller
    must be restarted."""


class StoreStale(StoreFailure):
    """Raised if another controller has become the leader. Nothing was written, and this controller must not
    act any more.
    """
