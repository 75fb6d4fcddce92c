"""How Corral starts its parts: from any directory, and from one place in the code."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from wire.program_parts import FLAG, PARTS, STORE_CHECK, Part, run_part

HOME = Path(__file__).parents[2]
ELSEWHERE = {
    "cli/commands/slurm.py": "writes programs that are started later; from a frozen program, its own file",
    "agent/host/bootstrap.py": "runs on a host that has only this file, and starts the zip file",
    "agent/host/pilot_relay.py": "runs from the zip file of the agent with the Python of the host",
    "agent/host/preflight.py": "a report",
    "controller/nodes/agent/frozen.py": "the folder of the frozen program, which contains the agent",
    "controller/store/backends/postgres.py": "advice to the user",
    "wire/program_parts.py": "",
}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.module)
def test_every_part_can_be_imported(part: Part) -> None:
    assert callable(getattr(import_module(part.module), part.function))


def test_modules_in_the_working_directory_are_not_imported(tmp_path: Path) -> None:
    for name in ("controller", "wire", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working directory')")
    done = subprocess.run(
        STORE_CHECK.command(),
        input=f"sqlite:///{tmp_path}/none\n",
        text=True,
        capture_output=True,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert '"done":true' in done.stdout


def test_frozen_program_starts_its_parts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert STORE_CHECK.command("a", "b") == [sys.executable, FLAG, STORE_CHECK.module, "a", "b"]
    assert STORE_CHECK.command("a", python="/usr/bin/python3")[:2] == ["/usr/bin/python3", "-c"]


def test_frozen_program_runs_only_parts_of_corral() -> None:
    with pytest.raises(SystemExit, match="no part: antigravity"):
        run_part([FLAG, "antigravity"])
    with pytest.raises(SystemExit, match="no part"):
        run_part([FLAG])


def test_no_other_module_takes_sys_executable_for_a_python() -> None:
    found = {
        str(path.relative_to(HOME))
        for package in ("agent", "cli", "controller", "tui", "wire")
        for path in (HOME / package).rglob("*.py")
        if re.search(r"\bsys\.executable\b", path.read_text(encoding="utf-8"))
    }
    assert found == ELSEWHERE.keys()
