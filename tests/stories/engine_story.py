"""Runs a scheduling story: a text file of commands to the real engine, each with its expected outcome.

A line is `COMMAND ARGUMENTS -> OUTCOME; OUTCOME …`. Lines that begin with # are comments. The commands:

    cluster  n1 n2: 8 GPUs each      nodes of one kind (64 CPUs, 512 GiB each); more than one line is allowed
    config   KEY = VALUE             a line of scheduler.toml with its table, e.g. scheduler.backfill = "none"
    submit   a gpus=8 time=1h        submits job a; runs=30m if it ends early; after=b to wait for b
    cancel   a                       a user cancels job a
    drain    n1                      an operator drains node n1
    resume   n1                      an operator ends the drain of node n1
    reserve  course n1 from=01:00 for=2h user=ada   an operator reserves node n1 for a user
    unreserve course                 an operator cancels a reservation
    restart  web                     an operator restarts service web
    scale    web 3                   an operator sets the number of replicas of service web
    reload   KEY = VALUE             the controller applies the configuration with one more line
    fail     web.0                   the program of a job ends with exit code 1
    unhealthy web.0                  the health checks of a job fail
    lose     n1                      the connection to node n1 breaks and stays broken
    at       01:00                   lets everything happen until this time, and one scheduling cycle follows
    why      a                       the reason why job a waits, as `corral explain` gives it
    explain  a                       the changes that would start job a now

Times are hours and minutes since the start of the story. The outcome of a line is made of the events of the
engine, in their order, and ends with the reason why a submitted job waits.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from controller.config import Config
from controller.core.engine import Engine
from controller.core.forecast.forecast import forecast, fork
from controller.core.forecast.smallest_change import suggestions
from controller.core.invariants import find_violations
from controller.core.model.decision.decision import Accepted
from controller.core.model.events.attempts import (
    HealthChanged,
    JobEnded,
    JobGrew,
    JobPlaced,
    JobPreempted,
    JobRequeued,
    JobShrunk,
    StopRequested,
)
from controller.core.model.events.event import Event
from controller.core.model.events.nodes import NodeDrained, NodeWentAway, NodeWentDown
from controller.core.model.events.nominations import PreemptionPlanned
from controller.core.model.events.queued import JobQueued
from controller.core.model.inputs import (
    agent_inputs,
    controller_inputs,
    job_inputs,
    node_inputs,
    policy_inputs,
)
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.state import State
from controller.registry import build_pipeline
from controller.sim.cluster import nodes_of
from controller.sim.simulation import Simulation
from controller.sim.trace_job import TraceJob
from controller.sim.virtual_agents import PlannedRun
from wire.agent.reports import AttemptStatus
from wire.cluster.reservation import ReservationSpec
from wire.job.gangs import Gang
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, OnNodeLost, Until
from wire.names import JobState, Reason

ARROW = "->"
OUTCOME_COLUMN = 44
"""The column of the arrow in a rewritten story."""


def seconds(text: str) -> float:
    """A duration such as 90s, 30m, 1h or 1h30m, in seconds."""
    parts = re.findall(r"(\d+)([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration; write 90s, 30m or 1h30m")
    return float(
        sum(int(number) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[unit] for number, unit in parts)
    )


def moment(text: str) -> float:
    """The seconds from the start of the story to a time such as 01:30."""
    hours, minutes = text.split(":")
    return 3_600.0 * int(hours) + 60.0 * int(minutes)


def clock(at: float) -> str:
    """A moment of the story as HH:MM, with seconds where there are any."""
    minutes, rest = divmod(round(at), 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{rest:02}" if rest else text


FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "gpus": ("gpus", float),
    "nodes": ("nodes", int),
    "time": ("time_limit_s", seconds),
    "priority": ("priority", int),
    "project": ("project", str),
    "queue": ("queue", str),
    "reservation": ("reservation", str),
    "grace": ("grace_s", seconds),
    "on-node-lost": ("on_node_lost", OnNodeLost),
}
"""Arguments of `submit` that are fields of a JobSpec, and how each is read."""


@dataclass(frozen=True)
class Line:
    """One line of a story; a comment or an empty line has no command."""

    text: str
    command: str = ""
    arguments: str = ""
    outcome: str = ""

    def rewritten(self, outcome: str) -> str:
        """The line with this outcome."""
        if not self.command:
            return self.text
        left = f"{self.command:<8} {self.arguments}"
        return f"{left:<{OUTCOME_COLUMN}} {ARROW} {outcome}" if outcome else left


def lines_of(text: str) -> list[Line]:
    """The lines of a story."""
    found = []
    for line in text.splitlines():
        left, _, outcome = line.partition(ARROW)
        command, _, arguments = left.strip().partition(" ")
        if not command or command.startswith("#"):
            found.append(Line(line))
        else:
            found.append(Line(line, command, " ".join(arguments.split()), " ".join(outcome.split())))
    return found


class EngineStory:
    """The engine with virtual nodes, and the outcome of each command in words.

    1. `cluster` and `config` lines are collected; the engine is built when the first other command comes.
    2. A command is an input of the engine at the present moment; one scheduling cycle follows.
    3. Every event of the engine becomes a clause (`_clause`), or none. A job that was placed while a job
       before it waits is called backfilled.
    4. After every pass the invariants of the whole state are checked.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Any] = {}
        self._config: list[str] = []
        self._simulation: Simulation | None = None
        self._names: dict[int, str] = {}
        self._jobs: dict[str, int] = {}
        self._clauses: list[str] = []
        self._until = 0.0
        """The time of the last `at` line; events before it are told with their own time."""

    def run(self, text: str) -> str:
        """The story with the outcomes that the engine really gives."""
        return "".join(f"{line.rewritten(self._outcome(line))}\n" for line in lines_of(text))

    def _outcome(self, line: Line) -> str:
        if not line.command:
            return ""
        command = getattr(self, f"do_{line.command}", None)
        if command is None:
            known = ", ".join(name.removeprefix("do_") for name in dir(self) if name.startswith("do_"))
            raise ValueError(f"{line.text!r}: there is no command {line.command!r}; known are {known}")
        self._clauses = []
        command(line.arguments)
        return "; ".join(self._clauses)

    # --- commands ---

    def do_cluster(self, arguments: str) -> None:
        match = re.fullmatch(r"([\w ]+): (\d+) GPUs each", arguments)
        if match is None:
            raise ValueError(f"cluster {arguments!r}: write `cluster n1 n2: 8 GPUs each`")
        (facts,) = nodes_of(1, int(match[2]), 64, 512 * 1024, "H100").nodes.values()
        for name in match[1].split():
            gpus = tuple(replace(gpu, uuid=f"GPU-{name}-{gpu.index}") for gpu in facts.gpus)
            self._nodes[name] = replace(facts, gpus=gpus)

    def do_config(self, arguments: str) -> None:
        self._config.append(arguments)

    def do_submit(self, arguments: str) -> None:
        name, *words = arguments.split()
        given = dict(word.split("=", 1) for word in words)
        user, runs, least = given.pop("user", "ada"), given.pop("runs", ""), given.pop("min-nodes", "")
        after = tuple(Dependency(Until.OK, str(self._jobs[each])) for each in given.pop("after", "").split())
        asked = {FIELDS[key][0]: FIELDS[key][1](value) for key, value in given.items()}
        gang = {"gang": Gang(min_nodes=int(least), elastic=True)} if least else {}
        spec = JobSpec(command=("true",), name=name, after=after, **{"grace_s": 0.0, **asked, **gang})
        simulation = self._started
        reply = simulation.tell(job_inputs.Submit(spec, user)).reply
        if not isinstance(reply, Accepted):
            self._clauses.append(f"{name} is refused: {reply.message}")
            return
        (job,) = reply.jobs
        self._names[job], self._jobs[name] = name, job
        runtime = seconds(runs) if runs else spec.time_limit_s or float("inf")
        simulation.planned_runs[job] = PlannedRun(runtime)
        simulation.trace_jobs[job] = TraceJob(job, simulation.now, spec, runtime, user)
        self._pass()
        if simulation.engine.state.jobs[job].state is JobState.QUEUED:
            self._clauses.append(self._waits(job))

    def do_cancel(self, arguments: str) -> None:
        self._started.tell(job_inputs.Cancel(self._jobs[arguments], "ada"))
        self._pass()

    def do_drain(self, arguments: str) -> None:
        self._started.tell(node_inputs.Drain(arguments, "root", "story"))
        self._pass()

    def do_resume(self, arguments: str) -> None:
        self._started.tell(node_inputs.Resume(arguments, "root"))
        self._pass()

    def do_reserve(self, arguments: str) -> None:
        name, node, *words = arguments.split()
        given = dict(word.split("=", 1) for word in words)
        starts_at, lasts = max(1.0, moment(given["from"])), seconds(given["for"])
        asked = ReservationSpec(name, starts_at, lasts, (node,), users=(given["user"],))
        self._started.tell(policy_inputs.Reserve(asked, "root"))
        self._pass()

    def do_unreserve(self, arguments: str) -> None:
        self._started.tell(policy_inputs.CancelReservation(arguments, "root"))
        self._pass()

    def do_restart(self, arguments: str) -> None:
        self._started.tell(policy_inputs.RestartService(arguments, "root"))
        self._pass()

    def do_scale(self, arguments: str) -> None:
        name, number = arguments.split()
        self._started.tell(policy_inputs.ScaleService(name, int(number), "root"))
        self._pass()

    def do_reload(self, arguments: str) -> None:
        self._config.append(arguments)
        self._started.tell(controller_inputs.ApplyConfig("story", "root", self._pipeline()))
        self._pass()

    def do_fail(self, arguments: str) -> None:
        simulation, job = self._started, self._started.engine.state.jobs[self._jobs[arguments]]
        key = (job.id, job.attempt)
        for member in job.running:
            node, now = member.allocation.node, simulation.now
            simulation.tell(agent_inputs.AgentReported(node, AttemptStatus(*key, job.id, now, now, code=1)))
        self._pass()

    def do_unhealthy(self, arguments: str) -> None:
        job = self._started.engine.state.jobs[self._jobs[arguments]]
        self._started.tell(agent_inputs.HealthReported(job.id, job.attempt, healthy=False, why="exit code 1"))
        self._pass()

    def do_lose(self, arguments: str) -> None:
        self._started.lost_nodes.lose(arguments, "the cable is cut", crash=False)
        self._pass()

    def do_at(self, arguments: str) -> None:
        self._until = until = moment(arguments)
        simulation = self._started
        while simulation.next_at <= until:
            simulation.step()
            self._check()
        simulation.now = until
        self._pass()

    def do_why(self, arguments: str) -> None:
        self._clauses.append(self._reason(self._jobs[arguments]))

    def do_explain(self, arguments: str) -> None:
        simulation = self._started
        found = suggestions(fork(simulation.engine), self._jobs[arguments], simulation.now)
        self._clauses += [f"it would start now {each.sentence}" for each in found] or [
            "nothing starts it now"
        ]

    # --- the engine ---

    @property
    def _started(self) -> Simulation:
        if self._simulation is None:
            pipeline = self._pipeline()
            engine = Engine(pipeline, State(pipeline.order, sharing=pipeline.sharing))
            self._simulation = Simulation(engine, self._observe)
            for name, facts in self._nodes.items():
                self._simulation.add_node(name, facts)
        return self._simulation

    def _pipeline(self) -> Pipeline:
        lines = {line.partition("=")[0].strip(): line for line in self._config}
        return build_pipeline(Config.model_validate(tomllib.loads("\n".join(lines.values()))))

    def _pass(self) -> None:
        self._started.run_pass()
        self._check()

    def _check(self) -> None:
        violations = find_violations(self._started.engine.state)
        if violations:
            raise AssertionError("; ".join(violations))

    # --- words ---

    def _observe(self, event: Event) -> None:
        early = f" at {clock(event.at)}" if event.at < self._until else ""
        self._clauses += [f"{clause}{early}" for clause in self._clause(event)]

    def _clause(self, event: Event) -> Iterator[str]:
        """The event in words; nothing for events that a reader expects, such as the start of a placed job."""
        if isinstance(event, JobQueued) and event.replica is not None:
            # The second job of a replica number is web.0', the third is web.0''.
            name = event.spec.name
            while name in self._jobs:
                name += "'"
            self._names[event.job], self._jobs[name] = name, event.job
        name = self._names.get(getattr(event, "job", 0), "")
        if isinstance(event, JobPlaced):
            nodes = ",".join(allocation.node for allocation in event.allocations)
            ahead = self._waiting_ahead(event.job)
            yield f"{name} runs on {nodes}" + (f" (backfilled before {','.join(ahead)})" if ahead else "")
        elif isinstance(event, JobEnded):
            how = (
                "ended" if event.state is JobState.COMPLETED else str(event.reason.value or event.state.value)
            )
            yield f"{name} {'ended' if how in ('ended', 'time_limit') else f'ended: {how}'}"
        elif isinstance(event, JobPreempted):
            yield f"{name} is preempted for {self._named(event.by)}"
        elif isinstance(event, JobRequeued):
            yield f"{name} is queued again: {event.reason.value}"
        elif isinstance(event, JobShrunk):
            yield f"{name} gives up {','.join(event.nodes)}"
        elif isinstance(event, JobGrew):
            yield f"{name} grows to {','.join(each.node for each in event.allocations)}"
        elif isinstance(event, NodeWentAway):
            yield f"{event.node} is unreachable"
        elif isinstance(event, NodeWentDown):
            yield f"{event.node} is down"
        elif isinstance(event, NodeDrained):
            yield f"{event.node} is drained"
        elif isinstance(event, StopRequested) and event.reason in (Reason.SERVICE, Reason.UNHEALTHY):
            yield f"{name} is stopped: {event.by}"
        elif isinstance(event, HealthChanged):
            yield f"{name} is {'healthy' if event.healthy else 'unhealthy'}"
        elif isinstance(event, PreemptionPlanned) and not event.victims:
            yield f"{','.join(each.node for each in event.allocations)} is kept for {name}"

    def _named(self, by: str) -> str:
        """`job 3` by the name that the job has in the story; others are named as they are."""
        number = by.removeprefix("job ")
        return self._names.get(int(number), by) if number.isdigit() else by

    def _waiting_ahead(self, job: int) -> list[str]:
        """Names of jobs that were submitted before this one with at least its priority and still wait."""
        jobs = self._started.engine.state.jobs
        return [
            self._names[other.id]
            for other in jobs.values()
            if other.id < job and other.ready and other.spec.priority >= jobs[job].spec.priority
        ]

    def _reason(self, job: int) -> str:
        engine = self._started.engine
        why = engine.explain(engine.state.jobs[job], self._started.now)
        return f"{self._names[job]} waits ({why.reason.value}): {why.sentence}"

    def _waits(self, job: int) -> str:
        simulation = self._started
        start = forecast(fork(simulation.engine), simulation.now).starts.get(job)
        reason = simulation.engine.explain(simulation.engine.state.jobs[job], simulation.now).reason.value
        latest = (
            "" if start is None else f"; starts {clock(start.at)} at the latest on {','.join(start.nodes)}"
        )
        return f"{self._names[job]} waits: {reason}{latest}"
