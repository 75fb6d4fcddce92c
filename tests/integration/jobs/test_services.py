"""A service on real agents: killed replicas, a rolling restart, a drain, and a killed controller."""

from __future__ import annotations

import os
from collections.abc import Callable

import tomli_w

from controller.config import load, policy_config
from controller.registry import build_pipeline
from controller.sim.replay.history import history_of
from controller.sim.replay.journal import read_journal
from controller.sim.replay.replayer import Replay
from tests.processes import Process
from tests.programs import run_corral
from tests.systems import System
from wire.api.policy.services import ReplicaView, ServiceView
from wire.names import JobState


def show(system: System) -> ServiceView:
    with system.client() as client:
        return client.service("web")


def await_ready(system: System, number: int, *, without: frozenset[int] = frozenset()) -> list[ReplicaView]:
    """Wait until exactly this number of replicas run, and all are ready and none is one of these jobs."""

    def found() -> bool:
        view = show(system)
        jobs = {each.job for each in view.replicas}
        return view.ready == view.current == len(view.replicas) == number and not jobs & without

    system.until(found, f"{number} replicas are ready: {show(system)}")
    return list(show(system).replicas)


def sleeps(system: System) -> list[Process]:
    return [each for each in system.processes("job") if "12345" in each.words]


def test_a_service_keeps_its_replicas_running(build: Callable[..., System]) -> None:
    system = build("gpu01", "gpu02", "gpu03")
    well = system.place / "well"
    well.touch()
    web = {
        "user": "root",
        "command": ["sh", "-c", "echo $CORRAL_SERVICE $CORRAL_REPLICA; exec sleep 12345"],
        "gpus": 4,
        "replicas": 2,
        "spread": "require",
        "restart_delay_s": 0.1,
        "grace_s": 1.0,
        "health": {"command": ["test", "-e", str(well)], "every_s": 0.2, "failures": 2, "start_s": 0.0},
    }
    system.sections["services"] = {"web": web}
    system.start()
    started_with = load(system.config)
    first = await_ready(system, 2)
    assert len({each.nodes for each in first}) == 2
    assert "web.0" in system.corral("queue")
    assert "WANTED" in system.corral("service")

    # A killed replica runs again on its node, as another attempt of the same job.
    sleeps(system)[0].kill()
    system.until(lambda: sum(each.restarts for each in show(system).replicas) == 1, "the replica restarted")
    assert {(each.job, each.nodes) for each in await_ready(system, 2)} == {
        (each.job, each.nodes) for each in first
    }

    # A rolling restart, in the middle of which the controller is killed.
    environment = {**os.environ, "CORRAL_URL": f"unix://{system.socket}"}
    ordered = run_corral("service", "restart", "web", environment=environment, check=True).stderr
    assert "service web: its replicas restart; at most 1 unready at a time" in ordered
    system.kill()
    system.start()
    second = await_ready(system, 2, without=frozenset(each.job for each in first))
    system.until(lambda: len(sleeps(system)) == 2, "the old replicas have ended")

    # A drain moves the replica of the node.
    moved, stays = second
    (free,) = {"gpu01", "gpu02", "gpu03"} - {*moved.nodes, *stays.nodes}
    system.corral("nodes", "drain", *moved.nodes)
    third = await_ready(system, 2, without=frozenset({moved.job}))
    assert {each.nodes for each in third} == {stays.nodes, (free,)}
    (queued,) = [each for each in third if each.replaces is not None]
    assert queued.replaces == moved.job

    # Failed health checks restart the replicas.
    well.unlink()
    system.until(lambda: all(not each.ready for each in show(system).replicas), "no replica is ready")
    well.touch()
    await_ready(system, 2)

    # The number of replicas, set by an operator and then by scheduler.toml.
    system.corral("service", "scale", "web", "1")
    await_ready(system, 1)
    system.corral("nodes", "resume", *moved.nodes)
    system.sections["services"] = {"web": {**web, "replicas": 3}}
    system.config.write_text(tomli_w.dumps(system.sections))
    system.corral("config", "apply", "--yes")
    await_ready(system, 3)
    del system.sections["services"]
    system.config.write_text(tomli_w.dumps(system.sections))
    system.corral("config", "apply", "--yes")
    system.until(lambda: not sleeps(system), "no replica is left")
    assert all(job.state is not JobState.RUNNING for job in system.jobs().values())
    events = system.corral("events", "-n", "1000")
    assert "was queued for replica 0 of service web" in events
    assert "resources are kept for the restart of job" in events

    # A replay of the journal makes the same replicas at the same times and places.
    assert system.stop() == 0
    again = Replay(
        history_of(read_journal(system.store_url)),
        build_pipeline(started_with),
        policies=lambda policy: build_pipeline(policy_config(policy)),
    )
    again.run()
    assert again.as_recorded == again.placements
    assert again.placements == sum(job.attempt for job in again.engine.state.jobs.values())
