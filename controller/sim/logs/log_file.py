"""Reads a log file line by line. The file may be compressed with gzip."""

from __future__ import annotations

import enum
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from controller.sim.errors import SimulationRefused

_GZIP = b"\x1f\x8b"
_GLANCE = 1 << 12


class LogRefused(SimulationRefused):
    """Raised if a log cannot be used. The message names the file and the reason, and the line if one line is
    the reason; `hint` is the remedy.
    """

    def __init__(self, where: str, message: str, hint: str = "", line: int | None = None) -> None:
        super().__init__(f"{where}: {message}" if line is None else f"{where}: line {line}: {message}", hint)


class LogFormat(enum.Enum):
    """The file formats of job logs that can be read."""

    SWF = "swf"
    CSV = "csv"
    JSON = "json"


class LogFile:
    """A job log that is open for reading. Iteration yields the number and the text of each line.

    The code that parses the lines calls broken() for each invalid line.
    """

    def __init__(self, path: Path, *, skip_bad: bool = False) -> None:
        self.name = str(path)
        self.bad: list[tuple[int, str]] = []
        """The line number and the error of each skipped line."""
        self._skip_bad = skip_bad
        self._at = 0
        self._file = path.open("rb")
        packed = self._file.peek(len(_GZIP)).startswith(_GZIP)
        self._bytes = gzip.GzipFile(fileobj=self._file) if packed else self._file

    def __enter__(self) -> LogFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def form(self) -> LogFormat:
        """Return the format of the file, which is guessed from its first line. Call this before iterating
        over the lines."""
        with self._unpacking():
            glance = self._bytes.peek(_GLANCE)[:_GLANCE]
        first = glance.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
        if first.startswith((b"{", b"[")):
            return LogFormat.JSON
        table = b"," in first or b"submit" in first.lower()
        return LogFormat.CSV if table and not first.startswith(b";") else LogFormat.SWF

    def __iter__(self) -> Iterator[tuple[int, str]]:
        # Decode as utf-8-sig to skip a byte order mark. Replace undecodable bytes, because comments in some
        # logs contain them.
        text = io.TextIOWrapper(self._bytes, encoding="utf-8-sig", errors="replace")
        with self._unpacking():
            for self._at, line in enumerate(text, 1):
                yield self._at, line

    @contextmanager
    def _unpacking(self) -> Iterator[None]:
        try:
            yield
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            message = f"the gzip archive is damaged behind line {self._at} ({error})"
            raise LogRefused(self.name, message, "Fetch or pack the file again.") from None

    def broken(self, line: int, why: str) -> None:
        """Record that the line is invalid for the reason `why`. Raise LogRefused if invalid lines must not be
        skipped.
        """
        if not self._skip_bad:
            raise LogRefused(
                self.name, why, "Correct the line, or skip all invalid lines with --skip-bad.", line
            )
        self.bad.append((line, why))
