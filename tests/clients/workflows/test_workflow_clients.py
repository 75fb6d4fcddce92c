"""Workflow programs that submit their steps to Slurm, unmodified."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from tests.clients.scripts import run

SCRIPTS = Path(__file__).parent
CLIENTS = {
    "aiida": (
        ("aiida",),
        [
            "sum 3 state done",
            "sacct 0 True",
            "failed 410",
            "held queued held JobHeldUser",
            "killed True None",
        ],
    ),
    "fireworks": (("fireworks",), ["id True more 1", "none left"]),
    "maestro": (("maestrowf",), ["numbers ['1', '2']", "finished 3"]),
    "myqueue": (("myqueue",), ["config True", "states done done FAILED", "removed True"]),
    "nipype": (("nipype",), ["sum 14", "failed True"]),
    "signac_flow": (("flow", "signac"), ["submitted once 3", "queued 3", "squares ['1', '4', '9']"]),
    "toil": (("toil",), ["sum 5", "failed 1"]),
}
"""For each client: the modules that its script needs, and what the script prints."""


@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_workflow_client(slurm: SlurmFace, name: str) -> None:
    modules, lines = CLIENTS[name]
    assert run(slurm, SCRIPTS / f"use_{name}.py", modules).splitlines() == lines
