"""The tour of docs/tui.md, followed in `corral demo` in a real terminal."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.tui.test_end_to_end import Terminal
from tests.tui.tour import steps


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_the_tour_shows_what_the_document_says(tmp_path: Path) -> None:
    rows = steps()
    assert len(rows) >= 12
    assert all(row.signs for row in rows[:-1])
    terminal = Terminal(tmp_path)
    try:
        terminal.run(f"{sys.executable} -P -m cli demo; echo it ended with $?")
        for row in rows:
            for key in row.keys:
                if len(key) == 1 or key == "Enter":
                    terminal.press(key)
                else:
                    terminal.type(key)
            terminal.see(*(row.signs or ("it ended with 0",)))
        assert terminal.restored
    finally:
        terminal.close()
