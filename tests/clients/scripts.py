"""Runs the scripts that use programs written for Slurm, each with a Python that has its packages.

CORRAL_CLIENTS names the Pythons, separated by ':', because not all clients can be installed together.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from tests.limits import PATIENCE_S

PYTHONS = tuple(filter(None, os.environ.get("CORRAL_CLIENTS", "").split(os.pathsep))) or (sys.executable,)


@cache
def _missing(python: str, modules: tuple[str, ...]) -> str:
    """The first of these modules that this Python does not have."""
    for module in modules:
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
            return module
    return ""


def run(slurm: SlurmFace, script: Path, modules: tuple[str, ...], *arguments: str) -> str:
    """The output of a script, or a skip if no Python has all modules that it uses."""
    python = next((each for each in PYTHONS if not _missing(each, modules)), None)
    if python is None:
        missing = _missing(PYTHONS[0], modules)
        pytest.skip(f"{missing} is not installed; see tests/clients/requirements.txt and CORRAL_CLIENTS")
    folder = os.path.dirname(os.path.abspath(python))
    user = pwd.getpwuid(os.getuid()).pw_name
    environment = {
        # The home directory has the files of the clients, and tasks import the script that they are in.
        "HOME": str(slurm.place),
        "LOGNAME": user,
        "USER": user,
        "PYTHONPATH": str(script.parent),
        "PATH": f"{slurm.commands}{os.pathsep}{folder}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [python, str(script), *arguments],
        cwd=slurm.place,
        env={**slurm.environment, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        # because clients start several processes, which takes long on a busy host
        timeout=PATIENCE_S * 3,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
