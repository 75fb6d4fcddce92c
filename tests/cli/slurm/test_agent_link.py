"""srun with an agent of the version before, which a script plays."""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.slurm.steps.agent_link import AgentLink
from cli.slurm.steps.links import RemoteCommand, TaskEnd
from tests.limits import PATIENCE_S
from wire.job.steps import Step

KNOWN = {
    "step_hello": {"attempt", "mark"},
    "step_call": {"request", "job", "attempt", "step"},
    "open_task": {"request", "job", "attempt", "node", "command", "pmi", "variables"},
    "shell_input": {"request", "data", "end", "pmi"},
    "shell_taken": {"request", "size"},
}


class OldAgent:
    """Accepts only the messages that the agent of the version before knew, as that agent did."""

    def __init__(self, path: str) -> None:
        self.said: queue.Queue[dict[str, Any]] = queue.Queue()
        self.hellos = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock, sock.makefile("rwb") as file:
                for line in file:
                    message = json.loads(line)
                    kind = message.pop("t")
                    self.hellos += kind == "step_hello"
                    if message.keys() - KNOWN.get(kind, set()):
                        break
                    self.said.put({"t": kind, **message})
                    for answer in self._answers(kind, message):
                        file.write(json.dumps(answer).encode() + b"\n")
                    file.flush()

    def _answers(self, kind: str, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if kind == "step_call":
            yield {"t": "step_number", "request": message["request"], "number": 0, "error": ""}
        elif kind == "shell_input" and message["end"]:
            yield {"t": "shell_output", "request": message["request"], "data": "eW8=", "stream": "stdout"}
            yield {"t": "shell_ended", "request": message["request"], "code": 4}

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def old(tmp_path: Path) -> Iterator[OldAgent]:
    agent = OldAgent(str(tmp_path / "s"))
    yield agent
    agent.close()


def test_tasks_start_with_an_agent_of_the_version_before(old: OldAgent, tmp_path: Path) -> None:
    link = AgentLink(str(tmp_path / "s"), "1.1", os.urandom(4).hex())
    link.connect()
    assert link.record(Step(name="mine")) == 0
    assert old.hellos == 3, "two with a version, one without"
    output: queue.Queue[tuple[str, bytes]] = queue.Queue()
    end: queue.Queue[TaskEnd] = queue.Queue()
    link.open(3, "n2", RemoteCommand(("cat",)), lambda *said: output.put(said), end.put)
    link.write(3, b"x" * 200_000)
    link.write(3, b"", end=True)
    assert output.get(timeout=PATIENCE_S) == ("stdout", b"yo")
    assert end.get(timeout=PATIENCE_S).code == 4
    kinds = [old.said.get(timeout=PATIENCE_S)["t"] for _ in range(5)]
    assert kinds == ["step_hello", "step_call", "open_task", "shell_input", "shell_input"]
    link.close()
