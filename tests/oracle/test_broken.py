"""The oracle detects each broken guarantee in a running system."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.oracle.oracle import Oracle
from tests.systems import system
from wire.names import JobState, Reason

Build = Callable[..., Oracle]


@pytest.fixture
def build() -> Iterator[Build]:
    """Start a system that breaks one guarantee (or none), and an oracle."""
    with ExitStack() as stack:

        def start(promise: str = "", *nodes: str) -> Oracle:
            program = ("tests.oracle.broken", promise) if promise else ("controller",)
            return Oracle(stack.enter_context(system(*nodes, program=program)).start())

        yield start


def broken(oracle: Oracle) -> set[str]:
    """The letters of the broken guarantees."""
    return {each.promise for each in oracle.verify()}


def test_correct_system_passes_the_oracle(build: Build) -> None:
    oracle = build("", "gpu01", "gpu02")
    with oracle.system.client() as client:
        oracle.submit(client, oracle.spec(gpus=1))
        oracle.submit(client, oracle.spec(gpus=0.5, outcome=7))
        oracle.submit(client, oracle.spec(gpus=16, nodes=2))
        oracle.submit(client, oracle.spec(outcome=-11))
        oracle.submit(client, oracle.spec(array="0-4", gpus=2))
        [endless] = oracle.submit(client, oracle.spec(until=1_000_000))
        oracle.await_lives(endless)
        client.cancel(endless)
    assert oracle.verify() == []


def test_oracle_detects_an_acknowledgement_before_the_disk_write(build: Build) -> None:
    oracle = build("A")
    with oracle.system.client() as client:
        [job] = oracle.submit(client, oracle.spec())
    oracle.system.kill()
    # Because the store is empty while the job still runs, a controller without this refuses to start.
    oracle.system.program = (*oracle.system.program, "--new-cluster")
    oracle.system.start()
    assert [str(each) for each in oracle.verify()] == [f"A: job {job} was acknowledged and is gone"]


def test_oracle_detects_a_job_run_by_two_nodes(build: Build) -> None:
    oracle = build("B", "gpu01", "gpu02")
    with oracle.system.client() as client:
        oracle.submit(client, oracle.spec())
    oracle.system.until(lambda: len(oracle.lives()) == 2, "both nodes run it")
    assert broken(oracle) >= {"B"}


def test_oracle_detects_a_job_run_again_after_success(build: Build) -> None:
    oracle = build("C")
    with oracle.system.client() as client:
        oracle.submit(client, oracle.spec())
    oracle.system.until(lambda: len(oracle.lives()) == 2, "it runs again")
    assert broken(oracle) >= {"C"}


def test_oracle_detects_a_wrong_exit_code(build: Build) -> None:
    oracle = build("D")
    with oracle.system.client() as client:
        oracle.submit(client, oracle.spec(outcome=3))
    assert broken(oracle) == {"D"}


def test_oracle_detects_one_gpu_held_by_two_jobs(build: Build) -> None:
    oracle = build("E")
    gate = oracle.system.place / "gate"
    with oracle.system.client() as client:
        jobs = [
            *oracle.submit(client, oracle.spec(gate, gpus=1)),
            *oracle.submit(client, oracle.spec(gate, gpus=1)),
        ]
    oracle.await_lives(*jobs)
    gate.touch()
    assert broken(oracle) == {"E"}


def test_oracle_detects_an_agent_that_forgot_its_attempts(build: Build) -> None:
    """The agent has lost its records, supervisors and marks."""
    oracle = build()
    spec = oracle.spec(until=1_000_000)
    with oracle.system.client() as client:
        hidden = replace(spec, command=("env", "-u", "CORRAL_SPOOL", *spec.command))
        [job] = oracle.submit(client, hidden)
    oracle.await_lives(job)
    oracle.system.await_jobs([job], JobState.RUNNING)
    oracle.system.kill()
    oracle.system.await_nothing("agent")
    for nursery in oracle.system.processes("nursery"):
        nursery.kill()  # the agent first, because it would kill what its supervisors leave
    oracle.system.await_nothing("nursery")
    for supervisor in oracle.system.supervisors():
        supervisor.kill()
    oracle.system.await_nothing("supervisor")
    shutil.rmtree(oracle.system.state / "nodes")
    oracle.system.start()
    assert oracle.system.await_jobs([job])[job].reason is Reason.NODE_LOST
    assert broken(oracle) == {"F"}
