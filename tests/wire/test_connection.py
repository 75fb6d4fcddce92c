"""HTTP answers in all forms that servers and proxies use."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from wire.http.connection import Answer, InvalidAnswer


class Pieces:
    """A socket from which each call reads at most `size` bytes of `data`. At the end of `data`, the server
    has closed the connection.
    """

    def __init__(self, data: bytes, size: int) -> None:
        self.left = data
        self.size = size

    def recv(self, most: int) -> bytes:
        piece, self.left = self.left[: min(self.size, most)], self.left[min(self.size, most) :]
        return piece

    def close(self) -> None:
        self.left = b""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    with ours, theirs:
        yield ours, theirs


LONG = b"x" * 300
ANSWERS = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", False),
    "empty": (b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", b"", False),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", False),
    "closed at the end": (b"HTTP/1.1 200 OK\r\n\r\nhello", b"hello", True),
    "old version": (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", True),
    "close": (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nhi", b"hi", True),
    "interim": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi", False),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
        b"2\r\nhe\r\n3;note=1\r\nllo\r\n12C\r\n" + LONG + b"\r\n0\r\nTrailer: 1\r\n\r\n",
        b"hello" + LONG,
        False,
    ),
    "only newlines": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", b"hi", False),
}


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("form", ANSWERS)
def test_body_is_read_in_every_form_however_it_is_split(form: str, size: int) -> None:
    data, body, is_last = ANSWERS[form]
    answer = Answer(Pieces(data, size))  # type: ignore[arg-type]
    assert (answer.status in (200, 204), answer.read(), answer.is_last) == (True, body, is_last)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5_0\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nhe\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\n",
        b"HTTP/1.1 \xff00 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
    ],
)
def test_damaged_answer_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        Answer(Pieces(data, 1_000)).read()  # type: ignore[arg-type]


def test_part_of_a_chunk_is_delivered_before_the_chunk_is_complete(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe")
    answer = Answer(ours)
    assert answer.read_some() == b"he"
    theirs.sendall(b"llo\r\n0\r\n\r\n")
    assert answer.read() == b"llo"
