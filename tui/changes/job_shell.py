"""Runs `corral attach` and `corral exec` in the terminal of the terminal UI."""

from __future__ import annotations

import os
import signal
import subprocess

from textual.app import SuspendNotSupported

from tui.app_interface import AppInterface
from wire.api.jobs import JobView
from wire.program_parts import COMMAND_LINE
from wire.text import printable


def run_in_job(app: AppInterface, job: JobView, words: tuple[str, ...]) -> str:
    """Run a command in a running job; without `words`, run a shell. Return the reason if this is not
    possible; otherwise an empty text.

    1. Restore the terminal, because the command uses it.
    2. Run `corral exec` or `corral attach` in another process, so that no thread of this program reads the
       terminal afterwards.
    3. After a command, wait for Enter, so that the user can read the output. Then show the terminal UI again.
    """
    verb = ("exec", job.label, "--", *words) if words else ("attach", job.label)
    environment = {**os.environ, "CORRAL_URL": app.url}
    try:
        with app.suspend():
            print(f"$ corral {printable(' '.join(verb), 200)}", flush=True)
            # Ctrl+C and Ctrl+\\ are for the command, and must not end the terminal UI. Set a handler that
            # does nothing instead of SIG_IGN, because the command would inherit SIG_IGN.
            before = {each: signal.signal(each, _ignore) for each in (signal.SIGINT, signal.SIGQUIT)}
            try:
                done = subprocess.run(COMMAND_LINE.command(*verb), env=environment, check=False)
                if words or done.returncode:
                    print(f"exit code {done.returncode}; Enter returns to the terminal UI", flush=True)
                    input()
            except (EOFError, OSError) as error:
                return f"the command did not run: {error}"
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
    except SuspendNotSupported:
        return f"this screen has no terminal: use corral {printable(' '.join(verb), 200)} in a shell"
    app.refresh_view()
    return ""


def _ignore(_number: int, _frame: object) -> None:
    """Do nothing."""
