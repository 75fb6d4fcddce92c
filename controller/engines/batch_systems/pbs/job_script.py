"""Writes the script that qsub gets for a job."""

from __future__ import annotations

import re

from controller.engines.batch_systems.batch_job import BatchJob
from controller.engines.batch_systems.wrapper import script_body

_VALUE = re.compile(r"[A-Za-z0-9_./:,+@%=*()\[\]-]+")


def job_script(job: BatchJob, *, select: bool) -> str:
    """Return the script for qsub. The same job gives the same script, byte for byte.

    With `select` the resources are chunks (`-l select=1:ncpus=4`), the form of OpenPBS. Without it they are
    nodes (`-l nodes=1:ppn=4`), the form of Torque. PBS must not run the job again (`-r n`), because Corral
    counts each run as an attempt.
    """
    options = [f"-N {job.tag}", "-r n", "-o /dev/null", "-e /dev/null"]
    if select:
        chunk = f"select={job.nodes}:ncpus={job.cpus}"
        chunk += f":mem={job.memory_mib}mb" * bool(job.memory_mib) + f":ngpus={job.gpus}" * bool(job.gpus)
        options.append(f"-l {chunk}" + f":host={job.node}" * bool(job.node))
    else:
        nodes = f"nodes={job.node or job.nodes}:ppn={job.cpus}" + f":gpus={job.gpus}" * bool(job.gpus)
        options.append(f"-l {nodes}" + f":{job.constraint}" * bool(job.constraint))
        options += [f"-l mem={job.memory_mib}mb"] if job.memory_mib else []
    if job.time_limit_s is not None:
        options.append(f"-l walltime={walltime(job.time_limit_s)}")
    options += [f"-q {job.partition}"] if job.partition else []
    options += [f"-A {job.account}"] if job.account else []
    options += [f"-{each}" for each in job.extra]
    for option in options:
        if not all(_VALUE.fullmatch(word) for word in option.split(" ")):
            raise ValueError(f"{option!r} cannot be an option of qsub: it has characters that need quoting")
    head = "".join(f"#PBS {option}\n" for option in options)
    return f"#!/bin/sh\n{head}{script_body(job, 'PBS_JOBID')}"


def walltime(seconds: float) -> str:
    """Return a time limit as HH:MM:SS; the hours can be more than 24."""
    minutes, rest = divmod(max(1, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest:02}"
