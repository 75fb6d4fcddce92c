"""Copies through tmux, which drops the OSC 52 escape sequence by default."""

from __future__ import annotations

import os
import subprocess
import threading


def tell_tmux(text: str) -> None:
    """Inside tmux, let tmux set the clipboard of its terminal; elsewhere do nothing."""
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
        return  # because OSC 52 has been written as well
