"""The packages wire and agent run on Python 3.9."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import wire
from tests.limits import PATIENCE_S

HOUSE = Path(wire.__file__).parent.parent
MODULES = sorted(path for top in ("wire", "agent") for path in (HOUSE / top).rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_grammar_of_every_module_is_old_enough(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 9))


def old_python() -> str | None:
    """A Python 3.9, named by CORRAL_PYTHON39 or found in PATH, that really starts."""
    for candidate in (os.environ.get("CORRAL_PYTHON39"), shutil.which("python3.9")):
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    return None


def test_wire_modules_load_under_the_old_python() -> None:
    python = old_python()
    if python is None:
        pytest.skip("no Python 3.9 here; name one with CORRAL_PYTHON39")
    names = [".".join(path.relative_to(HOUSE).with_suffix("").parts) for path in MODULES]
    names = [name for name in names if name.startswith("wire.") and not name.endswith("__init__")]
    code = (
        "import dataclasses, importlib\n"
        "from wire import codec\n"
        f"for name in {names}:\n"
        "    for kind in vars(importlib.import_module(name)).values():\n"
        "        if isinstance(kind, type) and dataclasses.is_dataclass(kind):\n"
        "            codec.decoder(kind), codec.encoder(kind)\n"
        "print('good')\n"
    )
    done = subprocess.run(
        [python, "-W", "error", "-c", code], cwd=HOUSE, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == ("good\n", "")
