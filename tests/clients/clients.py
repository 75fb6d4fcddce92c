"""Programs written for Slurm, and a directory with Slurm's commands for them.

The programs are not requirements of Corral. tests/clients/requirements.txt says how to install them;
CORRAL_CLIENTS names the Pythons of their environments, separated by ':'.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.limits import PATIENCE_S
from tests.programs import run_corral
from tests.systems import System, system


def needs(program: str) -> pytest.MarkDecorator:
    """Skip the test if this program is not installed."""
    found = shutil.which(program, path=_search_path())
    return pytest.mark.skipif(found is None, reason=f"needs {program}: tests/clients/requirements.txt")


def _search_path() -> str:
    pythons = filter(None, os.environ.get("CORRAL_CLIENTS", "").split(os.pathsep))
    folders = [os.path.dirname(os.path.abspath(python)) for python in pythons]
    return os.pathsep.join([*folders, os.environ["PATH"]])


@dataclass(frozen=True)
class ClientPlace:
    """A cluster with Slurm's commands, and the directory in which a client runs."""

    cluster: System
    place: Path
    environment: Mapping[str, str]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a client to its end."""
        return subprocess.run(
            words,
            cwd=self.place,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S * 2,
        )


@contextmanager
def client_place(place: Path) -> Iterator[ClientPlace]:
    """Start a cluster with the queue gpu, and install Slurm's commands."""
    with system("n1", "n2") as cluster:
        node = {"gpus": "simulated:4xA100", "cpus": 16, "memory": "100000M", "run_as_self": True}
        cluster.sections["nodes"] = {"n1": dict(node), "n2": dict(node)}
        cluster.sections["cluster"] = {"name": "emu"}
        cluster.sections["queues"] = {"gpu": {}}
        cluster.start()
        run_corral("slurm", "install", str(place / "commands"), check=True)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CORRAL_", "SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "PYTEST_", "COV_"))
        }
        path = f"{place / 'commands'}{os.pathsep}{_search_path()}"
        environment = {**kept, "PATH": path, "CORRAL_URL": f"unix://{cluster.socket}", "HOME": str(place)}
        work = place / "work"
        work.mkdir()
        yield ClientPlace(cluster, work, environment)
