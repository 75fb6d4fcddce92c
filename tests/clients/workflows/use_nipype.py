"""Uses Nipype with its Slurm plugin as its documentation shows: a map over jobs, and a node that fails."""

from __future__ import annotations

import logging
from typing import Any

from nipype import Function, MapNode, Node, Workflow

ARGS = {
    "sbatch_args": "--partition=gpu --mem=1G --time=5",
    "dont_resubmit_completed_jobs": False,
}


def square(number: int) -> int:
    """A task."""
    return number * number


def total(numbers: list[int]) -> int:
    """A task that needs the others."""
    return sum(numbers)


def fail() -> int:
    """A task with an error."""
    raise ValueError("wrong")


def node(kind: Any, function: Any, inputs: list[str], **more: Any) -> Any:
    """A node of a workflow."""
    return kind(Function(input_names=inputs, output_names=["out"], function=function), **more)


def main() -> None:
    """Print one line for each use."""
    logging.disable(logging.CRITICAL)
    squares = node(MapNode, square, ["number"], name="squares", iterfield=["number"])
    squares.inputs.number = [1, 2, 3]
    sums = node(Node, total, ["numbers"], name="sums")
    flow: Any = Workflow("flow", base_dir="work")
    flow.connect(squares, "out", sums, "numbers")
    done = flow.run(plugin="SLURM", plugin_args=ARGS)
    [result] = [each.result.outputs.out for each in done.nodes() if each.name == "sums"]
    print("sum", result)
    broken: Any = Workflow("broken", base_dir="work")
    broken.config["execution"]["crashdump_dir"] = "crashes"
    broken.add_nodes([node(Node, fail, [], name="fails")])
    try:
        broken.run(plugin="SLURM", plugin_args=ARGS)
    except (RuntimeError, ValueError) as error:
        print("failed", "wrong" in str(error) or "not raise" in str(error) or type(error).__name__)


if __name__ == "__main__":
    main()
