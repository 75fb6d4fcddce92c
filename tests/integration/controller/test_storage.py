"""Full disks, damaged databases, directories that cannot be written, a second controller."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.controller.store.servers import Absent, postgres
from tests.integration.conftest import SmallDisk
from tests.oracle.oracle import Oracle
from tests.systems import System
from wire.http.client import Refused
from wire.names import JobState

Build = Callable[..., System]


def refused_to_start(system: System) -> str:
    """Launch a controller that cannot start. Returns its error message."""
    before = system.log.stat().st_size if system.log.exists() else 0
    assert system.launch().wait(60) == 1
    said = system.log.read_text()[before:]
    assert "Traceback" not in said
    return said


def test_full_disk_refuses_submits_loses_nothing_and_recovers(build: Build, small_disk: SmallDisk) -> None:
    """One job ends while its end cannot be recorded. Many submits are refused."""
    system = build("gpu01", "gpu02")
    system.sections["controller"]["state_dir"] = str(small_disk.path / "state")
    for name, node in system.sections["nodes"].items():
        node["spool"] = str(system.place / name)
    system.state = small_disk.path / "state"
    oracle = Oracle(system.start())
    gate = system.place / "gate"
    with system.client() as client:
        [job] = oracle.submit(client, oracle.spec(gate, gpus=1))
        life = oracle.await_lives(job)[job]
        system.await_jobs([job], JobState.RUNNING)
        small_disk.fill()
        refusal = None
        while refusal is None:
            try:
                oracle.submit(client, oracle.spec(hold=True))
            except Refused as refused:
                refusal = refused
        assert (refusal.status, refusal.problem.code) == (507, "storage_full")
        assert str(small_disk.path) in refusal.problem.message
        assert "space" in refusal.problem.hint
        gate.touch()
        system.until(lambda: life.pid not in {each.pid for each in system.processes()}, "the job has ended")
        with pytest.raises(Refused, match="is full"):
            client.submit(oracle.spec())
        assert system.jobs().keys() == {*oracle.ids}
        small_disk.drain()
        system.until(lambda: submitted(oracle), "there is room again")
        for held in oracle.ids:
            if system.jobs()[held].state is JobState.QUEUED:
                client.release(held)
    assert system.await_jobs([job])[job].state is JobState.COMPLETED
    assert oracle.verify() == []
    assert oracle.spoilt() == []


def submitted(oracle: Oracle) -> bool:
    try:
        with oracle.system.client() as client:
            return bool(oracle.submit(client, oracle.spec(hold=True)))
    except Refused:
        return False


def test_full_disk_at_start_is_reported(build: Build, small_disk: SmallDisk) -> None:
    system = build()
    system.sections["controller"]["state_dir"] = str(small_disk.path)
    small_disk.fill()
    said = refused_to_start(system)
    assert str(small_disk.path) in said
    assert "full" in said or "No space left" in said


def test_a_damaged_database_is_refused_and_kept(build: Build) -> None:
    oracle = Oracle(build().start())
    with oracle.system.client() as client:
        oracle.submit(client, oracle.spec(until=0, name="precious" * 20))
    assert oracle.verify() == []
    database = oracle.system.state / "corral.db"
    whole = database.read_bytes()
    database.write_bytes(whole.replace(b"preciousprecious", b"preciouspre\0ious"))
    said = refused_to_start(oracle.system)
    assert f"{database} is damaged" in said
    assert "A copy of the damaged file is" in said
    database.write_bytes(whole)
    oracle.system.start()
    assert oracle.system.jobs().keys() == {*oracle.ids}


def test_file_that_is_no_database_is_refused(build: Build) -> None:
    system = build()
    system.state.mkdir()
    (system.state / "corral.db").write_text("Dear diary, today I was a scheduler. " * 100)
    assert "corral.db" in refused_to_start(system)
    assert (system.state / "corral.db").read_text().startswith("Dear diary")


def test_a_second_controller_on_the_same_state_is_refused(build: Build) -> None:
    first, second = build().start(), build()
    second.sections["controller"]["state_dir"] = str(first.state)
    assert f"Another controller (pid {first.controller.pid} on " in refused_to_start(second)
    second.sections["controller"] = {**first.sections["controller"], "state_dir": str(second.state)}
    assert f"{first.socket}" in refused_to_start(second)
    with first.client() as client:
        assert client.health().status == "ok"


def test_unwritable_spool_affects_only_its_node(build: Build, small_disk: SmallDisk) -> None:
    system = build("gpu01", "gpu02")
    spool = small_disk.path / "spool"
    system.sections["nodes"]["gpu02"]["spool"] = str(spool)
    small_disk.remount("ro")
    system.launch()
    system.await_answer()
    system.await_nodes("gpu01")
    with system.client() as client:
        system.until(lambda: str(spool) in client.node("gpu02").why, "the node says why it is away")
        assert client.node("gpu02").state.away
        assert "Traceback" not in client.node("gpu02").why
    oracle = Oracle(system)
    with system.client() as client:
        oracle.submit(client, oracle.spec(gpus=1))
    small_disk.remount("rw")
    system.await_nodes("gpu02")
    assert oracle.verify() == []
    assert oracle.spoilt() == []


def test_database_server_outage_is_waited_for(build: Build) -> None:
    """A job ends meanwhile. Nothing is acknowledged, nothing is lost, and no manual restart is needed."""
    try:
        with postgres() as server:
            system = build("gpu01")
            system.sections["store"] = {"url": server.new_database()}
            oracle = Oracle(system.start())
            gate = system.place / "gate"
            with system.client() as client:
                [job] = oracle.submit(client, oracle.spec(gate, gpus=1))
                life = oracle.await_lives(job)[job]
                server.stop()
                gate.touch()
                with pytest.raises(Refused, match="does not answer"):
                    oracle.submit(client, oracle.spec(), "again")
                assert client.health().status == "database away"
                with pytest.raises(Refused, match="does not answer"):
                    client.jobs()  # the content of the store is unknown
                system.until(
                    lambda: life.pid not in {each.pid for each in system.processes()}, "it has ended"
                )
                server.start()
                system.until(lambda: client.health().status == "ok", "the store is taken again")
                oracle.submit(client, oracle.spec(), "again")
            assert oracle.verify() == []
            assert oracle.spoilt() == []
    except Absent as missing:
        pytest.skip(str(missing))


def test_host_without_disk_space_gets_no_orders_until_there_is_room(
    build: Build, small_disk: SmallDisk
) -> None:
    """Running jobs continue there and their ends are recorded. New jobs start on other nodes."""
    system = build("gpu01", "gpu02")
    system.sections["nodes"]["gpu02"]["spool"] = str(small_disk.path / "spool")
    oracle = Oracle(system.start())
    gate = system.place / "gate"
    with system.client() as client:
        [first, second] = [*oracle.submit(client, oracle.spec(gate, gpus=8, array="0-1"))]
        oracle.await_lives(first, second)
        small_disk.fill()
        waiting = oracle.submit(client, oracle.spec(0, gpus=0, array="0-3", cpu_milli=32_000))
        system.until(lambda: "cannot run jobs" in client.node("gpu02").why, "the node says what is wrong")
        assert "No space left on device" in client.node("gpu02").why
        system.await_jobs(waiting)
        gate.touch()
        small_disk.drain()
        system.await_nodes("gpu01", "gpu02")
    assert oracle.verify() == []
    assert oracle.spoilt() == []


@pytest.mark.parametrize("name", ["corral.sock", "state"])
def test_blocking_file_is_named(build: Build, name: str) -> None:
    system = build()
    blocked: Path = system.place / name
    blocked.write_text("in the way")
    assert str(blocked) in refused_to_start(system)
    assert blocked.read_text() == "in the way"
