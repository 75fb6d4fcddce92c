"""A controller of another version on a host with another clock: `python -m tests.takeovers.changed_controller
--place DIRECTORY --config FILE`.

The file `clock` in the directory has the seconds by which the host's clock is wrong, and `version` has the
version that the controller reports. Either file may be missing.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import controller.__main__
import controller.api.handlers.service.controllers
import controller.store.leader.lease

LOOK_S = 0.02


class HostClock:
    """The wrong clock of the host. It is read again from the file every LOOK_S seconds."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._real = time.time
        self._looked_at = float("-inf")
        self._wrong_s = 0.0

    def time(self) -> float:
        now = time.monotonic()
        if now > self._looked_at + LOOK_S:
            self._looked_at = now
            self._wrong_s = float(_read(self._file) or 0.0)
        return self._real() + self._wrong_s


def _read(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


def main() -> int:
    """The controller's own main."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", type=Path, required=True)
    parser.add_argument("--config")
    given = parser.parse_args()
    time.time = HostClock(given.place / "clock").time
    if version := _read(given.place / "version"):
        controller.store.leader.lease.VERSION = version
    return controller.__main__.main(given.config)


if __name__ == "__main__":
    sys.exit(main())
