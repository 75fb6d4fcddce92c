"""The relay of srun's tasks: an agent reaches only nodes of an attempt that runs on its own node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.core.model.inputs import agent_inputs
from controller.nodes import step_relay
from controller.nodes.link import NodeAway
from controller.nodes.step_relay import MAX_UNREAD_INPUT, RelayedTask, StepRelay, TaskAnswer
from tests.engine_harness import EngineHarness, default_pipeline, spec
from wire.agent.frames import ControllerFrame
from wire.agent.orders import CloseShell, OpenShell, ShellInput
from wire.agent.reports import AttemptStatus, ShellEnded, ShellOutput
from wire.agent.steps import InputTaken, OpenTask, RunTask, StepCall, StepNumber, TaskAway
from wire.job.steps import Step


class Session:
    """One connection of a link, which passes on what it gets."""

    def __init__(self, link: Link) -> None:
        self.relay = link.relay
        self.unread_bytes = 0


class Link:
    """A connection that keeps what is sent, and the commands that are opened."""

    def __init__(self) -> None:
        self.sent: list[ControllerFrame] = []
        self.tasks: list[RelayedTask] = []
        self.connection: object | None = object()
        """Each connection has another object; None while the node is away."""
        self._sessions: dict[object, Session] = {}

    def session(self) -> Session:
        if self.connection is None:
            raise NodeAway("the node is away")
        return self._sessions.setdefault(self.connection, Session(self))

    def send(self, frame: ControllerFrame) -> None:
        self.sent.append(frame)

    def relay(self, order: OpenShell, answer: Callable[[TaskAnswer], None]) -> RelayedTask:
        numbered = replace(order, request=40 + len(self.tasks))
        self.tasks.append(RelayedTask(numbered, answer))
        return self.tasks[-1]


@pytest.fixture
def cluster() -> tuple[StepRelay, dict[str, Link]]:
    """Job 1 runs on n1 and n2, job 2 on n3."""
    harness = EngineHarness(default_pipeline())
    for name in ("n1", "n2", "n3"):
        harness.join(name)
    jobs = [harness.submit(spec(16, nodes=2))]
    jobs.append(harness.submit(spec(8)))
    harness.tick()
    for job in jobs:
        harness.start(job)
    assert [harness.nodes_of(job) for job in jobs] == [["n1", "n2"], ["n3"]]
    links = {name: Link() for name in ("n1", "n2", "n3")}
    return StepRelay(lambda job: harness.state.jobs.get(job), links), links  # type: ignore[arg-type]


def test_messages_pass_between_the_nodes_of_a_job(cluster: tuple[StepRelay, dict[str, Link]]) -> None:
    relay, links = cluster
    relay.take("n1", OpenTask(7, 1, 1, "n2", ("true",)))
    [task] = links["n2"].tasks
    assert (task.order.job, task.order.command, task.order.step) == (1, ("true",), True)
    relay.take("n1", ShellInput(7, "aGk="))
    assert links["n2"].sent == [ShellInput(40, "aGk=")]
    task.receive(ShellOutput(40, "eW8="))
    task.receive(ShellEnded(40, 3))
    assert links["n1"].sent == [ShellOutput(7, "eW8="), ShellEnded(7, 3)]
    relay.take("n1", ShellInput(7, "bW9yZQ=="))
    assert len(links["n2"].sent) == 1, "the task has ended"


@pytest.mark.parametrize(
    ("node", "task"),
    [
        ("n1", OpenTask(7, 1, 1, "n3", ("id",))),
        ("n3", OpenTask(7, 1, 1, "n2", ("id",))),
        ("n1", OpenTask(7, 2, 1, "n3", ("id",))),
        ("n1", OpenTask(7, 1, 2, "n2", ("id",))),
        ("n1", OpenTask(7, 9, 1, "n2", ("id",))),
    ],
)
def test_nodes_outside_of_the_attempt_are_refused(
    cluster: tuple[StepRelay, dict[str, Link]], node: str, task: OpenTask
) -> None:
    relay, links = cluster
    relay.take(node, task)
    assert not any(link.tasks for link in links.values())
    [answer] = links[node].sent
    assert isinstance(answer, ShellEnded)
    assert "does not run on" in answer.error


def test_another_node_cannot_write_to_a_task(cluster: tuple[StepRelay, dict[str, Link]]) -> None:
    relay, links = cluster
    relay.take("n1", OpenTask(7, 1, 1, "n2", ("cat",)))
    relay.take("n3", ShellInput(7, "aGk="))
    relay.take("n3", CloseShell(7))
    assert links["n2"].sent == []


def test_a_lost_connection_ends_the_tasks(cluster: tuple[StepRelay, dict[str, Link]]) -> None:
    relay, links = cluster
    relay.take("n1", OpenTask(7, 1, 1, "n2", ("cat",)))
    relay.forget("n1")
    assert links["n2"].sent == [CloseShell(40)]
    relay.take("n1", OpenTask(8, 1, 1, "n2", ("cat",)))
    links["n2"].tasks[1].lose()
    assert isinstance(links["n1"].sent[-1], ShellEnded)


def test_a_task_that_outlives_connections_is_kept(cluster: tuple[StepRelay, dict[str, Link]]) -> None:
    relay, links = cluster
    relay.take("n1", RunTask(7, 1, 1, "n2", "a.0", ("cat",)))
    [first] = links["n2"].tasks
    assert (first.order.task, first.order.command, first.order.resume) == ("a.0", ("cat",), False)
    first.receive(InputTaken(40, 0))
    relay.forget("n1")
    assert links["n2"].sent == [CloseShell(40, keep=True)], "srun may come back"
    relay.take("n1", RunTask(1, 1, 1, "n2", "a.0", received=10, resume=True))
    second = links["n2"].tasks[1]
    assert (second.order.task, second.order.received, second.order.resume) == ("a.0", 10, True)
    second.receive(InputTaken(41, 5))
    second.lose()
    assert links["n1"].sent == [
        InputTaken(7, 0),
        InputTaken(1, 5),
        TaskAway(1, "the connection to the node was lost"),
    ]
    relay.take("n1", ShellInput(1, "aGk="))
    assert len(links["n2"].sent) == 1, "srun is not connected to the task now"


def test_a_task_on_a_node_that_is_away_is_postponed(cluster: tuple[StepRelay, dict[str, Link]]) -> None:
    relay, links = cluster
    links["n2"].connection = None
    relay.take("n1", RunTask(7, 1, 1, "n2", "a.0", ("cat",)))
    relay.take("n1", OpenTask(8, 1, 1, "n2", ("cat",)))
    assert links["n1"].sent == [
        TaskAway(7, "the node is away"),
        ShellEnded(8, error="the node is away"),
    ]


def test_a_task_waits_until_each_node_has_reported_its_start() -> None:
    """The script of the first node may run srun before the report of the second node has arrived."""
    harness = EngineHarness(default_pipeline())
    for name in ("n1", "n2"):
        harness.join(name)
    job = harness.submit(spec(16, nodes=2))
    harness.tick()
    links = {name: Link() for name in ("n1", "n2")}
    relay = StepRelay(lambda number: harness.state.jobs.get(number), links)  # type: ignore[arg-type]
    harness.tell(agent_inputs.AgentReported("n1", AttemptStatus(job, 1, pid=100, started_at=harness.now)))
    relay.take("n1", RunTask(7, job, 1, "n2", "a.0", ("true",)))
    assert links["n1"].sent == [TaskAway(7, "job 1 has not started on all of its nodes")]
    assert links["n2"].tasks == []
    relay.take("n2", StepCall(8, job, 1, Step()))
    assert [type(frame) for frame in links["n1"].sent[1:]] == [StepCall]
    harness.tell(agent_inputs.AgentReported("n2", AttemptStatus(job, 1, pid=100, started_at=harness.now)))
    relay.take("n1", RunTask(7, job, 1, "n2", "a.0", ("true",)))
    assert [task.order.task for task in links["n2"].tasks] == ["a.0"]


def test_input_for_a_node_that_reads_too_slowly_is_stopped(
    cluster: tuple[StepRelay, dict[str, Link]],
) -> None:
    relay, links = cluster
    relay.take("n1", RunTask(7, 1, 1, "n2", "a.0", ("cat",)))
    relay.take("n1", OpenTask(8, 1, 1, "n2", ("cat",)))
    links["n2"].session().unread_bytes = MAX_UNREAD_INPUT + 1
    for request in (7, 8, 7, 8):
        relay.take("n1", ShellInput(request, "aGk="))
    assert links["n2"].sent == [CloseShell(40, keep=True), CloseShell(41)], "no input is sent"
    away, ended = links["n1"].sent
    assert isinstance(away, TaskAway)
    assert isinstance(ended, ShellEnded)
    assert away.why == ended.error == "the connection to n2 is too slow for the input of the task"
    relay.take("n1", RunTask(7, 1, 1, "n2", "a.0", resume=True))
    assert links["n1"].sent[-1] == TaskAway(7, "the connection to n2 is too slow")
    links["n2"].session().unread_bytes = 0
    relay.take("n1", RunTask(7, 1, 1, "n2", "a.0", resume=True))
    assert len(links["n2"].tasks) == 3


def test_steps_of_other_nodes_go_to_the_first_node(cluster: tuple[StepRelay, dict[str, Link]]) -> None:
    relay, links = cluster
    relay.take("n2", StepCall(5, 1, 1, Step(name="far")))
    [call] = links["n1"].sent
    assert isinstance(call, StepCall)
    relay.take("n3", StepNumber(call.request, 99))
    assert links["n2"].sent == [], "only the first node answers"
    relay.take("n1", StepNumber(call.request, 4))
    assert links["n2"].sent == [StepNumber(5, 4)]
    relay.take("n3", StepCall(6, 1, 1, Step()))
    [refused] = links["n3"].sent
    assert isinstance(refused, StepNumber)
    assert refused.error == "job 1 does not run on n3"


def test_an_answer_for_an_agent_that_has_ended_reaches_no_other_srun(
    cluster: tuple[StepRelay, dict[str, Link]],
) -> None:
    """An agent numbers its requests from 1 again after a restart."""
    relay, links = cluster
    relay.take("n1", OpenTask(1, 1, 1, "n2", ("old",)))
    relay.take("n2", StepCall(1, 1, 1, Step(name="old")))
    [call] = links["n1"].sent
    assert isinstance(call, StepCall)
    links["n2"].connection = object()
    relay.take("n1", StepNumber(call.request, 4))
    assert links["n2"].sent == [], "n2 has connected again, and its request 1 is another one now"
    relay.forget("n1")
    links["n1"].sent.clear()
    relay.take("n1", OpenTask(1, 1, 1, "n2", ("new",)))
    old, new = links["n2"].tasks
    old.receive(ShellOutput(40, "b2xk"))
    old.receive(ShellEnded(40, 3))
    new.receive(ShellOutput(41, "bmV3"))
    assert links["n1"].sent == [ShellOutput(1, "bmV3")]
    links["n1"].connection = object()
    new.receive(ShellEnded(41, 3))
    assert len(links["n1"].sent) == 1


def test_a_step_is_refused_while_the_first_node_is_away(cluster: tuple[StepRelay, dict[str, Link]]) -> None:
    relay, links = cluster
    links["n1"].connection = None
    relay.take("n2", StepCall(5, 1, 1, Step(name="far")))
    [refused] = links["n2"].sent
    assert isinstance(refused, StepNumber)
    assert refused.error == "node n1 is away, and its agent records the steps of job 1"
    links["n1"].connection = object()
    relay.take("n1", StepNumber(1, 4))
    assert len(links["n2"].sent) == 1


def test_a_client_is_told_that_the_first_node_does_not_answer(
    cluster: tuple[StepRelay, dict[str, Link]], monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, links = cluster
    job = relay._job_of(1)
    assert job is not None
    monkeypatch.setattr(step_relay, "ANSWER_S", 0.01)
    with pytest.raises(NodeAway, match="n1 has not answered"):
        asyncio.run(relay.record(job, Step()))
    assert relay._calls == {}, "nothing is kept for an answer that will not come"
    links["n1"].connection = None
    with pytest.raises(NodeAway, match="n1 is away"):
        asyncio.run(relay.record(job, Step()))
