"""The zip application starts the parts of the demo, although no corral is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.built import HOME

ZIPAPP = HOME / "dist" / "corral.pyz"
pytestmark = [
    pytest.mark.skipif(not ZIPAPP.exists(), reason="dist/corral.pyz is not built: make zipapp"),
    pytest.mark.slow,
]


def test_demo_runs_from_the_zip_application(tmp_path: Path) -> None:
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SHIV_ROOT": str(tmp_path / "shiv")}
    done = subprocess.run(
        [str(base), str(ZIPAPP), "demo", "--no-tui"],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "39 jobs in" in done.stdout
