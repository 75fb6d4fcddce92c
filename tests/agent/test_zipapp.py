"""The agent as one file, as it is pushed to hosts: every Python from 3.9 on, and nothing installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from controller.nodes.agent.zipapp import bundle
from wire.agent.frames import pack, unpack
from wire.agent.orders import Leave, Start
from wire.agent.reports import Report


def interpreter(version: str) -> str | None:
    """A Python of this version, found in PATH or where pyenv has them, that really starts."""
    installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for candidate in (shutil.which(f"python{version}"), *map(str, installed)):
        asked = [candidate or "", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if candidate and subprocess.run(asked, capture_output=True, text=True).stdout.strip() == version:
            return candidate
    return None


@pytest.fixture(params=["3.9", "3.10", "3.11", "3.12", "3.13"])
def command(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The command with which a host starts the zipapp."""
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"no Python {request.param} here")
    place = tmp_path / bundle().name
    place.write_bytes(bundle().data)
    return [python, "-I", "-S", "-X", "utf8", str(place), "-"]


def options(spool: Path, *more: str) -> bytes:
    return json.dumps(["--name", "gpu01", "--spool", str(spool), "--run-as-self", *more]).encode() + b"\n"


def test_agent_runs_from_one_file(command: list[str], tmp_path: Path, spool: Path) -> None:
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdin.write(options(spool) + pack(Start(1, 1, ("sh", "-c", "exit 5"), "somebody", 1, 1)))
        agent.stdin.flush()
        frames = map(unpack, agent.stdout)
        codes = (frame.status.code for frame in frames if isinstance(frame, Report) and frame.status.ended_at)
        assert next(codes) == 5
        agent.stdin.write(pack(Leave()))
        agent.stdin.flush()
        assert agent.wait() == 0


def test_check_reports_the_host(command: list[str], tmp_path: Path, spool: Path) -> None:
    asked = options(spool, "--check", "--gpus", "simulated:2xH100")
    done = subprocess.run(command, cwd=tmp_path, input=asked, capture_output=True, check=True)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["GPUs"]["found"].startswith("2 × ")
    assert {"Python", "user", "spool", "disk", "CPUs", "NUMA", "cgroups"} <= checks.keys()
    assert all(check["verdict"] in ("ok", "note") for check in checks.values())


@pytest.mark.parametrize("command", [f"{sys.version_info[0]}.{sys.version_info[1]}"], indirect=True)
def test_unusable_spool_is_refused(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    asked = options(tmp_path / "file" / "spool", "--check")
    done = subprocess.run(command, cwd=tmp_path, input=asked, capture_output=True, check=True)
    [spool] = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "spool"]
    assert (spool["verdict"], spool["remedy"][:4]) == ("failed", "Name")
