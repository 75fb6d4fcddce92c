"""Chooses the partition (queue) of a job that names several partitions, such as --partition=gpu,long."""

from __future__ import annotations

import math
from dataclasses import replace

from cli.slurm.programs import SlurmError
from cli.slurm.refusals import is_unknown_partition, submit_refused
from cli.slurm.submit.sbatch_to_spec import BatchJob
from wire.api.forecasts import WhatIf
from wire.http.client import Client
from wire.http.transport import Refused
from wire.job.spec import JobSpec


def with_partition(job: BatchJob, action: str) -> BatchJob:
    """Return the job with the partition in which it is expected to start first, and a warning that names this
    partition.

    1. Ask for a preview of the job in each partition. A partition that refuses the job, for example because
       of its time limit, is left out. An unknown partition is an error, as in Slurm.
    2. Ask for the expected start of the job in each of the remaining partitions, and choose the partition
       with the earliest start. If several starts are equal, or no start is known, choose the partition that
       is named first.

    Raise SlurmError if a partition is unknown. If all partitions refuse the job, raise SlurmError with the
    reason of the first partition. `action`, such as `Batch job submission failed`, begins the last line of
    the error.

    Cost: two requests for each partition.

    Example: with --partition=gpu,long, a job of three hours is refused by `gpu` (at most two hours), and
    waits in `long`.
    """
    refused: list[SlurmError] = []
    starts: list[tuple[float, int, JobSpec]] = []
    with Client() as client:
        for place, name in enumerate(job.partitions):
            spec = replace(job.spec, queue=name)
            try:
                client.preview(spec)
            except Refused as refusal:
                error = submit_refused(refusal, spec, action)
                if is_unknown_partition(refusal):
                    raise error from None
                refused.append(error)
            else:
                starts.append((_start(client, spec), place, spec))
    if not starts:
        raise refused[0]
    spec = min(starts, key=lambda each: each[:2])[2]
    warning = f"a job waits in one partition only; it is expected to start first in {spec.queue}"
    return replace(job, spec=spec, warnings=(*job.warnings, f"--partition: {warning}"))


def _start(client: Client, spec: JobSpec) -> float:
    """Return the expected start of the job in seconds since 1970; infinity if it is not known."""
    try:
        answer = client.what_if(WhatIf(submit=(spec,)), only_first=True)
    except Refused:
        return math.inf
    return min((s.becomes for s in answer.shifts if s.new and s.becomes is not None), default=math.inf)
