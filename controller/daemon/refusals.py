"""The exceptions for inputs that this controller does not take."""

from __future__ import annotations


class Stopping(Exception):
    """Raised in the caller of an input that arrives while the controller shuts down, or that is lost because
    the main loop has failed.
    """


class NotLeading(Exception):
    """Raised for an input to a controller that does not lead. `leads` is True if another controller leads."""

    def __init__(self, *, leads: bool) -> None:
        super().__init__("another controller leads" if leads else "no controller leads")
        self.leads = leads
