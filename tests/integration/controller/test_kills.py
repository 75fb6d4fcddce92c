"""Acknowledged submits are kept and running jobs continue, whichever process is killed."""

from __future__ import annotations

import random
import signal
import socket
from collections.abc import Callable

import pytest

from tests import processes
from tests.integration.controller.load import mix
from tests.oracle.oracle import Oracle
from tests.systems import System
from wire.api.jobs import SubmitRequest
from wire.codec import dumps, encode
from wire.names import JobState

Build = Callable[..., System]


@pytest.mark.slow
def test_a_controller_killed_amid_a_hundred_jobs(build: Build) -> None:
    """The controller is killed once during the submits, and twice while the jobs run."""
    oracle = Oracle(build("gpu01", "gpu02", "gpu03").start())
    dice = random.Random(200)
    jobs, moment = mix(dice, oracle), dice.randrange(30, 70)
    with oracle.system.client() as client:
        while len(oracle.ids) < moment:
            oracle.submit(client, next(jobs))
        again(oracle)
        while len(oracle.ids) < 100:
            oracle.submit(client, next(jobs))
    for _ in range(2):
        oracle.system.await_jobs(dice.sample(oracle.ids, 5))
        again(oracle)
    assert oracle.verify() == []
    assert oracle.spoilt() == []


def again(oracle: Oracle) -> None:
    oracle.system.kill()
    oracle.system.start()


@pytest.mark.slow
def test_controller_killed_after_each_acknowledgement_loses_nothing(build: Build) -> None:
    oracle = Oracle(build("gpu01").start())
    system = oracle.system
    for _ in range(8):
        with system.client() as client:
            oracle.submit(client, oracle.spec(until=0))
        system.kill()
        system.launch()
        system.await_answer()
        assert system.jobs().keys() == {*oracle.ids}
    assert oracle.verify() == []
    assert oracle.spoilt() == []


def controller_killed(system: System) -> Callable[[], object]:
    system.kill()
    return system.start


def controller_stopped(system: System) -> Callable[[], object]:
    assert system.stop() == 0
    return system.start


def agent_killed(system: System) -> Callable[[], object]:
    """Kill the agent while the controller is stopped, so that no other agent is started at once."""
    system.controller.send(signal.SIGSTOP)
    system.agent("gpu01").kill()
    return lambda: system.controller.send(signal.SIGCONT)


def nursery_killed(system: System) -> Callable[[], object]:
    system.controller.send(signal.SIGSTOP)
    system.agent("gpu01").kill()
    for nursery in system.processes("nursery"):
        nursery.kill()
    return lambda: system.controller.send(signal.SIGCONT)


def both_killed(system: System) -> Callable[[], object]:
    agent = system.agent("gpu01")
    system.kill()
    agent.kill()
    return system.start


@pytest.mark.parametrize(
    "fault", [controller_killed, controller_stopped, agent_killed, nursery_killed, both_killed]
)
def test_jobs_survive_killed_processes_of_corral(
    build: Build, fault: Callable[[System], Callable[[], object]]
) -> None:
    """Jobs that end meanwhile and jobs that continue all get the end that their programs return."""
    oracle = Oracle(build("gpu01").start())
    system, soon, late = oracle.system, oracle.system.place / "soon", oracle.system.place / "late"
    outcomes = (0, 3, -9)
    with system.client() as client:
        ended = [job for code in outcomes for job in oracle.submit(client, oracle.spec(soon, code, gpus=1))]
        lasting = [job for code in outcomes for job in oracle.submit(client, oracle.spec(late, code, gpus=1))]
    alive = {job: processes.process(life.pid) for job, life in oracle.await_lives(*ended, *lasting).items()}
    system.await_jobs(oracle.ids, JobState.RUNNING)
    undo = fault(system)
    soon.touch()
    system.until(lambda: not any(alive[job].alive for job in ended), "the first jobs have ended")
    undo()
    outcome = system.await_jobs(ended)
    assert [outcome[job].exit_code for job in ended] == [0, 3, None]
    assert all(system.jobs()[job].state is JobState.RUNNING for job in lasting)
    assert all(alive[job].alive for job in lasting)
    late.touch()
    assert oracle.verify() == []
    assert oracle.spoilt() == []


def test_cancel_not_read_by_the_old_agent_reaches_the_next_one(oracle: Oracle) -> None:
    system = oracle.system
    with system.client() as client:
        [job] = oracle.submit(client, oracle.spec(until=1_000_000))
        system.await_jobs([job], JobState.RUNNING)
        [held] = client.job(job).job.held
        agent = system.agent(held.node)
        agent.send(signal.SIGSTOP)
        client.cancel(job)
        assert client.job(job).job.state is JobState.RUNNING
    agent.kill()
    assert system.await_jobs([job])[job].state is JobState.CANCELLED
    assert oracle.verify() == []


@pytest.mark.parametrize("array", [None, "0-9"])
def test_repeated_submit_after_a_kill_returns_the_same_job(oracle: Oracle, array: str | None) -> None:
    """The submit was on disk, but the client got no answer: it sees only a broken connection."""
    spec, key = oracle.spec(until=0, array=array), "the-very-same"
    body = dumps(encode(SubmitRequest(spec, key))).encode()
    system = oracle.system
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(system.socket))
        line.sendall(
            b"POST /v1/jobs HTTP/1.1\r\nHost: corral\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        system.until(system.jobs, "the submit is on disk")
        system.kill()
    system.start()
    with system.client() as client:
        ids = oracle.submit(client, spec, key)
        assert client.submit(spec, key=key).ids == ids
        assert client.submit(spec, key="another").ids[0] > ids[-1]
    assert system.jobs().keys() >= {*ids}
    assert len(system.jobs()) == 2 * len(ids)
    assert oracle.verify() == []
