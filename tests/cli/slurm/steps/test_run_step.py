"""The tasks of a step: what srun sends to other nodes."""

from __future__ import annotations

from collections.abc import Callable

from cli.slurm.arguments import Arguments
from cli.slurm.steps.layout import Task
from cli.slurm.steps.links import Output, RemoteCommand, TaskEnd
from cli.slurm.steps.run_step import StepTasks, TaskCommand
from wire.job.steps import Step


class Recorder:
    """A link that records the commands for other nodes, and ends each at once."""

    def __init__(self) -> None:
        self.commands: list[RemoteCommand] = []

    def connect(self) -> None:
        pass

    def record(self, step: Step) -> int:
        return step.number

    def update(self, step: Step) -> None:
        pass

    def open(
        self, rank: int, node: str, command: RemoteCommand, output: Output, end: Callable[[TaskEnd], None]
    ) -> None:
        assert (rank, node) == (1, "n2")
        self.commands.append(command)
        output("stdout", b"said\n")
        end(TaskEnd(3))

    def write(self, rank: int, data: bytes, *, end: bool = False, pmi: bool = False) -> None:
        pass

    def signal(self, number: int) -> None:
        pass

    def close(self) -> None:
        pass


def test_variables_for_other_nodes_are_not_in_the_arguments() -> None:
    """All users of a host can read the arguments of its processes."""
    link = Recorder()
    variables = {"TOKEN": "secret", "CORRAL_MARK": "of this node", "SLURM_PROCID": "1"}
    tasks = StepTasks(Step(number=0), "7", "n1", link, Arguments(), variables)
    task = Task(1, 0, "n2", 1)
    assert tasks.run([TaskCommand(task, ["train", "--fast"], variables)], [0, 1], pmi=False) == 3
    [command] = link.commands
    assert command.words[-2:] == ("train", "--fast")
    assert not [word for word in command.words if "secret" in word]
    assert command.variables == {"TOKEN": "secret", "SLURM_PROCID": "1"}
