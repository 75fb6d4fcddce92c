"""sbatch: submits a batch script."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import replace
from typing import Any, BinaryIO

from cli.slurm.arguments import COMMON, Arguments, parse, prints_only_help
from cli.slurm.programs import SlurmError
from cli.slurm.refusals import submit_refused, unknown_reservation, unreachable
from cli.slurm.show.controller import controller
from cli.slurm.submit.sbatch_to_spec import BatchJob, BatchRequest, batch_job
from cli.spec.job_script import MAX_ARGUMENT_BYTES
from cli.spec.sbatch.options import BATCH_OPTIONS
from wire.codec import dumps, encode_once
from wire.http.transport import Refused, Unreachable
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, Until
from wire.names import SHOWN_STATES

OPTIONS = (*BATCH_OPTIONS, *COMMON)
USAGE = "sbatch [OPTIONS] script [args...]"
_PAUSES = (0.0, 0.2, 1.0, 2.0)
"""Seconds to wait before each repetition of the submit request after a lost connection. All repetitions have
the same idempotency key, so that no second job is made.
"""
_UNKNOWN_START = "The job is valid; its start is unknown"
_WRAPPED = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{}\n"


def main(words: list[str]) -> int:
    """Submit a batch script, and print the id of the job when the job is on disk."""
    arguments = parse(OPTIONS, words, intersperse=False)
    if prints_only_help(arguments, USAGE, OPTIONS):
        return 0
    job = batch_job(_request(arguments))
    test = "--test-only" in job.flags
    action = "allocation failure" if test else "Batch job submission failed"
    try:
        require_reservations(job, action)
        job = in_best_partition(job, action)
        for warning in job.warnings:
            print(f"sbatch: warning: {warning}", file=sys.stderr)
        return _submit(job)
    except SlurmError as error:
        if not test:
            raise
        return _refuse_test(error)
    except Refused as refused:
        raise submit_refused(refused, job.spec) from None
    except Unreachable as error:
        raise SlurmError(
            "Batch job submission failed: Unable to contact slurm controller (connect failure)",
            *unreachable(error),
        ) from None


def require_reservations(job: BatchJob, action: str) -> None:
    """Raise SlurmError if the job names a reservation that does not exist. `action`, such as `Batch job
    submission failed`, begins the last line of the error.
    """
    if not job.reservations:
        return
    from cli.slurm.nodes.reservations import reservations

    with controller() as transport:
        known = [view["spec"]["name"] for view in reservations(transport)]
    if error := unknown_reservation(job.reservations, known, action):
        raise error


def in_best_partition(job: BatchJob, action: str) -> BatchJob:
    """If the job names several partitions, return it with the partition in which it is expected to start
    first; otherwise return it unchanged. `action`, such as `Batch job submission failed`, begins the last
    line of an error.
    """
    if not job.partitions:
        return job
    from cli.slurm.submit.partition_choice import with_partition

    return with_partition(job, action)


def _submit(job: BatchJob) -> int:
    spec = job.spec
    if job.singleton:
        spec = with_singleton(spec)
    if "--test-only" in job.flags:
        return _test(spec)
    submitted = _sent(spec)
    if "--quiet" not in job.flags:
        for note in submitted.get("notes", ()):
            print(f"sbatch: {note}", file=sys.stderr)
    if "--parsable" in job.flags:
        print(submitted["label"])
    elif "--quiet" not in job.flags:
        print(f"Submitted batch job {submitted['label']}")
    if not job.wait:
        return 0
    from cli.jobs.wait import first_failure, wait_until_ended

    sys.stdout.flush()
    return first_failure(wait_until_ended(submitted["ids"]))


def _sent(spec: JobSpec) -> dict[str, Any]:
    """Submit the job, and return the answer as JSON data. Do not use wire.http.client, because its import
    would take most of the time that sbatch needs.
    """
    body = dumps({"spec": encode_once(spec), "key": os.urandom(16).hex()}).encode("utf-8", "surrogatepass")
    with controller() as transport:
        answer: dict[str, Any] = json.loads(transport.ask("POST", "/v1/jobs", body, _PAUSES, question=False))
    return answer


def _request(arguments: Arguments) -> BatchRequest:
    """Return the input of sbatch. The script comes from --wrap, from the named file, or from stdin."""
    words = arguments.words
    if arguments.has("wrap"):
        if words:
            raise SlurmError("Script arguments not permitted with --wrap option")
        text, name = _WRAPPED.format(arguments.last("wrap")), "wrap"
    elif words:
        text, name = _read(words[0]), os.path.basename(words[0])
    else:
        text, name = _text(sys.stdin.buffer), "sbatch"
    umask = os.umask(0o077)
    os.umask(umask)
    return BatchRequest(
        script=text,
        name=name,
        arguments=tuple(words[1:]),
        options=tuple(arguments.options),
        environment=dict(os.environ),
        directory=_directory(),
        host=socket.gethostname().partition(".")[0],
        umask=umask,
    )


def _directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise SlurmError("The current directory is gone. Change to another one.") from None


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return _text(file)
    except OSError as error:
        raise SlurmError(f"{path}: {error.strerror}", f"Unable to open file {path}") from None


def _text(file: BinaryIO) -> str:
    """Return the script in a file. Read at most one byte more than the largest allowed script, because a
    device such as /dev/zero has no end.
    """
    return file.read(MAX_ARGUMENT_BYTES + 1).decode("utf-8", "surrogateescape")


def with_singleton(spec: JobSpec) -> JobSpec:
    """Return the job with the condition that it starts after the end of each active job that has its name and
    its user (--dependency=singleton).
    """
    from cli.jobs.selection import pages
    from wire.http.client import Client

    active = [state for state in SHOWN_STATES if not state.terminal]
    with Client() as client:
        jobs = pages(client, active, client.health().user)
        same = [Dependency(Until.ENDED, job.label) for job in jobs if job.name == spec.name]
    return replace(spec, after=(*spec.after, *same))


def _test(spec: JobSpec) -> int:
    """Print the expected start of the job, or the reason why the controller refuses the job. Return the exit
    code: 0, or 1 for a refused job.
    """
    try:
        print(f"sbatch: {_forecast(spec)}", file=sys.stderr)
    except Refused as refused:
        return _refuse_test(submit_refused(refused, spec, "allocation failure"))
    return 0


def _refuse_test(error: SlurmError) -> int:
    """Print the error of sbatch --test-only, and return the exit code."""
    *reasons, words = error.lines
    print(*(f"sbatch: error: {reason}" for reason in reasons), words, sep="\n", file=sys.stderr)
    return 1


def _forecast(spec: JobSpec) -> str:
    """Return the start time and the nodes of the job in the form of sbatch --test-only. If the controller is
    too busy for a forecast, return a text without a start. Raise Refused or SlurmError if a submit would be
    refused.
    """
    import datetime

    from wire.api.forecasts import WhatIf
    from wire.cluster.hostlist import fold_hostlist
    from wire.http.client import Client

    with Client() as client:
        # Request a preview first, because the refusal of a preview has an error code. The refusal of a
        # forecast has only a sentence.
        cpu_milli = client.preview(spec).cpu_milli
        try:
            answer = client.what_if(WhatIf(submit=(spec,)), only_first=True)
        except Refused:
            return _UNKNOWN_START
    if answer.refused:
        raise SlurmError(f"allocation failure: {answer.refused[0]}")
    new = next((shift for shift in answer.shifts if shift.new and shift.becomes is not None), None)
    if new is None or new.becomes is None:
        return _UNKNOWN_START
    start = datetime.datetime.fromtimestamp(new.becomes).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006 - local time, as Slurm
    cpus = max(1, cpu_milli // 1_000) * len(new.nodes)
    return (
        f"Job {new.job} to start at {start} using {cpus} processors on nodes {fold_hostlist(new.nodes)} "
        f"in partition {spec.queue}"
    )
