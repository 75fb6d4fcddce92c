"""Follows the output of a job in a thread, and converts the output to lines without colours and control
characters.
"""

from __future__ import annotations

import codecs
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from wire.http.client import Client, Refused, Unreachable
from wire.text import printable

TAIL_BYTES: Final = 4 << 20
"""At most this number of bytes, from the end of a log, is fetched. The beginning of a longer log
is left out.
"""

KEPT_LINES: Final = 50_000
LONGEST_LINE: Final = 4_000
RETRY_S: Final = 2.0

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")


def clean(line: str) -> str:
    """Return a line of a log without escape sequences for colours and cursor movements. If carriage returns
    overwrite text, as in a progress bar, return only the last text. A very long line is cut.
    """
    bare = _ESCAPES.sub("", line.rstrip("\r"))
    return printable(bare.rsplit("\r", 1)[-1].expandtabs(8), LONGEST_LINE)


@dataclass(frozen=True)
class Piece:
    """The lines of a log that have arrived since the last call of `LogTail.take`. If `fresh` is true, these
    lines replace all earlier ones. `open_end` is the beginning of the last line if its end has not arrived
    yet; otherwise empty.
    """

    fresh: bool
    lines: tuple[str, ...]
    open_end: str
    note: str
    over: bool
    from_begin: bool = False
    """True if all lines from the beginning of the log have arrived, so that no line is left out."""


class LogTail:
    """Follows stdout or stderr of one job until the output ends or `stop` is called."""

    def __init__(
        self, connect: Callable[[], Client], job: int, stream: str, wake: Callable[[], None]
    ) -> None:
        self._connect, self._job, self._stream, self._wake = connect, job, stream, wake
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._client: Client | None = None
        self._quiet = True
        self._lines: list[str] = []
        self._rest = ""
        self._bytes = 0
        """The number of bytes that have arrived since the log was opened."""
        self._fresh, self._note, self._ended = True, "", False

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"log-{self._job}", daemon=True).start()

    def stop(self) -> None:
        """Tell the thread to end, without waiting for its end."""
        self._over.set()
        if self._client is not None:
            self._client.close()

    def take(self) -> Piece:
        with self._lock:
            whole = self._bytes < TAIL_BYTES
            piece = Piece(self._fresh, tuple(self._lines), clean(self._rest), self._note, self._ended, whole)
            self._lines, self._fresh, self._quiet = [], False, True
        return piece

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._client = self._connect()
                self._follow(self._client)
                return
            except Refused as error:
                self._add_note(error.problem.message, ended=True)
                return
            except Unreachable as error:
                self._add_note(error.why)
            self._over.wait(RETRY_S)

    def _follow(self, client: Client) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        with self._lock:
            self._lines, self._rest, self._fresh, self._note, self._bytes = [], "", True, "", 0
        for data in client.logs(self._job, stream=self._stream, follow=True, offset=-TAIL_BYTES):
            if self._over.is_set():
                return
            self._bytes += len(data)
            self._add(decode(data))
        self._add_note("", ended=True)

    def _add(self, text: str) -> None:
        with self._lock:
            *whole, self._rest = (self._rest + text).split("\n")
            self._rest = self._rest[-4 * LONGEST_LINE :]
            self._lines.extend(clean(line) for line in whole)
            del self._lines[:-KEPT_LINES]
        self._nudge()

    def _add_note(self, note: str, ended: bool = False) -> None:
        with self._lock:
            self._note, self._ended = note, ended
        self._nudge()

    def _nudge(self) -> None:
        with self._lock:
            wake, self._quiet = self._quiet, False
        if wake and not self._over.is_set():
            self._wake()
