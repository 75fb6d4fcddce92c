"""The commands of a story. Each command passes to the engine the same inputs as the `corral` command of that
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from controller.config import Config, digest, policy_text
from controller.core.input_handlers.bulk_orders import active_jobs, maker_of
from controller.core.model.decision.decision import Refusal
from controller.core.model.inputs import controller_inputs, node_inputs, policy_inputs
from controller.core.model.inputs.input import Input, NodeCommand
from controller.core.model.job import Job
from controller.registry import build_pipeline, nodes_of
from controller.sim.simulation import Simulation
from wire.agent.reports import NodeFacts
from wire.api.job_selection import AllJobs, ArrayElements, JobLabel, JobRange, JobsOf, parse_selection
from wire.api.jobs import JobsOrder
from wire.cluster.reservation import ReservationSpec
from wire.text import counted

ADMIN = "admin"
"""The user that gives all commands of a story. This user may do everything."""
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one command of a story: a text about what was done, and the engine's message for each
    refused input.
    """

    done: str = ""
    refused: tuple[str, ...] = ()


class StoryCommand(Protocol):
    def carry_out(self, simulation: Simulation) -> Result:
        """Pass the inputs of the command to the engine at the present time of the simulation."""
        ...


@dataclass(frozen=True, slots=True)
class Give:
    """A command that passes one input to the engine, such as SetShare."""

    given: Input

    def carry_out(self, simulation: Simulation) -> Result:
        return _told(simulation, self.given, "done")


@dataclass(frozen=True, slots=True)
class MakeReservation:
    """Reserves nodes, as `corral reserve create` does."""

    spec: ReservationSpec
    anyway: bool

    def carry_out(self, simulation: Simulation) -> Result:
        result = _told(simulation, policy_inputs.Reserve(self.spec, ADMIN, self.anyway))
        found = simulation.engine.state.reservations.by_name.get(self.spec.name)
        return result if result.refused or found is None else Result(f"reserved {_listed(found.nodes)}")


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The nodes to which a command applies: the nodes in `names`, and, unless `labels` is empty, the nodes
    that have all `labels` when the command is carried out.
    """

    names: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def nodes(self, simulation: Simulation) -> list[str]:
        found = [
            node.name
            for node in simulation.engine.state.nodes
            if self.labels
            and all(node.effective_labels.get(key) == value for key, value in self.labels.items())
        ]
        return list(dict.fromkeys([*self.names, *found]))


@dataclass(frozen=True, slots=True)
class OnNodes:
    """Passes one command to the engine for each node, such as Drain, Resume, RemoveNode or MarkNode."""

    choice: NodeChoice
    kind: Callable[..., NodeCommand]
    values: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the input `kind`, by name, such as the reason of a drain."""

    def carry_out(self, simulation: Simulation) -> Result:
        return _on_each(
            simulation,
            self.choice.nodes(simulation),
            lambda name: _refusals(simulation, self.kind(name, ADMIN, **self.values)),
        )


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Adds nodes, and connects their agents at once."""

    nodes: Mapping[str, NodeFacts]

    def carry_out(self, simulation: Simulation) -> Result:
        present = simulation.engine.state.nodes.by_name
        refused = tuple(f"node {name} exists already" for name in self.nodes if name in present)
        added = {name: facts for name, facts in self.nodes.items() if name not in present}
        for name, facts in added.items():
            simulation.tell(node_inputs.AddNode(name, facts.labels, by=ADMIN))
            simulation.add_node(name, facts)
        gpus = sum(len(facts.gpus) for facts in added.values())
        return Result(f"added {_listed(added)} with {counted(gpus, 'GPU')}" if added else "", refused)


@dataclass(frozen=True, slots=True)
class LoseNodes:
    """Ends the connections to nodes. If `crash` is True, the processes on the nodes end too."""

    choice: NodeChoice
    crash: bool

    def carry_out(self, simulation: Simulation) -> Result:
        why = "the host has crashed" if self.crash else "the network is down"

        def lose(name: str) -> list[str]:
            simulation.lost_nodes.lose(name, why, crash=self.crash)
            return []

        return _on_each(simulation, self.choice.nodes(simulation), lose)


@dataclass(frozen=True, slots=True)
class ReturnNodes:
    """Connects the agents of lost nodes again."""

    choice: NodeChoice

    def carry_out(self, simulation: Simulation) -> Result:
        def connect(name: str) -> list[str]:
            if name not in simulation.lost_nodes.lost_at:
                return [f"node {name} is connected"]
            simulation.lost_nodes.connect(name, simulation.engine.state.nodes.by_name[name].facts)
            return []

        return _on_each(simulation, self.choice.nodes(simulation), connect)


@dataclass(frozen=True, slots=True)
class OnJobs:
    """Carries out an action, such as cancel, on all selected jobs. Job numbers are the numbers in the log."""

    order: JobsOrder

    def carry_out(self, simulation: Simulation) -> Result:
        make, done, refused = maker_of(self.order, ADMIN), 0, []
        for word in self.order.jobs:
            jobs = _jobs(simulation, word)
            if not jobs:
                refused.append(f"{word} selects no job that waits or runs")
            for job in jobs:
                # Skip a job that has ended, because the cancel of a job also cancels the jobs that depend on
                # it, and these jobs may be in the list.
                if not job.state.terminal:
                    told = _refusals(simulation, make(job))
                    refused += told
                    done += not told
        return Result(counted(done, "job"), tuple(refused))


def _jobs(simulation: Simulation, word: str) -> list[Job]:
    state, selection = simulation.engine.state, parse_selection(word)
    if isinstance(selection, AllJobs | JobsOf):
        return active_jobs(state, selection)
    by_id = {job.id: job for job in state.live() if job.id in simulation.trace_jobs}
    numbered = [(simulation.trace_jobs[number].number, job) for number, job in sorted(by_id.items())]
    match selection:
        case JobRange(low, high):
            return [job for number, job in numbered if low <= number <= high]
        case ArrayElements(array, indices):
            return [job for number, job in numbered if number == array and job.index in indices]
        case JobLabel(text):
            first, _, index = text.partition("_")
            return [job for at, job in numbered if at == int(first) and index in ("", str(job.index))]
    return [job for _, job in numbered[-1:]]


@dataclass(frozen=True, slots=True)
class RestartController:
    """Restarts the controller, or replaces it by another version. Both take no simulated time."""

    def carry_out(self, simulation: Simulation) -> Result:
        simulation.restart()
        return Result("restarted")


@dataclass(frozen=True, slots=True)
class ApplyConfig:
    """Applies another scheduler.toml, as `corral config apply` does."""

    config: Config
    nodes: Mapping[str, NodeFacts] | None
    """The nodes in the new scheduler.toml; None if the simulated nodes do not come from a scheduler.toml."""

    def carry_out(self, simulation: Simulation) -> Result:
        pipeline = build_pipeline(self.config)
        simulation.tell(
            controller_inputs.ApplyConfig(digest(self.config), ADMIN, pipeline, (), policy_text(self.config))
        )
        if self.nodes is None:
            return Result("applied")
        before = {node.name for node in simulation.engine.state.nodes}
        for given in nodes_of(self.config):
            simulation.tell(given)
        for name, facts in self.nodes.items():
            if name not in before:
                simulation.add_node(name, facts)
        refused: list[str] = []
        for name in sorted(before - set(self.nodes)):
            told = _refusals(simulation, node_inputs.RemoveNode(name, ADMIN))
            if told:
                simulation.tell(node_inputs.Drain(name, ADMIN, "no longer in scheduler.toml"))
                refused += [f"{message}; it is drained" for message in told]
        return Result("applied", tuple(refused))


def _told(simulation: Simulation, given: Input, done: str = "") -> Result:
    refused = _refusals(simulation, given)
    return Result("" if refused else done, tuple(refused))


def _refusals(simulation: Simulation, given: Input) -> list[str]:
    reply = simulation.tell(given).reply
    return [reply.message] if isinstance(reply, Refusal) else []


def _on_each(simulation: Simulation, names: Sequence[str], act: Callable[[str], list[str]]) -> Result:
    """Call `act` for each node. `act` returns the messages of refused inputs. The result names the nodes
    without a refusal, and contains the messages of all refusals.
    """
    by_name = simulation.engine.state.nodes.by_name
    done, refused, jobs = [], [], set()
    for name in names:
        if name not in by_name:
            refused.append(f"there is no node {name} at this time")
            continue
        jobs |= set(by_name[name].held)
        told = act(name)
        refused += told
        if not told:
            done.append(name)
    on_them = f", {counted(len(jobs), 'job')} there" if jobs and done else ""
    return Result(f"{_listed(done)}{on_them}" if done else "", tuple(refused))


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:_SHOWN]) + (f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else "")
