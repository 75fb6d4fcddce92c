"""A fake NVML library for the real pynvml: tests/agent/nvml.c, compiled once, and the file that sets its
answers."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_SOURCE = Path(__file__).parent / "nvml.c"


@functools.cache
def library() -> Path:
    """A directory with the fake libnvidia-ml.so.1; skips the test without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    folder = Path(tempfile.mkdtemp(prefix="corral-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1")]
    subprocess.run([*command, str(_SOURCE)], check=True)
    return folder


class FakeNvml:
    """The answers of the library. `fake_nvml.set_answers(busy=88, gpu=0)` changes them under a running
    probe."""

    def __init__(self, place: Path, **host: object) -> None:
        self.file = place / "nvml"
        self._settings: dict[str, str] = {}
        self._xids = 0
        self.set_answers(**host)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make pynvml load the library, and the library read this file."""
        return {"LD_LIBRARY_PATH": str(library()), "CORRAL_TEST_NVML": str(self.file)}

    def set_answers(self, gpu: int | None = None, **words: object) -> None:
        """Set answers; None removes one."""
        for name, value in words.items():
            key = name if gpu is None else f"{gpu}.{name}"
            self._settings.pop(key, None)
            if value is not None:
                self._settings[key] = str(value)
        self._write()

    def xid(self, gpu: int, code: int) -> None:
        """Raise an Xid event for the processes that wait for one now."""
        self._xids += 1
        self._settings.update({"xids": str(self._xids), f"xid.{self._xids}": f"{gpu}:{code}"})
        self._write()

    def _write(self) -> None:
        # In one step: the library reads at any moment.
        fresh = self.file.with_suffix(".new")
        fresh.write_text("".join(f"{key} {value}\n" for key, value in self._settings.items()))
        os.replace(fresh, self.file)


def uuid(index: int) -> str:
    """The UUID of this GPU in the library."""
    return f"GPU-00000000-0000-0000-0000-0000000000{index:02}"
