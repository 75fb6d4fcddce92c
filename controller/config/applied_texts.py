"""Stores the texts of the present and the previous configuration, so that an operator can undo a change."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


class AppliedTexts:
    """The two files with the texts of the present and the previous configuration, in a directory of mode
    0700.

    Only the controller's user may read these files, because they may contain a database password.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._current, self._previous = directory / "current.toml", directory / "previous.toml"

    def keep(self, text: str) -> None:
        """Store the text of a configuration that was just applied. The text stored before becomes the text of
        the previous configuration.
        """
        if _read(self._current) == text:
            return
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._current.replace(self._previous)
        replace_text(self._current, text)

    def previous(self) -> str | None:
        """Return the text of the previous configuration; None if no second text was ever applied."""
        return _read(self._previous)


def replace_text(path: Path, text: str) -> None:
    """Replace a file atomically. The file keeps its owner and mode; a new file gets mode 0600."""
    path = path.resolve()  # If the path is a symbolic link, replace the file that the link points to.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            with contextlib.suppress(FileNotFoundError):
                was = path.stat()
                os.fchmod(file.fileno(), was.st_mode & 0o7777)
                if os.geteuid() == 0:
                    os.fchown(file.fileno(), was.st_uid, was.st_gid)
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
