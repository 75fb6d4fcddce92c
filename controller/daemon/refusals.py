"""The exceptions for inputs that this controller does not take."""

from __future__ import annotations


class Stopping(Exception):
    """Raised in the caller whose input arrives while the controller shuts down."""


class NotLeading(Exception):
    """Raised for an input to a controller that does not lead. `address` is the URL of the leader; empty if no
    controller leads at present.
    """

    def __init__(self, address: str) -> None:
        super().__init__(f"the leader is {address or 'not known'}")
        self.address = address
