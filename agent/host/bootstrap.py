"""Installs the agent's zipapp (a zip file that Python runs) on a host if the zipapp is missing, and then
replaces this program by the agent.

The controller sends the text of trusted_paths.py and of this file to a Python process on the host
(controller/nodes/agent/zipapp.py). This process has no other modules of Corral. Each answer to the controller
is a line that begins with a random word, because the login shell may print other lines.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from typing import Sequence

from wire.trusted_paths import UntrustedPath, open_directory, open_file

KEPT = 5
"""The number of versions of the zipapp that are kept on the host. If the controller is downgraded to one of
these versions, the zipapp need not be sent again.
"""
_STALE_S = 3_600.0


def receive_agent(word: Sequence[str], name: str, size: int, digest: str, home: str) -> None:
    """Replace this program by the zipapp `home`/agents/`name`; if `home` is empty, it is ~/.corral. If the
    zipapp is missing or damaged, first receive it from the controller. If a step fails, send the reason to
    the controller.

    `word` has the parts of the random word with which every answer begins. The parts are separate, because a
    terminal may echo the command line, and the controller would mistake an echoed line with the whole word
    for an answer.
    """
    os.umask(0o077)
    try:
        home = home or os.path.join(os.path.expanduser("~"), ".corral")
        folder = os.path.join(home, "agents")
        for each in (home, folder):
            os.close(open_directory(each, make=True))
        path = os.path.join(folder, name)
        if not _is_complete(path, digest):
            _write_answer(word, "wants", "")
            _receive(os.path.join(folder, f".{''.join(word)}"), path, size)
            _delete_old(folder, name)
        _write_answer(word, "ready", home)
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-X", "utf8", path, "-"])  # noqa: S606
    except UntrustedPath as error:
        _write_answer(word, "failed", str(error))
    except OSError as error:
        _write_answer(word, "failed", f"{error.filename or home}: {error.strerror}")


def _write_answer(word: Sequence[str], what: str, detail: str) -> None:
    """Write an answer to the controller on a separate line. The answer begins with a newline, because the
    login shell may have printed an incomplete line.
    """
    os.write(1, f"\n{''.join(word)} {json.dumps([what, detail])}\n".encode("ascii"))


def _is_complete(path: str, digest: str) -> bool:
    try:
        with open(open_file(path), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == digest
    except (FileNotFoundError, UntrustedPath):
        return False


def _receive(new: str, path: str, size: int) -> None:
    """Read `size` bytes from stdin, which are the zipapp, write them to the file `new`, and rename the file
    to `path`. Because of the rename, another process may install the same zipapp at the same time.
    """
    try:
        data = sys.stdin.buffer.read(size)
        if len(data) < size:
            sys.exit("the connection was closed during the upload of the agent")
        with open(new, "wb") as file:
            file.write(data)
        os.rename(new, path)
    finally:
        if os.path.lexists(new):
            os.unlink(new)


def _delete_old(folder: str, wanted: str) -> None:
    """Delete old versions of the zipapp, and uploads that began more than an hour ago and were not completed.
    The version `wanted` and the newest KEPT versions stay.
    """
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
