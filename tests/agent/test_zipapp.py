"""The agent as one file, as it is pushed to hosts: Python 3.9 and nothing installed."""

from __future__ import annotations

import shutil
import subprocess
import zipapp
from pathlib import Path

from tests.agent.driving import HERE
from wire.frames import Leave, Report, Start, pack, unpack


def test_one_file_is_enough(tmp_path: Path, spool: Path, python: str) -> None:
    source, target = tmp_path / "source", tmp_path / "agent.pyz"
    for package in ("agent", "wire"):
        shutil.copytree(HERE / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    zipapp.create_archive(source, target, main="agent.__main__:main")
    command = [
        python,
        "-I",
        "-S",
        str(target),
        "--name",
        "gpu01",
        "--spool",
        str(spool),
        "--gpus",
        "auto",
        "--run-as-self",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdin.write(pack(Start(1, 1, ("sh", "-c", "exit 5"), "somebody", 1, 1)))
        agent.stdin.flush()
        frames = map(unpack, agent.stdout)
        codes = (frame.status.code for frame in frames if isinstance(frame, Report) and frame.status.ended_at)
        assert next(codes) == 5
        agent.stdin.write(pack(Leave()))
        agent.stdin.flush()
        assert agent.wait() == 0
