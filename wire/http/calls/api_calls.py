"""Sends one request to the API and decodes the answer."""

from __future__ import annotations

import urllib.parse
from typing import Any, Iterable, Iterator, TypeVar, Union

from wire.codec import dumps, encode
from wire.http.opening import open_transport

T = TypeVar("T")
JobName = Union[str, int]
Query = list[tuple[str, Any]]

ONCE: tuple[float, ...] = ()
AGAIN = (0.0,)
KEYED = (0.0, 0.2, 1.0, 2.0)
"""How often a request is repeated after a lost connection: one number for each repetition, the seconds to
wait before it. ONCE is for changes, AGAIN for requests that change nothing, and KEYED for changes with an
idempotency key.
"""


class ApiCalls:
    """The base class of the API client. Each method raises Unreachable if no controller answers, and Refused
    if the controller refuses the request.
    """

    def __init__(
        self,
        url: str = "",
        *,
        timeout_s: float = 30.0,
        token: str = "",
        read_only: bool = False,
        ca: str = "",
    ) -> None:
        """With `read_only`, the controller refuses each request of this client that changes something. `ca`
        is a PEM file with certificate authorities, which replace those of the system.
        """
        self._transport = open_transport(url, timeout_s=timeout_s, token=token, read_only=read_only, ca=ca)
        self.url = self._transport.url
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Close all connections. A thread that waits in `stream` or `logs` then gets Unreachable."""
        self._transport.close()

    def _lines(self, kind: type[T], path: str) -> Iterator[T]:
        """Request `path`, and yield the decoded JSON objects of the answer, which has one object on each
        line.
        """
        rest = b""
        for piece in self._transport.listen(path, None):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield self._transport.decode_answer(kind, line)

    def _get(self, kind: type[T], path: str, query: Iterable[tuple[str, Any]] = (), more_s: float = 0.0) -> T:
        target = target_of(path, query)
        answer = self._transport.ask("GET", target, None, AGAIN, question=True, more_s=more_s)
        return self._transport.decode_answer(kind, answer)

    def _post(
        self,
        kind: type[T],
        path: str,
        body: Any = None,
        pauses: tuple[float, ...] = ONCE,
        *,
        question: bool = False,
        more_s: float = 0.0,
    ) -> T:
        data = None if body is None else dumps(encode(body)).encode("utf-8", "surrogatepass")
        answer = self._transport.ask("POST", path, data, pauses, question=question, more_s=more_s)
        return self._transport.decode_answer(kind, answer)


def target_of(path: str, query: Iterable[tuple[str, Any]]) -> str:
    text = urllib.parse.urlencode(list(query))
    return f"{path}?{text}" if text else path


def quoted(name: JobName) -> str:
    return urllib.parse.quote(str(name), safe="", errors="surrogatepass")
