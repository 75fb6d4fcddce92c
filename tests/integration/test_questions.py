"""The process that answers questions, beside a real controller: it never outlives it, and never holds it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.systems import System, system
from wire.http.client import Client
from wire.job.spec import JobSpec

BUSY = JobSpec(command=("sleep", "600"), gpus=8, time_limit_s=3600.0)


def replicas(controller: int) -> list[int]:
    """Processes that answer questions for a controller."""
    found = []
    for name in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{name}/stat").read_text().rpartition(")")
        except OSError:
            continue
        if words[0].endswith("(corral-replica") and int(words[2].split()[1]) == controller:
            found.append(int(name))
    return found


def ask(client: Client) -> None:
    """A question that has to be foreseen."""
    told = client.explain(2)
    assert told.starts_at is not None
    assert told.complete


def asked(there: System) -> int:
    """Ask something; the replica that answered."""
    with there.client() as client:
        client.submit(BUSY)
        client.submit(BUSY)
        ask(client)
    [found] = replicas(there.controller.pid)
    return found


def test_it_ends_with_the_controller_however_that_ends() -> None:
    with system() as there:
        there.start()
        replica = asked(there)
        there.kill()
        there.until(lambda: not Path(f"/proc/{replica}").exists(), "the replica is gone")
        there.start()
        with there.client() as client:
            ask(client)
        [replica] = replicas(there.controller.pid)
        assert there.stop() == 0
        there.until(lambda: not Path(f"/proc/{replica}").exists(), "the replica is gone")


def test_it_holds_nothing_of_the_controller() -> None:
    with system() as there:
        there.start()
        replica = asked(there)
        held = {os.readlink(f"/proc/{replica}/fd/{name}") for name in os.listdir(f"/proc/{replica}/fd")}
        files = {each for each in held if each.startswith("/") and not each.startswith("/dev/")}
        assert files <= {str(there.log)}, "neither the store nor its lock"
        assert len([each for each in held if each.startswith("socket:")]) == 1


def test_it_is_made_again_when_it_was_killed() -> None:
    with system() as there:
        there.start()
        replica = asked(there)
        os.kill(replica, signal.SIGKILL)
        there.until(lambda: not Path(f"/proc/{replica}").exists(), "the replica is gone")
        with there.client() as client:
            ask(client)
        assert replicas(there.controller.pid) not in ([], [replica])
