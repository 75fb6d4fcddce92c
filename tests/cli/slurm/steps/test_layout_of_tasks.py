"""The number of tasks of a step, and the CPUs that the tasks need."""

from __future__ import annotations

import pytest

from cli.slurm.arguments import parse
from cli.slurm.programs import SlurmError
from cli.slurm.steps.layout import layout
from cli.slurm.submit.srun import OPTIONS

TWO_CPUS = {"SLURM_JOB_CPUS_PER_NODE": "2(x2)"}


@pytest.mark.parametrize(
    ("words", "variables", "counts"),
    [
        (["-n", "4"], TWO_CPUS, "2(x2)"),
        (["-n", "9", "--overcommit"], TWO_CPUS, "5,4"),
        # A job of corral submit may have more tasks than CPUs, and srun starts all of them.
        ([], {**TWO_CPUS, "SLURM_NTASKS": "8"}, "4(x2)"),
        (["-n", "9"], {}, "5,4"),
    ],
)
def test_counts(words: list[str], variables: dict[str, str], counts: str) -> None:
    assert layout(parse(OPTIONS, words), ["n1", "n2"], variables).counts() == counts


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        (["-x", "n1"], ("n2", "n3")),
        (["-x", "n[1-2]", "-N", "1"], ("n3",)),
        (["-r", "1", "-N", "1"], ("n2",)),
        (["-r", "2"], ("n3",)),
        (["-w", "n[1,3]", "-x", "n3"], ("n1",)),
    ],
)
def test_nodes(words: list[str], nodes: tuple[str, ...]) -> None:
    assert layout(parse(OPTIONS, words), ["n1", "n2", "n3"], {}).nodes == nodes


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-n", "5"], "the step needs 5 CPUs, and the job has 4 on 2 nodes"),
        (["-n", "2", "-c", "3"], "the step needs 6 CPUs, and the job has 4 on 2 nodes"),
        (["-N", "1", "-n", "3"], "the step needs 3 CPUs, and the job has 2 on 1 nodes"),
        (["-w", "n[1-"], "is not a list of hosts"),
        (["-x", "n[1-2]"], "Requested node configuration is not available"),
        (["-r", "2"], "Requested node configuration is not available"),
        (["-r", "x"], 'Invalid numeric value "x" for --relative.'),
    ],
)
def test_refusals(words: list[str], sentence: str) -> None:
    with pytest.raises(SlurmError) as refused:
        layout(parse(OPTIONS, words), ["n1", "n2"], TWO_CPUS)
    assert sentence in refused.value.lines[0]
