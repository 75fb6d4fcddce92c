"""srun with an agent that closes connections, which a script plays."""

from __future__ import annotations

import queue
import socket
import threading
from base64 import b64decode
from collections.abc import Iterator, Set
from dataclasses import replace
from pathlib import Path

import pytest

from cli.slurm.steps.agent_link import AgentLink
from cli.slurm.steps.links import LinkLost, RemoteCommand, TaskEnd
from cli.slurm.steps.remote_tasks import RemoteTasks
from tests.limits import PATIENCE_S
from wire.agent.frames import Frame, pack, unpack
from wire.agent.orders import ShellInput
from wire.agent.reports import ShellEnded, ShellOutput
from wire.agent.steps import InputTaken, RunTask, StepCall, StepHello, StepNumber, TaskAway
from wire.job.steps import Step


class ScriptedAgent:
    """Answers StepCall and RunTask. Closes the connections with the numbers in `at_once` after StepHello,
    those in `answered` after the first answer, and the first connection when input of a task comes.
    """

    def __init__(self, path: str, at_once: set[int], answered: Set[int] = frozenset()) -> None:
        self.said: queue.Queue[tuple[int, Frame]] = queue.Queue()
        self._at_once = at_once
        self._answered = answered
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        number = 0
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            number += 1
            with sock, sock.makefile("rwb") as file:
                for line in file:
                    frame = unpack(line)
                    self.said.put((number, frame))
                    if number in self._at_once or (number == 1 and isinstance(frame, ShellInput)):
                        break
                    answers = [*self._answers(frame)]
                    file.writelines(map(pack, answers))
                    file.flush()
                    if answers and number in self._answered:
                        break

    def _answers(self, frame: Frame) -> Iterator[Frame]:
        if isinstance(frame, StepCall):
            yield StepNumber(frame.request, 0)
        elif isinstance(frame, RunTask):
            yield InputTaken(frame.request)
        elif isinstance(frame, ShellInput) and frame.end:
            yield ShellOutput(frame.request, frame.data, "stdout")
            yield ShellEnded(frame.request, code=4)

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("closed", [0, 1, 5])
def test_a_task_goes_on_after_agents_that_close_connections_at_once(tmp_path: Path, closed: int) -> None:
    agent = ScriptedAgent(str(tmp_path / "s"), set(range(2, 2 + closed)))
    link = AgentLink(str(tmp_path / "s"), "1.1", "mark")
    link.connect()
    assert link.record(Step(name="mine")) == 0
    output: queue.Queue[tuple[str, bytes]] = queue.Queue()
    end: queue.Queue[TaskEnd] = queue.Queue()
    link.open(3, "n2", RemoteCommand(("cat",)), lambda *said: output.put(said), end.put)
    link.write(3, b"given")
    link.write(3, b"", end=True)
    assert output.get(timeout=PATIENCE_S) == ("stdout", b"given")
    assert end.get(timeout=PATIENCE_S).code == 4
    link.close()
    agent.close()
    said = [agent.said.get_nowait() for _ in range(agent.said.qsize())]
    last = [frame for number, frame in said if number == 2 + closed]
    assert isinstance(last[0], StepHello)
    runs = [frame for frame in last if isinstance(frame, RunTask)]
    assert [run.resume for run in runs] == [True], "the agent was asked once for the task"
    assert b"".join(b64decode(frame.data) for frame in last if isinstance(frame, ShellInput)) == b"given"


def test_srun_gives_up_an_agent_that_closes_each_connection(tmp_path: Path) -> None:
    agent = ScriptedAgent(str(tmp_path / "s"), set(range(1, 100)))
    link = AgentLink(str(tmp_path / "s"), "1.1", "mark")
    link.connect()
    with pytest.raises(LinkLost, match="does not answer"):
        link.record(Step(name="mine"))
    link.close()
    agent.close()


def test_srun_connects_again_if_the_connection_ends_with_the_number_of_the_step(tmp_path: Path) -> None:
    for _ in range(5):
        agent = ScriptedAgent(str(tmp_path / "s"), set(), {1})
        link = AgentLink(str(tmp_path / "s"), "1.1", "mark")
        link.connect()
        step = Step(name="mine")
        assert link.record(step) == 0
        said = []
        while not said or not isinstance(said[-1][1], StepCall) or said[-1][0] == 1:
            said.append(agent.said.get(timeout=PATIENCE_S))
        assert said[-1][1].step == replace(step, number=0)
        assert link.record(replace(step, number=0, ended_at=1.0)) == 0
        link.close()
        agent.close()
        (tmp_path / "s").unlink()


def test_a_task_is_requested_once_over_each_connection() -> None:
    sent: list[Frame] = []

    def send(frame: Frame) -> bool:
        sent.append(frame)
        return True

    tasks = RemoteTasks("step", send)
    tasks.open(3, "n2", RemoteCommand(("cat",)), lambda *_: None, lambda _: None)
    tasks.connect_all()
    assert len(sent) == 1, "the request over this connection is not answered yet"
    tasks.disconnect()
    tasks.connect_all()
    assert len(sent) == 2
    tasks.take(TaskAway(3, "the node is away"))
    tasks.connect_all()
    tasks.connect_all()
    assert len(sent) == 3
    assert all(isinstance(frame, RunTask) and not frame.resume for frame in sent)
