"""A story: the commands of an operator with their times, and the outcome of each command in a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from controller.sim.cluster import CapacityChange, Cluster
from controller.sim.simulation import REQUEST, Simulation
from controller.sim.story.commands import Result, StoryCommand
from wire.agent.reports import NodeFacts


@dataclass(frozen=True, slots=True)
class StoryStep:
    """One line of a story. `line` is its number in the file. `at_s` is its time in seconds, on the same scale
    as the submit times in the job log. `when` is this time as text, such as `day 3 08:00`, and `words` is the
    command as in the file.
    """

    line: int
    at_s: float
    when: str
    words: str
    command: StoryCommand


@dataclass(frozen=True, slots=True)
class StoryOutcome:
    """The outcome of one line of a story."""

    line: int
    at_s: float
    when: str
    words: str
    done: str
    refused: tuple[str, ...]
    """The engine's message for each refused input of the command."""

    @property
    def text(self) -> str:
        """Return the outcome as text, such as "gpu01, gpu02, 3 jobs there; refused: there is no node gpu03 at
        this time".
        """
        count = len(self.refused)
        more = f" ({count - 1} more)" if count > 1 else ""
        refused = [f"refused: {self.refused[0]}{more}"] if count else []
        return "; ".join([*([self.done] if self.done else []), *refused])


class StoryRun:
    """Carries out the steps of a story at their times in a simulation.

    If jobs end or are submitted at the time of a step, this comes first. Then the step is carried out, and
    then a scheduling cycle runs.
    """

    def __init__(self, simulation: Simulation, steps: Sequence[StoryStep]) -> None:
        self._simulation = simulation
        self.outcomes: list[StoryOutcome] = []
        self.capacity: list[CapacityChange] = []
        """The changes of the cluster's capacity by nodes that the story added or removed."""
        self.added: dict[str, NodeFacts] = {}
        """The nodes that the story has added."""
        for step in steps:
            simulation.schedule(step.at_s, REQUEST, partial(self._carry_out, step))

    def _carry_out(self, step: StoryStep, now: float) -> None:
        before = self._facts()
        result: Result = step.command.carry_out(self._simulation)
        self.outcomes.append(StoryOutcome(step.line, now, step.when, step.words, result.done, result.refused))
        after = self._facts()
        if after.keys() != before.keys():
            self.added |= {name: facts for name, facts in after.items() if name not in before}
            had, has = Cluster(before), Cluster(after)
            self.capacity.append(CapacityChange(now, has.gpus - had.gpus, has.cpu_milli - had.cpu_milli))

    def _facts(self) -> dict[str, NodeFacts]:
        return {node.name: node.facts for node in self._simulation.engine.state.nodes}
