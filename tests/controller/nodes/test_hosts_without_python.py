"""Hosts without Python behind a real OpenSSH server get an agent with its own Python.

The agent of these tests is packed as `make binary` packs it, but it is a script that starts a Python of this
machine, so that the tests need no build. tests/deploy/test_binary.py has the built one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.nodes.agent import bootstrap
from controller.nodes.agent.frozen import read_frozen_agent
from controller.nodes.agent.zipapp import bundle
from deploy.binary.build import pack
from tests.controller.nodes.openssh_server import OpenSshServer, lacking, running_openssh_server
from tests.controller.nodes.test_openssh import join, refused

LACKING = lacking()
pytestmark = pytest.mark.skipif(bool(LACKING), reason=LACKING or "everything is there")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenSshServer]:
    """A host on which no Python is found."""
    monkeypatch.setattr(bootstrap, "PYTHONS", ("python-that-is-not-there",))
    with running_openssh_server() as server:
        yield server


@pytest.fixture
def packed(bare: OpenSshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller is frozen and has the program corral-agent."""
    zipped = bare.place / "agent.pyz"
    zipped.write_bytes(bundle().data)
    folder = tmp_path / "parts" / "corral-agent"
    folder.mkdir(parents=True)
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    (folder / "corral-agent").write_text(f'#!/bin/sh\nexec {python} -I -S -X utf8 {zipped} "$@"\n')
    (folder / "corral-agent").chmod(0o755)
    pack(folder, tmp_path / "corral-agent")
    made = read_frozen_agent(tmp_path / "corral-agent")
    monkeypatch.setattr(bootstrap, "frozen_agent", lambda: made)


async def test_without_a_frozen_agent_the_remedy_is_python(bare: OpenSshServer) -> None:
    name, found, remedy = await refused(bare)
    assert (name, found) == ("Python", "there is no Python 3.9 or newer")
    assert remedy.startswith("Install Python 3.9")


async def test_host_gets_an_agent_with_its_own_python(bare: OpenSshServer, packed: None) -> None:
    bare.rc("echo welcome; printf 'no end of line'\n")
    first = await join(bare)
    assert len(first.facts.gpus) == 2
    [unpacked] = (bare.home / ".corral" / "agents").iterdir()
    assert unpacked.stat().st_mode & 0o777 == 0o700
    before = (unpacked / "corral-agent").stat().st_ino
    await join(bare)
    assert (unpacked / "corral-agent").stat().st_ino == before


async def test_directory_of_another_user_is_refused(bare: OpenSshServer, packed: None) -> None:
    await join(bare)
    [unpacked] = (bare.home / ".corral" / "agents").iterdir()
    os.chown(unpacked, 65_534, 65_534)
    name, found, _ = await refused(bare)
    assert name == "files"
    assert f"{unpacked}: cannot be opened; it may belong to another user" in found


async def test_python_that_the_operator_names_is_not_replaced(bare: OpenSshServer, packed: None) -> None:
    name, found, _ = await refused(bare, python="/opt/none/python3")
    assert (name, found) == ("Python", "/opt/none/python3 is not found")
