"""Every test has a spool directory of its own; what it started is gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driving import Driven, end_all


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def run(spool: Path) -> Iterator[Callable[..., Driven]]:
    """Starts agents on the spool directory; each says hello before the test goes on."""
    agents: list[Driven] = []

    def begin(*options: str, **how: Any) -> Driven:
        agents.append(Driven(spool, *options, **how))
        agents[-1].hello()
        return agents[-1]

    yield begin
    for agent in agents:
        agent.process.kill()
        agent.gone()
    end_all(spool)


def oldest_python() -> str | None:
    """A Python 3.9, named by CORRAL_PYTHON39 or found in PATH, that really starts."""
    for candidate in (os.environ.get("CORRAL_PYTHON39"), shutil.which("python3.9")):
        if candidate and _is_39(candidate):
            return candidate
    return None


def _is_39(python: str) -> bool:
    asked = [python, "-c", "import sys; print(sys.version_info[:2])"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
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
