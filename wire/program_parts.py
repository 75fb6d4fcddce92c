"""Builds the commands that start the parts of Corral that run as processes of their own, such as the agent.

A part is a module with a function that reads sys.argv. There are two ways to start a part:
1. With Python: `python -c CODE HOME …`. CODE puts HOME, which holds the packages of Corral, on the import
   path and calls the function. Unlike `python -m`, this imports nothing from the working directory.
2. From a frozen program (one that contains its own Python): `corral --corral-part MODULE …`, because there
   sys.executable is Corral itself and has no option -c. The frozen program calls `run_part`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Optional, Sequence

from wire.dataclass import dataclass

FLAG = "--corral-part"
HOME = str(Path(__file__).absolute().parents[1])
"""The directory or zip file that contains the packages of Corral."""


@dataclass(frozen=True)
class Part:
    """A part of Corral. The function `function` of `module` takes no arguments, and returns an exit code or
    None.

    If `isolated` is True, Python ignores its environment variables, and imports only Corral and its standard
    library.
    """

    module: str
    function: str = "main"
    isolated: bool = False

    def command(self, *words: str, python: str = "") -> list[str]:
        """Return the command that starts this part with the arguments `words`. `python` is the path of the
        Python interpreter; if empty, the interpreter of this process is used.
        """
        if is_frozen() and not python:
            return [sys.executable, FLAG, self.module, *words]
        options = ["-I", "-S", "-X", "utf8"] if self.isolated else []
        return [python or sys.executable, *options, "-c", self._code(), HOME, *words]

    def _code(self) -> str:
        home = "sys.argv.pop(1)"
        # Without -I, the first entry of sys.path is the working directory, in which a user may have put
        # modules. So replace this entry.
        path = f"sys.path.append({home})" if self.isolated else f"sys.path[0] = {home}"
        return f"import sys; {path}; from {self.module} import {self.function}; sys.exit({self.function}())"


AGENT = Part("agent.__main__")
COMMAND_IN_JOB = Part("agent.interactive.exec_child", isolated=True)
COMMAND_LINE = Part("cli.main")
CONTROLLER = Part("controller.__main__", "run_with_arguments")
FORK_SERVER = Part("agent.supervisor.fork_server", isolated=True)
GPU_PROBE = Part("agent.gpus.nvml_probe")
STORE_CHECK = Part("controller.store.__main__")
TASK_HOST = Part("agent.steps.task_host", isolated=True)
PARTS = (AGENT, COMMAND_IN_JOB, COMMAND_LINE, CONTROLLER, FORK_SERVER, GPU_PROBE, STORE_CHECK, TASK_HOST)


def is_frozen() -> bool:
    """Return whether this program contains its own Python, so that sys.executable is the program itself."""
    return bool(getattr(sys, "frozen", False))


def run_part(words: Sequence[str]) -> Optional[int]:
    """Run the part that the arguments of a frozen program name (`--corral-part MODULE …`), and return its
    exit code.
    """
    from importlib import import_module

    part = next((part for part in PARTS if [part.module] == list(words[1:2])), None)
    if part is None:
        raise SystemExit(f"corral: {FLAG} is used by Corral itself; it names no part: {' '.join(words[1:2])}")
    sys.argv[1:] = words[2:]
    code: Optional[int] = getattr(import_module(part.module), part.function)()
    return code
