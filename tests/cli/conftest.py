"""Runs the command line of Corral as a separate process, and as a function."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.fake_controller import FakeController, opened
from tests.programs import run_corral

Corral = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeController]:
    """A fake controller for the commands."""
    yield from opened(tmp_path / "fake.sock")


@pytest.fixture
def corral(tmp_path: Path) -> Corral:
    """Run corral in an empty directory, without any controller except the one at `url`."""

    def run(*words: str, url: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CORRAL_", "XDG_"))}
        home = {"HOME": str(tmp_path), "TZ": "UTC", "CORRAL_URL": url or f"unix://{tmp_path}/nobody.sock"}
        return run_corral(*words, environment={**kept, **home, **environment}, place=tmp_path)

    return run
