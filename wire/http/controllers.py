"""Sends requests to one of several controllers: the leader, or a standby for read requests while no
leader answers.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Generator, Iterator, Optional, Sequence, TypeVar, Union

from wire.http.transport import LeaderElsewhere, Refused, Transport, Unreachable

T = TypeVar("T")
PATIENCE_S = 20.0
"""Seconds for which a request is repeated while no controller leads. A take-over takes up to 10 s."""
PAUSE_S = 0.3


class Controllers:
    """The controllers of one cluster, used like one Transport.

    1. Send the request to the controller that has answered last, at first to the first address.
    2. If it is a standby, it refuses a change and answers a read request. Send a change to the leader that
       the standby names. If the user has given several addresses, also send a read request to that leader; if
       the leader does not answer, use the answer of the standby.
    3. If the controller does not answer, and if the request can be repeated without harm, try the next
       address.
    4. If no controller leads, wait and begin again, for at most PATIENCE_S seconds.

    If the user has given several addresses, requests are sent only to them. If the user has given one
    address, a leader with another address gets a request only if the client has no token, or if the address
    is https and the client has pinned a certificate authority: then no other server can get the token.
    Without this rule, a controller that names a loopback address would make the client send its token to a
    program on the client's own host.

    Example: the addresses are https://head1:7070 and https://head2:7070, and head1 has failed. A submit is
    tried at head1 (no connection), then at head2, which refuses it because no controller leads yet. Eight
    seconds later head2 leads and accepts it. The idempotency key of the submit prevents a second job.
    """

    def __init__(
        self,
        urls: Sequence[str],
        connect: Callable[[str], Transport],
        *,
        token: bool,
        pinned: bool = False,
    ) -> None:
        self._connect = connect
        self._has_token = token
        self._pinned = pinned
        self._urls = [*urls]
        self._given = len(urls)
        self._transports: dict[str, Transport] = {}
        self._current = self._urls[0]
        self._closed = threading.Event()
        self.what_if = ""
        """The id of the what-if answer that the user saw before the next request; empty if there is none."""
        for url in urls:
            # Create the transport now, to raise Unreachable at once for an address that is no URL.
            self._transport(url)

    @property
    def url(self) -> str:
        """Return the URL of the controller to which the next request is sent."""
        return self._current

    def ask(
        self,
        method: str,
        target: str,
        body: Optional[bytes],
        pauses: Sequence[float],
        *,
        question: bool,
        more_s: float = 0.0,
    ) -> bytes:
        """Send the request like Transport.ask, to the leader if the request needs the leader."""
        return self._try(
            lambda there: there.ask(method, target, body, pauses, question=question, more_s=more_s)
        )

    def listen(self, target: str, silence_s: Optional[float]) -> Iterator[bytes]:
        """Yield the body of the answer like Transport.listen. If the connection is lost later, the next call
        begins with the next address.
        """

        def begin(there: Transport) -> tuple[bytes, Generator[bytes, None, None]]:
            pieces = there.listen(target, silence_s)
            return next(pieces, b""), pieces

        first, pieces = self._try(begin)
        try:
            yield first
            yield from pieces
        except Unreachable:
            self._next()
            raise
        finally:
            pieces.close()

    def close(self) -> None:
        """Close all connections. A thread that waits for an answer then gets Unreachable."""
        self._closed.set()
        for transport in list(self._transports.values()):
            transport.close()

    def decode_answer(self, kind: type[T], answer: bytes) -> T:
        """Return the answer decoded as `kind`. Raise Unreachable if the answer does not match this type."""
        return self._transport(self._current).decode_answer(kind, answer)

    def _try(self, work: Callable[[Transport], T]) -> T:
        deadline = time.monotonic() + PATIENCE_S
        failed: dict[str, Exception] = {}
        """The addresses at which the request failed since the last pause, each with the error."""
        older: Optional[T] = None
        while True:
            there = self._transport(self._current)
            there.what_if = self.what_if
            try:
                answer = work(there)
            except (Unreachable, LeaderElsewhere) as failure:
                if older is not None:
                    return older
                failed[self._current] = failure
                if isinstance(failure, Unreachable) and not failure.repeatable:
                    self._next()
                    raise
                self._choose(failure, failed, deadline)
                continue
            # Ask the leader again, because a standby may not know the latest changes yet. Keep the answer of
            # the standby, because the leader may not answer.
            if not there.leader or older is not None or self._given == 1 or not self._go_to(there.leader):
                return answer
            older = answer

    def _choose(
        self, failure: Union[Unreachable, LeaderElsewhere], failed: dict[str, Exception], deadline: float
    ) -> None:
        """Choose the address for the next try. If all addresses have failed and a controller may become the
        leader soon, wait first. Raise the failure if the request cannot be tried again.
        """
        named = failure.address if isinstance(failure, LeaderElsewhere) else ""
        if named and named not in failed and self._go_to(named):
            return
        self._next()
        if self._current not in failed:
            return
        standbys = [each for each in failed.values() if isinstance(each, LeaderElsewhere)]
        waits = any(not each.address or each.address in failed for each in standbys)
        if not waits or time.monotonic() > deadline or self._closed.wait(PAUSE_S):
            if standbys:
                raise Refused(503, standbys[0].problem) from None
            raise failure
        failed.clear()

    def _go_to(self, address: str) -> bool:
        """Send the next request to the leader at this address, if this is allowed. Return whether it is."""
        if not address or address == self._current:
            return False
        if address not in self._urls:
            safe = not self._has_token or (address.startswith("https:") and self._pinned)
            if self._given > 1 or not safe:
                return False
            self._urls.append(address)
        self._current = address
        return True

    def _next(self) -> None:
        """Send the next request to the next of the given addresses."""
        given = self._urls[: self._given]
        at = given.index(self._current) if self._current in given else -1
        self._current = given[(at + 1) % len(given)]

    def _transport(self, url: str) -> Transport:
        if url not in self._transports:
            self._transports[url] = self._connect(url)
        return self._transports[url]
