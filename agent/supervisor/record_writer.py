"""Writes the facts of an attempt to its record, and sends them to the agent as hints."""

from __future__ import annotations

import os
import time

from agent.attempts import attempt_record

RETRY_S = 0.5


class RecordWriter:
    """The locked record of an attempt, and the FIFO on which the agent reads hints.

    A fact is written to the record before its hint is sent. Hints may be lost: the next agent reads the
    record.
    """

    def __init__(self, directory: str, key: str, hints: int) -> None:
        self._key = key
        self._hints = hints
        self._record = os.open(f"{directory}/record", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._end = 0
        """Offset in the record at which the next fact is written."""
        self._pending_hint = b""

    def lock(self) -> bool:
        """Lock the record until this process exits. Return False if another supervisor has locked it."""
        return attempt_record.lock_record(self._record)

    def read(self) -> list[list[str]]:
        """Return the facts in the record. The next fact is written after these facts."""
        content = attempt_record.read_record(self._record)
        self._end = len(content)
        return attempt_record.decode_facts(content)

    @property
    def hint_pending(self) -> bool:
        """Return whether a hint did not fit into the FIFO and must be sent again."""
        return bool(self._pending_hint)

    def write(self, line: bytes) -> None:
        """Append a line to the record. Repeat a failed write until it succeeds, because the agent relies on
        the record.
        """
        while True:
            try:
                os.pwrite(self._record, line, self._end)
                break
            except OSError:
                time.sleep(RETRY_S)
        self._end += len(line)

    def hint(self, *lines: bytes) -> None:
        """Send `*lines`, which are lines of the record, to the agent through its FIFO. Without arguments,
        send the lines that did not fit into the FIFO the last time.
        """
        hint = b"".join(self._key.encode() + b" " + line for line in lines) or self._pending_hint
        self._pending_hint = b""
        try:
            os.write(self._hints, hint)
        except BlockingIOError:
            self._pending_hint = hint
        except OSError:
            pass  # Ignore the error: it means that no agent runs now. The next agent reads the record.
