"""The controller, `config check`, `nodes add` and the agent refuse an invalid GPU description alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import run_corral


@pytest.mark.parametrize("text", ["simulated:8xA100:zz", "simulated:0xH100", "eight"])
def test_every_program_refuses_an_invalid_gpu_description_alike(tmp_path: Path, text: str) -> None:
    config = tmp_path / "scheduler.toml"
    config.write_text(f'[controller]\nstate_dir = "{tmp_path}/state"\n[nodes.a]\ngpus = "{text}"\n')
    commands = {
        "controller": ["controller", "--config", str(config)],
        "config check": ["config", "check", str(config)],
        "nodes add": ["nodes", "add", "a", "--gpus", text],
    }
    environment = {**os.environ, "CORRAL_URL": f"unix://{tmp_path}/no.sock"}
    done = {name: run_corral(*words, environment=environment) for name, words in commands.items()}
    agent = ["agent", "--name", "a", "--spool", str(tmp_path / "spool"), "--gpus", text]
    done["agent"] = subprocess.run(
        [sys.executable, "-P", "-m", *agent],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    told = {}
    for name, program in done.items():
        assert program.returncode != 0, name
        assert "Traceback" not in program.stderr
        told[name] = program.stderr[program.stderr.index("cannot read") :].strip()
    assert set(told.values()) == {told["agent"]}, told
