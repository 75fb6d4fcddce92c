"""Finds the programs of emulators, which are installed outside of the repository."""

from __future__ import annotations

import os
import shutil

import pytest


def emulator(program: str) -> str:
    """Return the path of an emulator's program, from the directories in CORRAL_EMULATORS (in the form of
    PATH) or in PATH. Skip the test if there is none.
    """
    path = os.pathsep.join(filter(None, (os.environ.get("CORRAL_EMULATORS"), os.environ.get("PATH"))))
    found = shutil.which(program, path=path)
    if found is None:
        pytest.skip(f"{program} is neither in CORRAL_EMULATORS nor in PATH")
    return found
