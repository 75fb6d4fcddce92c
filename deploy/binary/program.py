"""Runs the frozen programs corral and corral-agent."""

from __future__ import annotations

import os
import sys

from wire.program_parts import FLAG, run_part

_HELPER = "from multiprocessing."
"""The beginning of the code that multiprocessing passes to its helper process."""


def main() -> int | None:
    _restore_environment()
    words = sys.argv[1:]
    if words[:1] == [FLAG]:
        return run_part(words)
    if os.path.basename(sys.executable) == "corral-agent":
        from agent.__main__ import main as run
    else:
        if words[:1] == ["--multiprocessing-fork"] or (words[-1:] and words[-1].startswith(_HELPER)):
            # For helper processes of `corral sim`, multiprocessing starts sys.executable, which is this
            # program. In such a process, freeze_support() does the work of the helper and exits.
            import multiprocessing

            multiprocessing.freeze_support()
        from cli.main import main as run
    return run()


def _restore_environment() -> None:
    """Undo the changes that the start of the frozen program made to the environment, because programs that
    Corral starts would inherit them.
    """
    program = os.environ.pop("CORRAL_PROGRAM", "")
    if program:
        sys.argv[0] = program
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    if before is not None:
        os.environ["LD_LIBRARY_PATH"] = before
    elif os.environ.get("LD_LIBRARY_PATH") == sys._MEIPASS:
        del os.environ["LD_LIBRARY_PATH"]
    for name in [name for name in os.environ if name.startswith("_PYI_")]:
        del os.environ[name]


if __name__ == "__main__":
    sys.exit(main())
