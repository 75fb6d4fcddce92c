"""systemd reads the unit of the controller without a complaint, and calls it well protected."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
UNIT = HOME / "deploy" / "systemd" / "corral-controller.service"
LOCAL_JOBS = UNIT.with_name("local-jobs.conf")
MOST_EXPOSED = 2.0
"""The highest exposure level (0 is best, 10 is worst) of the unit."""

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here (Debian: systemd)"
)


def analyze(*words: str) -> str:
    """Run systemd-analyze; return all that it prints."""
    done = subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def with_a_program(text: str, place: Path) -> Path:
    """The unit with a program that is on this machine, because systemd checks that it is there."""
    unit = place / UNIT.name
    unit.write_text(text.replace("/usr/bin/corral", "/bin/true"))
    return unit


def test_systemd_knows_every_key_of_the_unit(tmp_path: Path) -> None:
    unit = with_a_program(UNIT.read_text(), tmp_path)
    assert analyze("verify", "--man=no", str(unit)) == ""
    wrong = with_a_program(UNIT.read_text().replace("ProtectHome", "ProtectHouse"), tmp_path)
    assert "ProtectHouse" in analyze("verify", "--man=no", str(wrong))


def test_drop_in_for_local_jobs_has_only_known_keys(tmp_path: Path) -> None:
    more = LOCAL_JOBS.read_text().partition("[Service]\n")[2]
    unit = with_a_program(UNIT.read_text().replace("\n[Install]", f"{more}\n[Install]"), tmp_path)
    assert analyze("verify", "--man=no", str(unit)) == ""


def test_unit_is_hardened(tmp_path: Path) -> None:
    shown = analyze(
        "security", "--offline=true", "--no-pager", str(with_a_program(UNIT.read_text(), tmp_path))
    )
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", shown)
    assert level is not None
    assert float(level[1]) <= MOST_EXPOSED, shown
