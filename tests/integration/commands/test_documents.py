"""Every command in README.md and docs/*.md runs on a live cluster, and every table of TOML is read.

A block that cannot run here has a mark in the document that says why. The number of marks is stated below, so
that a new one is noticed.
"""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pip._vendor import certifi

from cli.spec.submitter_environment import submitter
from cli.workloads.workload_file import workload_of
from controller.registry import check_config
from tests.document_blocks import HOME, Block, blocks
from tests.limits import PATIENCE_S
from tests.programs import run_corral
from tests.receivers import hook
from tests.systems import System, system
from wire.job.spec import JobSpec
from wire.names import JobState

BLOCKS = blocks()
NOT_RUN = 38
"""The number of blocks that no test runs here."""
SAVES = (
    "mkdir -p $CORRAL_CHECKPOINT_DIR; trap 'echo 1 > $CORRAL_CHECKPOINT_DIR/1' USR1; "
    "sleep 3600 & while :; do wait; done"
)
"""A job that runs until it is ended, and saves a checkpoint at SIGUSR1."""
ABOUT_JOBS = re.compile(r"corral (job|logs|explain|why|cancel|exec|attach)|scancel|scontrol|sacct")
JOB_NUMBER = re.compile(r"(?<=[ =])(\d+)(_[\d\[\]-]+)?(?=[ ;]|$)")


class Reader:
    """A person with a cluster who types the commands of the documents, in a directory with the files that the
    documents name.
    """

    def __init__(self, system: System) -> None:
        self.system = system
        self.place = system.place / "reader"
        self.jobs: dict[str, int] = {}
        """The jobs of this cluster by their numbers in the document."""
        tools = self.place / "tools"
        tools.mkdir(parents=True)
        for path in ("home", "backup", "bin"):
            (self.place / path).mkdir()
        (self.place / "home" / ".corral-token").touch(0o600)
        shutil.copytree(HOME / "examples", self.place / "examples")
        training = self.place / "examples/train.py"
        assert "default=1.0" in training.read_text()  # seconds of computing for each epoch
        training.write_text(training.read_text().replace("default=1.0", "default=0.05"))
        shutil.copy(certifi.where(), self.place / "ca.pem")
        corral = f'#!/bin/sh\nexec {sys.executable} -P -m cli "$@"\n'
        for name, text in {
            "tools/corral": corral,
            "tools/nvidia-smi": "#!/bin/sh\necho H100\n",
            "launch.sh": "#!/bin/sh\npython train.py\n",
            "solver": "#!/bin/sh\necho solved\n",
        }.items():
            (self.place / name).write_text(text)
            (self.place / name).chmod(0o755)
        for name in ("python", "python3"):
            (tools / name).symlink_to(sys.executable)
        self.tidy()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CORRAL_")},
            "CORRAL_URL": f"unix://{system.socket}",
            "HOME": str(self.place / "home"),
            "XDG_CONFIG_HOME": str(self.place / "home" / ".config"),
            "PATH": f"{tools}:{self.place / 'bin'}:{os.environ['PATH']}",
        }
        self.run("corral slurm install /usr/local/bin")

    def tidy(self) -> None:
        """Put the files back that the commands of a block may have changed."""
        for name, source in {
            "scheduler.toml": self.system.config,
            "other.toml": self.system.config,
            "lab.toml": HOME / "examples/lab.toml",
            "jobs.csv": HOME / "examples/gpu-jobs.csv",
        }.items():
            shutil.copy(source, self.place / name)
        (self.place / "log.swf.gz").write_bytes(gzip.compress((HOME / "examples/small.swf").read_bytes()))
        (self.place / "train.py").write_text("print('trained')\n")
        (self.place / "train.sh").write_text("#!/bin/sh\npython train.py\n")

    def run(self, command: str) -> None:
        """Run one command as a reader would. It must succeed."""
        command = self.here(command)
        if command.startswith("corral admin restore"):
            self.system.stop()
            try:
                self.finish(command)
            finally:
                self.system.start()
        else:
            self.finish(command)

    def finish(self, command: str) -> None:
        """Run a command to its end."""
        plain = re.search(r"[<>|&;$~*]|--pty", command) is None and command.startswith("corral ")
        if plain:
            done = run_corral(*shlex.split(command)[1:], environment=self.environment, place=self.place)
        else:
            done = subprocess.run(
                # `script` gives the command a terminal.
                ["script", "-qec", command, "/dev/null"]
                if "--pty" in command
                else ["/bin/sh", "-c", command],
                cwd=self.place,
                env=self.environment,
                input="exit\n",
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"

    def here(self, command: str) -> str:
        """Replace paths and numbers of the document by those of this cluster."""
        for path, ours in {
            "/run/corral/corral.sock": self.system.socket,
            "/usr/local/bin": self.place / "bin",
            "/backup/": f"{self.place}/backup/",
        }.items():
            command = command.replace(path, str(ours))
        if command.startswith("corral workload") and " 1" in command:
            return command.replace(" 1", f" {self.workload(command.split()[2])}", 1)
        if command.startswith("corral sim generate"):
            return f"{command} --days 0.1"
        if ABOUT_JOBS.match(command) is None:
            return command
        follows = " -f " in f"{command} "
        return JOB_NUMBER.sub(lambda found: self.job(found[1], found[2] or "", ends=follows), command)

    def job(self, number: str, element: str, *, ends: bool) -> str:
        """Return the job of this cluster that stands for a job of the document. It is an array if the
        document names an element, and it runs until the test ends unless it `ends`.
        """
        name = f"{number} ends" if ends else number
        if name not in self.jobs:
            spec = JobSpec(
                ("/bin/sh", "-c", "#!/bin/sh\n" + ("echo done" if ends else SAVES)),
                batch=True,
                array="0-9" if element else None,
                cpu_milli=100,
                memory_mib=16,
                time_limit_s=3_600.0,
                checkpoint_signal="" if ends else "USR1",
                workdir=str(self.place),
                env={"PATH": self.environment["PATH"]},
            )
            with self.system.client() as client:
                ids = client.submit(spec).ids
            self.system.await_jobs(ids, JobState.COMPLETED if ends else JobState.RUNNING)
            self.jobs[name] = ids[0]
        return f"{self.jobs[name]}{element}"

    def workload(self, order: str) -> int:
        """Return the workload of this cluster to which the document gives this order: one that runs until
        it is cancelled, one that has failed, or the last one.
        """
        if order in ("cancel", "retry"):
            command = "sleep 600" if order == "cancel" else "false"
            file = self.place / f"{order}.toml"
            file.write_text(f'[tasks.one]\ncommand = "{command}"\ncpus = 0.1\nmemory = "16M"\n')
            number = int(self.system.corral("workload", "submit", str(file)))
            if order == "retry":
                run_corral("workload", "wait", str(number), environment=self.environment)
            return number
        with self.system.client() as client:
            return max((each.id for each in client.workloads(everything=True).workloads), default=1)

    def turn_page(self) -> None:
        """Forget the jobs of the document and end them. Delete its backups, because several documents make a
        backup of the same name.
        """
        if self.jobs:
            self.system.corral("job", "cancel", "all")
            self.jobs.clear()
        for backup in (self.place / "backup").iterdir():
            backup.unlink()


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with hook() as receiver, system("gpu01", "gpu02", "gpu03", "gpu04") as made:
        sections: dict[str, Any] = {
            "controller": {"socket": str(made.socket), "state_dir": str(made.state)},
            "projects": {"default": {}, "vision": {"members": ["ada"]}, "llm": {}},
            "queues": {"default": {}, "batch": {}, "short": {"wait_target_s": 900.0}},
            "profiles": {"training": {"queues": ["batch"]}},
            "services": {"web": {"user": "root", "command": ["sleep", "600"], "replicas": 2}},
            "notify": {
                "sinks": {
                    "ops": {"kind": "webhook", "url": receiver.url},
                    "mail": {"kind": "smtp", "host": "localhost", "port": 9, "sender": "corral@example.org"},
                }
            },
        }
        made.sections.update(sections)
        yield Reader(made.start())


@pytest.mark.parametrize("document", sorted({block.document for block in BLOCKS if block.kind == "shell"}))
def test_the_commands_of_a_document_run(document: str, reader: Reader) -> None:
    reader.turn_page()
    wrong = []
    for block in BLOCKS:
        if block.document == document and block.kind == "shell" and not block.mark:
            reader.tidy()
            for command in block.commands:
                try:
                    reader.run(command)
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    wrong.append(f"{block}: {error}")
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.kind == "toml"], ids=str)
def test_the_tables_of_a_document_are_read(block: Block, tmp_path: Path) -> None:
    text = "\n".join(block.lines)
    if "[tasks" not in text:
        check_config(None, text)
    else:
        (tmp_path / "sweep.toml").write_text(text)
        spec = workload_of(str(tmp_path / "sweep.toml"), {}, submitter())
        assert [task.name for task in spec.tasks] == ["prepare", "train", "evaluate"]


def test_few_blocks_are_not_run() -> None:
    marks = [f"{block}: {block.mark}" for block in BLOCKS if block.mark]
    assert len(marks) == NOT_RUN, "\n".join(marks)
    assert all(block.kind == "shell" for block in BLOCKS if block.mark)
