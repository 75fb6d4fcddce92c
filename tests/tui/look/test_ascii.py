"""The translation of the screen to ASCII."""

from __future__ import annotations

import ast
from pathlib import Path

from tui.look.glyphs import ASCII

TUI = Path(__file__).parents[3] / "tui"


def test_every_symbol_of_the_program_has_an_ascii_form() -> None:
    missing = set()
    for path in TUI.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                missing |= {
                    f"{path.name}: {sign}"
                    for sign in node.value
                    if not sign.isascii() and ord(sign) not in ASCII
                }
    assert missing == set()
