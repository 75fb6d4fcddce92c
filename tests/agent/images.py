"""A podman with its own store and a small test image made from programs of this machine: no registry."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

IMAGE = "localhost/corral-test:1"
PROGRAMS = ("true", "sh", "sleep", "cat", "env", "id", "pwd", "touch", "ls", "nproc", "kill", "tail", "head")
MANAGER = () if os.path.isdir("/run/systemd/system") else ("--cgroup-manager=cgroupfs",)


@functools.cache
def whatever_runs() -> str:
    """The low-level runtime that works on this kernel."""
    return "crun" if Path("/sys/fs/cgroup/cgroup.controllers").exists() and shutil.which("crun") else "runc"


@contextmanager
def place() -> Iterator[Path]:
    """A directory for a store, with a path of fewer than the 50 characters that podman bears."""
    with tempfile.TemporaryDirectory(prefix="corral-", dir="/tmp", ignore_cleanup_errors=True) as found:
        yield Path(found)


def podman(place: Path) -> tuple[str, ...]:
    """Podman with a store below this directory; skips the test if podman is not installed."""
    found = shutil.which("podman")
    if found is None or shutil.which(whatever_runs()) is None:
        pytest.skip("no podman here; 'apt-get install podman runc' brings it")
    store = ("--root", str(place / "store"), "--runroot", str(place / "run"), "--storage-driver", "vfs")
    return found, "--runtime", whatever_runs(), *store


def bring_image(command: tuple[str, ...], place: Path, prefix: tuple[str, ...] = ()) -> None:
    """Make the image and import it."""
    archive = place / "root.tar"
    pack(archive)
    archive.chmod(0o644)
    done = subprocess.run(
        [*prefix, *command, *MANAGER, "import", str(archive), IMAGE],
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ulimits = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
    plain = ("run", "--rm", "--network=host", "--pid=host", "--log-driver=none", *ulimits, IMAGE, "id")
    tried = subprocess.run(
        [*prefix, *command, *MANAGER, *plain], capture_output=True, text=True, cwd="/", check=False
    )
    if tried.returncode:
        pytest.skip(f"podman cannot run containers here: {tried.stderr.strip()[-300:]}")


def pack(archive: Path) -> None:
    """Write the root file system of the image: a shell and a few programs of this machine."""
    with tarfile.open(archive, "w") as tar:
        seen: set[str] = set()
        for name in PROGRAMS:
            program = shutil.which(name)
            assert program is not None
            _add(tar, seen, program, f"bin/{name}")
            told = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
            for library in re.findall(r"(/\S+)", told):
                _add(tar, seen, library, library.lstrip("/"))
        for folder in ("tmp", "proc", "sys", "dev", "etc", "home", "data"):
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(made)


def _add(tar: tarfile.TarFile, seen: set[str], path: str, name: str) -> None:
    if name not in seen:
        seen.add(name)
        tar.add(os.path.realpath(path), name)
