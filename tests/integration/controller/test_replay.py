"""Replay of the journal of a real controller: under the same scheduler.toml it gives the same journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from controller.config import load
from controller.core.cluster.node import JUST_STARTED
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.events.event import Event
from controller.core.model.events.nodes import NodeWentAway
from controller.registry import build_pipeline
from controller.sim.replay.history import history_of
from controller.sim.replay.journal import read_journal, url_of
from controller.sim.replay.replayer import Replay
from tests.systems import System
from wire.http.client import Client
from wire.job.spec import JobSpec
from wire.job.start_conditions import Restart, RestartWhen
from wire.names import JobState

SLEEP = ("sleep", "600")


def shell(text: str, gpus: float = 1, **more: object) -> JobSpec:
    return JobSpec(command=("/bin/sh", "-c", text), gpus=gpus, cpu_milli=500, memory_mib=64, **more)  # type: ignore[arg-type]


def test_replay_with_the_same_inputs_and_configuration_repeats_the_journal(
    build: Callable[..., System], tmp_path: Path
) -> None:
    """Every placement on its nodes and GPUs at its time, and every other entry of the journal too."""
    system = build("gpu01", "gpu02").start()
    with system.client() as client:
        live_through(system, client)
    happened = read_journal(system.store_url)  # while its controller runs
    assert relived(happened, system.config) == in_order(happened)
    placed = [event for event in happened if isinstance(event, JobPlaced)]
    assert len(placed) > 30
    assert any(len(event.allocations) == 2 for event in placed)
    assert sum(isinstance(event, NodeWentAway) and event.why == JUST_STARTED for event in happened) == 2
    assert system.stop() == 0
    assert read_journal(url_of(str(system.state)))[: len(happened)] == happened


def live_through(system: System, client: Client) -> None:
    """Let a controller handle jobs and commands of many kinds."""

    def submit(spec: JobSpec) -> list[int]:
        return list(client.submit(spec).ids)

    quick = [submit(shell("exit 0", 4))[0] for _ in range(12)]
    failing = submit(shell("exit 3"))
    late = submit(shell("sleep 600", time_limit_s=1.0, grace_s=0.2))
    array = submit(shell("sleep 0.1", 0.5, array="0-7"))
    held = submit(shell("exit 0", hold=True))
    [broken_gang] = submit(
        shell('test "$CORRAL_NODE_RANK" = 0 && exit 1; sleep 600', 8, nodes=2, grace_s=0.2)
    )
    again = submit(shell("exit 7", restart=Restart(RestartWhen.ON_FAILURE, limit=2, delay_s=0.1)))
    begins = submit(shell("exit 0", begin_at=time.time() + 0.5))
    system.await_jobs([*quick, *failing, *late, *array, *again, *begins, broken_gang])
    all_gpus = JobSpec(command=SLEEP, gpus=8, cpu_milli=1_000, memory_mib=64, time_limit_s=3_600, grace_s=0.2)
    full = [submit(all_gpus)[0] for _ in range(2)]
    system.await_jobs(full, JobState.RUNNING)
    [first] = submit(JobSpec(command=("true",), gpus=8, nodes=2, priority=75, time_limit_s=60))
    behind = [submit(shell("sleep 0.2", 2, time_limit_s=20, priority=25))[0] for _ in range(6)]
    short = submit(shell("exit 0", 0, time_limit_s=5))
    impatient = submit(shell("exit 0", 8, start_within_s=0.3))
    system.await_jobs([*short, *impatient])
    client.release(held[0])
    client.hold(behind[0])
    client.cancel(behind[1])
    client.drain("gpu02", "looking at a fan")
    client.cancel(full[0])
    system.await_jobs(full[:1])
    system.kill()
    system.launch()
    system.await_answer()
    client.resume("gpu02")
    system.await_nodes("gpu01", "gpu02")
    client.cancel(full[1])
    system.await_jobs([first, *held, full[1], *behind[1:]])
    client.release(behind[0])
    system.await_jobs(behind)
    submit(JobSpec(command=SLEEP, gpus=1))  # still runs at the end
    system.await_jobs(submit(shell("exit 0", 1)))


def relived(happened: Sequence[Event], config: Path) -> list[str]:
    """The journal that the same inputs lead to."""
    again: list[Event] = []
    pipeline = build_pipeline(load(config))
    Replay(history_of(happened), pipeline, observe=again.append).run()
    return in_order(again)


def in_order(journal: Sequence[Event]) -> list[str]:
    return [repr(event) for event in journal]
