"""The example pool that runs programs of a site."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from controller.engines.contract import EngineScope, EngineUnavailable
from controller.engines.pools.machine_pool import MachineOrder, MachineShape, MachineState, NoCapacity
from tests.controller.engines.engine_setups import example_module
from tests.controller.engines.fake_engine import PREFIX

PROGRAM = """
import json, os, pathlib, sys
place, action, *words = sys.argv[1:]
files = pathlib.Path(place)
if action == "create":
    token, shape, zone = words
    if zone == "full":
        sys.exit(75)
    ref = f"vm-{len(list(files.iterdir()))}"
    made = {"ref": ref, "token": token, "state": "running", "address": "10.0.0.1", "zone": zone}
    (files / ref).write_text(json.dumps(made))
    print(ref)
elif action == "end":
    (files / words[0]).unlink(missing_ok=True)
else:
    for each in files.iterdir():
        if json.loads(each.read_text())["token"].startswith(os.environ["CORRAL_TOKENS"]):
            print(each.read_text())
"""


async def test_programs_of_a_site_are_a_pool(tmp_path: Path) -> None:
    files = tmp_path / "vms"
    files.mkdir()

    def words(action: str) -> tuple[str, ...]:
        return (sys.executable, "-c", PROGRAM, str(files), action)

    shape = MachineShape(name="large", cpus=16, memory="60G", price=1.2)
    kind = example_module("command_pool").CommandPoolType(
        list=words("list"), create=words("create"), end=words("end"), shapes=(shape,), zones=("a", "full")
    )
    pool = kind.connect(EngineScope("cloud", PREFIX, str(tmp_path / "state"))).pool
    first, full = await pool.offers()
    ref = await pool.create(MachineOrder(f"{PREFIX}m1", first))
    [machine] = (await pool.machines()).machines
    assert (machine.ref, machine.token, machine.zone) == (ref, f"{PREFIX}m1", "a")
    assert machine.state is MachineState.RUNNING
    with pytest.raises(NoCapacity):
        await pool.create(MachineOrder(f"{PREFIX}m2", full))
    await pool.end(ref)
    assert (await pool.machines()).machines == ()
    (files / "broken").write_text("no JSON")
    with pytest.raises(EngineUnavailable):
        await pool.machines()
