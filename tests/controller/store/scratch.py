"""Directories for stores in tests that do not concern durability."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = "/dev/shm"


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory if possible, because fsync costs nothing there."""
    parent = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="corral-", dir=parent) as directory:
        yield Path(directory)
