"""A running Corral of two nodes with Slurm's commands in a directory, as 'corral slurm install' puts them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.slurm.programs import PROGRAMS
from tests.limits import PATIENCE_S
from tests.programs import run_corral, run_slurm
from tests.systems import System, system

Finished = subprocess.CompletedProcess[str]


class SlurmFace:
    """Slurm's commands for one cluster, and the directory from which a test submits."""

    def __init__(self, cluster: System, commands: Path, place: Path) -> None:
        self.cluster = cluster
        self.place = place
        self.commands = commands
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("CORRAL_", "SLURM_"))
        }
        path = f"{commands}:{kept['PATH']}"
        self.environment = {**kept, "PATH": path, "CORRAL_URL": f"unix://{cluster.socket}"}

    def run(self, *words: str, stdin: str = "", **environment: str) -> Finished:
        """Run one of the commands, or another program, to its end."""
        wanted = {**self.environment, **environment}
        if words[0] in PROGRAMS:
            return run_slurm(*words, environment=wanted, place=self.place, stdin=stdin)
        return subprocess.run(
            words,
            cwd=self.place,
            env=wanted,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def submit(self, *words: str, **more: str) -> int:
        """The id of a job that sbatch submits."""
        done = self.run("sbatch", "--parsable", *words, **more)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def output(self, job: int, file: str = "slurm-{}.out") -> str:
        """The output file of a job, once the job has ended."""
        self.cluster.await_jobs([job])
        return (self.place / file.format(job)).read_text()

    def script(self, name: str, text: str) -> str:
        """A script in the directory of the test."""
        (self.place / name).write_text(text)
        return name


@pytest.fixture(scope="module")
def cluster() -> Iterator[System]:
    """One cluster for the tests of a module, because its start takes longer than most of them."""
    with system("n1", "n2") as started:
        yield started.start()


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with Slurm's commands."""
    place = tmp_path_factory.mktemp("slurm") / "bin"
    run_corral("slurm", "install", str(place), check=True)
    return place


@pytest.fixture
def slurm(cluster: System, commands: Path, tmp_path: Path) -> SlurmFace:
    """Slurm's commands in an empty directory."""
    return SlurmFace(cluster, commands, tmp_path)
