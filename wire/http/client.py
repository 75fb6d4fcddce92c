"""The client of the HTTP API that the CLI and the TUI use. Each thread needs its own Client."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from wire.http.calls.access_calls import AccessCalls
from wire.http.calls.api_calls import JobName
from wire.http.calls.job_calls import JobCalls
from wire.http.calls.node_calls import NodeCalls
from wire.http.calls.policy_calls import PolicyCalls
from wire.http.calls.service_calls import ServiceCalls
from wire.http.transport import Refused, Unreachable

__all__ = ["Client", "JobName", "Refused", "Unreachable"]


class Client(AccessCalls, JobCalls, NodeCalls, PolicyCalls, ServiceCalls):
    """Sends requests to the controller, with one method for each endpoint of the API. Each method raises
    Unreachable if no controller answers, and Refused if the controller refuses the request.
    """

    @contextmanager
    def expecting(self, what_if: str) -> Iterator[None]:
        """Context manager for changes that a user confirmed after a what-if answer. `what_if` is the id of
        the answer, or an empty text. The controller refuses the changes if their effect has changed.
        """
        self._transport.what_if = what_if
        try:
            yield
        finally:
            self._transport.what_if = ""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
