"""Copies text to the clipboard through tmux, because tmux by default ignores OSC 52, the escape sequence for
copying.
"""

from __future__ import annotations

import os
import subprocess
import threading


def copy_with_tmux(text: str) -> None:
    """Send the text to tmux, which copies the text to the clipboard of its terminal. Outside tmux, do
    nothing.
    """
    if os.environ.get("TMUX"):
        threading.Thread(target=_load, args=(text,), daemon=True).start()


def _load(text: str) -> None:
    try:
        subprocess.run(
            ["tmux", "load-buffer", "-w", "-"],
            input=text.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return  # Ignore a failure of tmux, because the caller also writes the OSC 52 sequence.
