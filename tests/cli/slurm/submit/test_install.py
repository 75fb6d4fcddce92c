"""corral slurm install, and corral slurm COMMAND without it."""

from __future__ import annotations

import os
from pathlib import Path

from cli.slurm.arguments import VERSION
from cli.slurm.programs import PROGRAMS
from tests.programs import run_corral


def test_install_is_repeatable_and_leaves_other_programs_alone(tmp_path: Path) -> None:
    for _ in range(2):
        assert run_corral("slurm", "install", str(tmp_path)).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {*PROGRAMS}
    assert all(os.access(tmp_path / name, os.X_OK) for name in PROGRAMS)
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho another sbatch\n")
    refused = run_corral("slurm", "install", str(tmp_path))
    assert refused.returncode == 2
    assert f"{tmp_path} has other programs with these names: sbatch" in refused.stderr
    assert "another" in (tmp_path / "sbatch").read_text()


def test_words_pass_through_corral_unchanged() -> None:
    assert run_corral("slurm", "sbatch", "-V").stdout == f"{VERSION}\n"
    wrong = run_corral("slurm", "scancel", "--nonsense", "7")
    assert wrong.returncode == 1
    assert wrong.stderr.splitlines() == [
        "scancel: unrecognized option '--nonsense'",
        'Try "scancel --help" for more information',
    ]
