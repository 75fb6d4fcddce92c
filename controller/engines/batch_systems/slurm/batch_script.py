"""Writes the script that sbatch gets for a job."""

from __future__ import annotations

import re

from controller.engines.batch_systems.batch_job import BatchJob
from controller.engines.batch_systems.slurm.units import time_text
from controller.engines.batch_systems.wrapper import script_body

_OPTION = re.compile(r"[a-z][a-z-]*(=[A-Za-z0-9_./:,+@%&|*()\[\]{}~-]+)?")


def batch_script(job: BatchJob) -> str:
    """Return the script for sbatch. The same job gives the same script, byte for byte.

    Slurm must not requeue the job (`--no-requeue`), because Corral counts each run as an attempt. The texts
    of users (working directory, output files, environment) are in the shell part and not in the options,
    because sbatch has no safe way to quote them.
    """
    return script_head(job) + script_body(job, "SLURM_JOB_ID")


def script_head(job: BatchJob) -> str:
    """Return the first lines of a script for sbatch: the interpreter and the options."""
    options = [f"job-name={job.tag}", "no-requeue", "output=/dev/null", "error=/dev/null"]
    options += [f"nodes={job.nodes}", f"ntasks-per-node={1}", f"cpus-per-task={job.cpus}"]
    if job.memory_mib:
        options.append(f"mem={job.memory_mib}M")
    if job.gpus:
        options.append(f"gres={job.gres}:{job.gpus}")
    if job.node:
        options.append(f"nodelist={job.node}")
    if job.time_limit_s is not None:
        options.append(f"time={time_text(job.time_limit_s)}")
    named = (
        ("partition", job.partition),
        ("account", job.account),
        ("qos", job.qos),
        ("constraint", job.constraint),
    )
    options += [f"{name}={value}" for name, value in named if value]
    options += job.extra
    for option in options:
        if _OPTION.fullmatch(option) is None:
            raise ValueError(f"{option!r} cannot be an option of sbatch: it has characters that need quoting")
    if title := re.sub(r"[^A-Za-z0-9 _./:,+@=-]", "_", job.title)[:100]:
        options.append(f'comment="{title}"')
    head = "".join(f"#SBATCH --{option}\n" for option in options)
    return f"#!/bin/sh\n{head}"
