"""What runs first on a host: takes the agent's file in where it is not, and becomes the agent.

The controller sends this as text to a Python that has nothing else of ours. It says each thing on a line with
a word of its own, for a login may print things as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from typing import Sequence

KEPT = 5
"""An old agent's file is needed no more once it runs, but whoever goes back a version need not wait."""
_STALE_S = 3_600.0


def arrive(word: Sequence[str], name: str, size: int, digest: str, home: str) -> None:
    """Become the agent called `name`, kept below `home`, or below ~/.corral; else say what is in the way.

    The word comes in parts, so that what only echoes its input does not say it.
    """
    os.umask(0o077)
    try:
        home = home or os.path.join(os.path.expanduser("~"), ".corral")
        folder = os.path.join(home, "agents")
        os.makedirs(folder, 0o700, exist_ok=True)
        place = os.path.join(folder, name)
        if not _is_whole(place, digest):
            _say(word, "wants", "")
            _take_in(os.path.join(folder, f".{''.join(word)}"), place, size)
            _tidy(folder, name)
        _say(word, "ready", home)
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-X", "utf8", place, "-"])  # noqa: S606
    except OSError as error:
        _say(word, "failed", f"{error.filename or home}: {error.strerror}")


def _say(word: Sequence[str], what: str, detail: str) -> None:
    """On a line of its own, whatever stands on the one before."""
    os.write(1, f"\n{''.join(word)} {json.dumps([what, detail])}\n".encode("ascii"))


def _is_whole(place: str, digest: str) -> bool:
    try:
        with open(place, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == digest
    except FileNotFoundError:
        return False


def _take_in(fresh: str, place: str, size: int) -> None:
    """There whole or not at all, whoever else does the same now."""
    try:
        data = sys.stdin.buffer.read(size)
        if len(data) < size:
            sys.exit("the line broke while the agent's file came in")
        with open(fresh, "wb") as file:
            file.write(data)
        os.rename(fresh, place)
    finally:
        if os.path.lexists(fresh):
            os.unlink(fresh)


def _tidy(folder: str, wanted: str) -> None:
    """Files of versions long gone go, and what nobody finished."""
    found = []
    for entry in os.scandir(folder):
        try:
            found.append((entry.stat().st_mtime, entry.name))
        except OSError:
            continue
    found.sort(reverse=True)
    kept = [name for _, name in found if name.endswith(".pyz")][:KEPT]
    for changed, name in found:
        old = name.endswith(".pyz") and name not in (wanted, *kept)
        if old or (name.startswith(".") and changed < time.time() - _STALE_S):
            try:
                os.unlink(os.path.join(folder, name))
            except OSError:
                continue
