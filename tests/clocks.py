"""Hosts with a wrong or changing clock: their Python reads another time (tests/clock.c)."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = Path(__file__).parent / "clock.c"


class Clock:
    """`python` is the interpreter of such a host; its child processes see the same clock."""

    def __init__(self, place: Path, real: str) -> None:
        compiler, bash = shutil.which("gcc") or shutil.which("cc"), shutil.which("bash")
        if compiler is None or bash is None:
            pytest.skip("no C compiler here" if compiler is None else "no bash here")
        self._offset = place / "offset"
        library = place / "clock.so"
        offset_macro = f'-DOFFSET="{self._offset}"'
        command = [
            compiler,
            "-O1",
            "-Wall",
            "-shared",
            "-fPIC",
            offset_macro,
            "-o",
            str(library),
            str(_SOURCE),
        ]
        subprocess.run(command, check=True)
        self.python = place / "python3"
        self.python.write_text(
            f"#!{bash}\nexport LD_PRELOAD={shlex.quote(str(library))}\n"
            f'exec -a "$0" {shlex.quote(real)} "$@"\n'
        )
        self.python.chmod(0o755)
        self.set(0)

    def set(self, seconds: int) -> None:
        """Set the difference to the real time in seconds."""
        fresh = self._offset.with_suffix(".new")
        fresh.write_text(f"{seconds}\n")
        fresh.chmod(0o644)
        os.rename(fresh, self._offset)
