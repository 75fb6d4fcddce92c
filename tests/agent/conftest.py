"""Every test has its own spool directory. All processes that it started are killed afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent_process import AgentProcess, end_all


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def run(spool: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Starts agents on the spool directory, and waits for their hellos."""
    agents: list[AgentProcess] = []

    def begin(*options: str, **how: Any) -> AgentProcess:
        agents.append(AgentProcess(spool, *options, **how))
        agents[-1].hello()
        return agents[-1]

    yield begin
    for agent in agents:
        agent.process.kill()
        agent.wait_exit()
    end_all(spool)


def oldest_python() -> str | None:
    """A Python 3.9, named by CORRAL_PYTHON39 or found in PATH, that really starts."""
    for candidate in (os.environ.get("CORRAL_PYTHON39"), shutil.which("python3.9")):
        if candidate and _is_39(candidate):
            return candidate
    return None


def _is_39(python: str) -> bool:
    command = [python, "-c", "import sys; print(sys.version_info[:2])"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() == "(3, 9)"


@pytest.fixture(params=["this", "3.9"])
def python(request: pytest.FixtureRequest) -> str:
    """The interpreters an agent must run on."""
    if request.param == "this":
        return sys.executable
    found = oldest_python()
    if found is None:
        pytest.skip("no Python 3.9 here; name one with CORRAL_PYTHON39")
    return found
