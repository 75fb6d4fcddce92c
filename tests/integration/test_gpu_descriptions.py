"""The controller, `config check`, `nodes add` and the agent refuse an invalid GPU description alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("text", ["simulated:8xA100:zz", "simulated:0xH100", "eight"])
def test_every_program_refuses_an_invalid_gpu_description_alike(tmp_path: Path, text: str) -> None:
    config = tmp_path / "scheduler.toml"
    config.write_text(f'[controller]\nstate_dir = "{tmp_path}/state"\n[nodes.a]\ngpus = "{text}"\n')
    programs = {
        "controller": ["cli", "controller", "--config", str(config)],
        "config check": ["cli", "config", "check", str(config)],
        "nodes add": ["cli", "nodes", "add", "a", "--gpus", text],
        "agent": ["agent", "--name", "a", "--spool", str(tmp_path / "spool"), "--gpus", text],
    }
    told = {}
    for name, words in programs.items():
        done = subprocess.run(
            [sys.executable, "-P", "-m", *words],
            env={**os.environ, "CORRAL_URL": f"unix://{tmp_path}/no.sock"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode != 0, name
        assert "Traceback" not in done.stderr
        told[name] = done.stderr[done.stderr.index("cannot read") :].strip()
    assert set(told.values()) == {told["agent"]}, told
