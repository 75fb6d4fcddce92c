from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.oracle.oracle import Oracle
from tests.systems import System, system

MIB = 1 << 20


@pytest.fixture
def build() -> Iterator[Callable[..., System]]:
    """Systems that are not started yet."""
    with ExitStack() as stack:
        yield lambda *nodes: stack.enter_context(system(*nodes))


@pytest.fixture
def oracle(build: Callable[..., System]) -> Oracle:
    """A running system of two nodes, with an oracle that checks its guarantees."""
    return Oracle(build("gpu01", "gpu02").start())


class SmallDisk:
    """A small file system for one test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Fill the disk completely."""
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4_096))
            except OSError:
                pass

    def drain(self) -> None:
        """Free the space again."""
        self._ballast.unlink()

    def remount(self, how: str) -> None:
        """Mount the file system again with the option `ro` or `rw`."""
        subprocess.run(["mount", "-o", f"remount,{how}", self.path], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=755", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        yield SmallDisk(tmp_path)
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)
