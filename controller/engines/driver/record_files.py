"""Stores records of an execution engine in files: attempts with their logs, and machines of pools."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from controller.config.applied_texts import replace_text
from controller.engines.driver.foreign_attempts import AttemptRecord
from wire import trusted_paths
from wire.codec import Malformed, decode, dumps, encode

Record = TypeVar("Record")
MOST_SETTLED = 2_000
"""The most settled attempts whose records and logs are kept."""
MOST_LOG_BYTES = 64 * 1024 * 1024
"""The most bytes that are kept of one log of an ended attempt."""


class RecordDirectory(Generic[Record]):
    """The records of one kind, each in a file of its own that is named after the record's tag or token. A
    file is replaced atomically and with fsync, so that it is never half written.
    """

    def __init__(self, directory: Path, kind: type[Record], advice: str) -> None:
        """`advice` says what an operator does with a damaged record."""
        self.directory = directory
        self._kind = kind
        self._advice = advice

    def prepare(self) -> None:
        """Make the directory. Raise UntrustedPath if another user can change it."""
        os.close(trusted_paths.open_directory(str(self.directory), make=True))

    def load(self) -> Iterator[Record]:
        """Yield all records, in the order of their names. Raise ValueError with the path of a record that is
        damaged.
        """
        with suppress(FileNotFoundError):
            for path in sorted(self.directory.glob("*.json")):
                try:
                    yield decode(self._kind, json.loads(path.read_text(encoding="utf-8")))
                except (Malformed, ValueError) as error:
                    raise ValueError(f"{path} is damaged: {error}. {self._advice}") from None

    def save(self, name: str, record: Record) -> None:
        """Write a record durably."""
        replace_text(self.directory / f"{name}.json", dumps(encode(record)))

    def delete(self, name: str) -> None:
        (self.directory / f"{name}.json").unlink(missing_ok=True)


class RecordFiles:
    """The directory of one engine: a file for each attempt, and the logs of ended attempts.

    1. A record is written with fsync before the first ask() of its attempt, so that a controller
       that is killed between the two steps finds the foreign job again by its tag.
    2. The logs of an attempt are written before its end is reported, because the engine may then remove them.
    3. Settled attempts are deleted, the oldest first, when there are more than MOST_SETTLED.

    Directory and files can be read by the controller's user alone, because orders contain environments.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._logs = directory / "logs"
        advice = "Look at the foreign job of this name in the engine, then move the file away"
        self._attempts = RecordDirectory(directory / "attempts", AttemptRecord, advice)
        self._drain = directory / "drained"

    def prepare(self) -> None:
        """Make the directories. Raise UntrustedPath if another user can change them."""
        for each in (self.directory, self._logs):
            os.close(trusted_paths.open_directory(str(each), make=True))
        self._attempts.prepare()

    def load(self) -> Iterator[AttemptRecord]:
        """Yield all records, as RecordDirectory.load does."""
        return self._attempts.load()

    def save(self, record: AttemptRecord) -> None:
        """Write a record durably."""
        self._attempts.save(record.tag, record)

    def delete(self, tag: str) -> None:
        """Delete the record and the logs of an attempt."""
        self._attempts.delete(tag)
        for path in self._logs.glob(f"{tag}.*"):
            path.unlink(missing_ok=True)

    def log_path(self, tag: str, stream: str) -> Path:
        return self._logs / f"{tag}.{stream}"

    def has_log(self, tag: str, stream: str) -> bool:
        """Return whether the log of an ended attempt was stored."""
        return self.log_path(tag, stream).exists()

    def save_log(self, tag: str, stream: str, data: bytes) -> None:
        """Write the log of an ended attempt, with mode 0600 from the first byte."""
        path = self.log_path(tag, stream)
        partial = path.with_name(f".{path.name}")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
        partial.replace(path)

    @property
    def drained(self) -> str:
        """The reason for which operators have drained the engine; empty if it is not drained."""
        try:
            return self._drain.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def save_drain(self, why: str) -> None:
        """Store the reason of a drain; an empty reason ends the drain."""
        if why:
            replace_text(self._drain, why)
        else:
            self._drain.unlink(missing_ok=True)


def live_records(directory: Path) -> int:
    """Return how many attempts of an engine may still have a foreign job, from the files in its directory."""
    return sum(record.ended_at is None and record.tried for record in RecordFiles(directory).load())
