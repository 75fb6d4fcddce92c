"""The engine copy of a real controller ends with the controller, and keeps none of its files open."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

from tests.systems import System, system
from wire.http.client import Client
from wire.job.spec import JobSpec

BUSY = JobSpec(command=("sleep", "600"), gpus=8, time_limit_s=3600.0)


def copies(controller: int) -> list[int]:
    """Processes that answer questions for a controller."""
    found = []
    for name in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{name}/stat").read_text().rpartition(")")
        except OSError:
            continue
        if words[0].endswith("(corral-copy") and int(words[2].split()[1]) == controller:
            found.append(int(name))
    return found


def ask(client: Client) -> None:
    """Send a question that needs a forecast."""
    told = client.explain(2, within_s=10.0)
    assert told.starts_at is not None
    assert told.complete


def copy_of(running: System) -> int:
    """Send a question, and return the process that answered."""
    with running.client() as client:
        client.submit(BUSY)
        client.submit(BUSY)
        ask(client)
    [found] = copies(running.controller.pid)
    return found


def test_engine_copy_ends_with_the_controller_in_any_case() -> None:
    with system() as running:
        running.start()
        copy = copy_of(running)
        running.kill()
        running.until(lambda: not Path(f"/proc/{copy}").exists(), "the engine copy is gone")
        running.start()
        with running.client() as client:
            ask(client)
        [copy] = copies(running.controller.pid)
        assert running.stop() == 0
        running.until(lambda: not Path(f"/proc/{copy}").exists(), "the engine copy is gone")


def test_engine_copy_holds_no_files_of_the_controller() -> None:
    with system() as running:
        running.start()
        copy = copy_of(running)
        held = {os.readlink(f"/proc/{copy}/fd/{name}") for name in os.listdir(f"/proc/{copy}/fd")}
        files = {each for each in held if each.startswith("/") and not each.startswith("/dev/")}
        assert files <= {str(running.log)}, "neither the store nor its lock"
        assert len([each for each in held if each.startswith("socket:")]) == 1


def test_killed_engine_copy_is_started_again() -> None:
    with system() as running:
        running.start()
        copy = copy_of(running)
        os.kill(copy, signal.SIGKILL)
        running.until(lambda: not Path(f"/proc/{copy}").exists(), "the engine copy is gone")
        with running.client() as client:
            ask(client)
        assert copies(running.controller.pid) not in ([], [copy])


def test_explain_shows_why_a_running_job_is_on_its_node() -> None:
    with system("gpu01", "gpu02") as running:
        running.start()
        with running.client() as client:
            for _ in range(2):
                client.submit(replace(BUSY, gpus=2))
            running.until(lambda: all(client.job(job).job.held for job in (1, 2)), "both jobs are placed")
            for job in (1, 2):
                answer = client.explain(job)
                assert {each.node for each in answer.why.nodes} == {"gpu01", "gpu02"}
                chosen = {each.node for each in answer.why.nodes if each.chosen}
                assert chosen == {each.node for each in answer.job.held}
