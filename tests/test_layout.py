"""The layout of the code: the map in docs/architecture.md, and a plain first sentence in every module."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- map: written by tests/test_layout.py -->", "<!-- end of map -->"
TOP = ("wire", "controller", "agent", "cli", "tui")
MOST_MODULES = 15
VAGUE_WORDS = re.compile(
    r"\b(who|whom|whoever|somebody|nobody|anybody|everybody|anew|heed|heard of|strangers?)\b",
    re.IGNORECASE,
)
"""Pronouns that hide the job, the node or the user of a sentence."""


def modules() -> list[Path]:
    return sorted(
        path for top in TOP for path in (ROOT / top).rglob("*.py") if "migrations" not in path.parts
    )


def first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ")


def drawn_map() -> str:
    """One line for each package: its path, how many modules it has, and the first sentence of the package."""
    lines = ["| package | modules | |", "|---|---|---|"]
    for init in sorted(path for path in modules() if path.name == "__init__.py"):
        count = sum(1 for path in init.parent.glob("*.py") if path.name != "__init__.py")
        lines.append(f"| `{init.parent.relative_to(ROOT)}/` | {count or ''} | {first_line(init)} |")
    return "\n".join(lines)


def test_map_in_the_documents_shows_every_package() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    shown, _, after = rest.partition(END)
    if os.environ.get("CORRAL_RENEW_GOLDEN"):
        PAGE.write_text(f"{before}{BEGIN}\n\n{drawn_map()}\n\n{END}{after}", encoding="utf-8")
        return
    assert shown.strip() == drawn_map(), "run this test with CORRAL_RENEW_GOLDEN=1, and read the difference"


def test_every_module_begins_with_a_plain_sentence() -> None:
    wrong = []
    for path in modules():
        line = first_line(path)
        word = line.split()[0] if line else ""
        begins = word[:1].isupper() or not word.isalpha() or word in ("corral", "python")
        if not (begins and line.endswith((".", ":"))):
            wrong.append(f"{path.relative_to(ROOT)}: no sentence: {line!r}")
        elif VAGUE_WORDS.search(line):
            wrong.append(f"{path.relative_to(ROOT)}: {VAGUE_WORDS.search(line)}: {line!r}")
    assert not wrong, "\n".join(wrong)


def test_no_package_has_too_many_modules() -> None:
    crowded = {
        str(folder.relative_to(ROOT)): count
        for folder in {path.parent for path in modules()}
        if (count := sum(1 for path in folder.glob("*.py") if path.name != "__init__.py")) > MOST_MODULES
    }
    assert not crowded, crowded
