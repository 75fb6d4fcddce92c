"""The route for batch scripts gives the same job as the command sbatch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from wire.api.jobs import SbatchRequest
from wire.http.client import Refused

SCRIPT = (
    "#!/bin/bash\n#SBATCH -J routed -n 2 -t 10\n#SBATCH --hint=nomultithread\necho $SLURM_NTASKS $1 $COLOUR\n"
)


def test_route_and_command_give_the_same_job(slurm: SlurmFace) -> None:
    script = slurm.script("job.sh", SCRIPT)
    by_command = slurm.submit("-p", "gpu", script, "word", COLOUR="red")
    with slurm.cluster.client() as client:
        request = SbatchRequest(
            SCRIPT,
            name="job.sh",
            arguments=("word",),
            options={"partition": "gpu"},
            environment={**slurm.environment, "COLOUR": "red"},
            directory=str(slurm.place),
            key="once",
        )
        answer = client.sbatch(request)
        assert client.sbatch(request).ids == answer.ids
        assert "--hint has no effect" in answer.notes[0]
        assert slurm.output(answer.ids[0]) == "2 word red\n"
        specs = [client.job(job).spec for job in (by_command, answer.ids[0])]
    # Only the shell that runs sbatch knows its host and its umask.
    plain: list[Any] = [
        replace(
            spec,
            umask=None,
            env={
                name: value for name, value in spec.env.items() if name in ("COLOUR", "SLURM_NTASKS", "PATH")
            },
        )
        for spec in specs
    ]
    assert plain[0] == plain[1]


def test_all_errors_are_in_the_refusal(slurm: SlurmFace) -> None:
    with slurm.cluster.client() as client, pytest.raises(Refused) as refused:
        client.sbatch(SbatchRequest("#!/bin/sh\n#SBATCH --bb=x -t soon\n"))
    assert refused.value.problem.where == "script"
    assert "Write #CORRAL --scratch SIZE" in refused.value.problem.message
    assert "Invalid --time specification: 'soon'" in refused.value.problem.message


def test_route_refuses_an_unknown_reservation(slurm: SlurmFace) -> None:
    with slurm.cluster.client() as client, pytest.raises(Refused) as refused:
        client.sbatch(SbatchRequest("#!/bin/sh\n#SBATCH --reservation=unknown\n"))
    assert refused.value.problem.message == "Batch job submission failed: Requested reservation is invalid"
    assert "there is no reservation 'unknown'" in refused.value.problem.hint


def test_route_uses_the_first_of_several_partitions_and_says_so(slurm: SlurmFace) -> None:
    with slurm.cluster.client() as client:
        answer = client.sbatch(SbatchRequest("#!/bin/sh\n#SBATCH -p gpu,long\ntrue\n"))
        assert client.job(answer.ids[0]).spec.queue == "gpu"
    assert answer.notes[0] == "--partition: a job waits in one partition only; gpu is used"
