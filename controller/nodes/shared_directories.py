"""Checks whether directories have the same content on a host and on the controller's machine."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from wire.api.nodes import Check


@contextmanager
def marker_files(folders: Sequence[str]) -> Iterator[tuple[list[str], list[Check]]]:
    """Create a file with a random name in each directory, and remove the files at the end of the `with`
    block.

    Yield the paths of the files, and a failed check for each directory in which the controller cannot create
    a file. If the agent on a host finds one of the files, the host shares the directory.
    """
    made: list[str] = []
    lacking: list[Check] = []
    for folder in folders:
        path = os.path.join(folder, f".corral-{secrets.token_hex(16)}")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            os.close(descriptor)
            made.append(path)
        except OSError as error:
            why = f"{folder} cannot be compared: the controller cannot write there ({error.strerror})"
            lacking.append(Check("shared", "note", why, "Mount it on the controller's machine as well."))
    try:
        yield made, lacking
    finally:
        for path in made:
            with suppress(OSError):
                os.unlink(path)
