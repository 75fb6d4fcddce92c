"""The exceptions for inputs that this controller does not take."""

from __future__ import annotations


class Stopping(Exception):
    """Raised in the caller whose input arrives while the controller shuts down."""


class NotLeading(Exception):
    """Raised for an input to a controller that does not lead. `leads` says whether another one does."""

    def __init__(self, *, leads: bool) -> None:
        super().__init__("another controller leads" if leads else "no controller leads")
        self.leads = leads
