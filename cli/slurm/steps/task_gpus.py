"""Gives each task of a step its part of the GPUs of its node, in CUDA_VISIBLE_DEVICES and SLURM_STEP_GPUS."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuSlice:
    """The GPUs of a task: the first and the last of the job's GPUs on its node, from 1; (0, 0) means none.
    `of_step` is how many of these GPUs all tasks of the step on the node have.
    """

    first: int
    last: int
    of_step: int


_REMOTE = (
    'cd "$1" || exit 1; range=$2; of_step=$3; shift 3; gpus=$SLURM_JOB_GPUS; '
    'if [ -n "$of_step" ] && [ "${SLURM_GPUS_ON_NODE:-0}" -gt "$of_step" ]; then '
    'export SLURM_GPUS_ON_NODE="$of_step"; fi; '
    'if [ "$range" = none ]; then export CUDA_VISIBLE_DEVICES=; gpus=; elif [ -n "$range" ]; then '
    'CUDA_VISIBLE_DEVICES=$(printf %s "$CUDA_VISIBLE_DEVICES" | cut -d, -f "$range"); '
    'export CUDA_VISIBLE_DEVICES; gpus=$(printf %s "$gpus" | cut -d, -f "$range"); fi; '
    'unset GPU_DEVICE_ORDINAL; [ -z "$gpus" ] || export SLURM_STEP_GPUS="$gpus" GPU_DEVICE_ORDINAL="$gpus"; '
    'exec /usr/bin/env "$@"'
)
OF_THE_NODE = frozenset(
    (
        *("CUDA_VISIBLE_DEVICES", "CORRAL_SPOOL", "CORRAL_MARK", "CORRAL_NODE", "CORRAL_NODE_RANK"),
        *("NODE_RANK", "CORRAL_SCRATCH", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME", "PMI_FD"),
        *("CORRAL_JOB_ID", "CORRAL_JOB_LABEL", "CORRAL_JOB_NAME", "CORRAL_ATTEMPT", "CORRAL_NODES"),
        *("CORRAL_GPUS", "CORRAL_CPU_MILLI", "CORRAL_MEMORY_MIB", "CORRAL_PROJECT", "CORRAL_USER"),
        *("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL", "SLURM_GPUS_ON_NODE"),
    )
)
"""Variables that the agent of another node sets for its tasks."""


def choose_gpus(variables: dict[str, str], gpus: GpuSlice | None) -> None:
    """Set the variables with the GPUs of a task on this node: UUIDs for CUDA, indices, and the number of the
    step's GPUs. None means all GPUs.
    """
    first, last = (1, None) if gpus is None else (gpus.first, gpus.last)

    def chosen(name: str) -> str:
        known = [gpu for gpu in variables.get(name, "").split(",") if gpu]
        return ",".join(known[first - 1 : last] if first else [])

    if gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = chosen("CUDA_VISIBLE_DEVICES")
        if int(variables.get("SLURM_GPUS_ON_NODE") or 0) > gpus.of_step:
            variables["SLURM_GPUS_ON_NODE"] = str(gpus.of_step)
    indices = chosen("SLURM_JOB_GPUS")
    for name in ("SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL"):
        variables.pop(name, None)
        if indices:
            variables[name] = indices


def remote_words(directory: str, gpus: GpuSlice | None, command: list[str]) -> tuple[str, ...]:
    """Return the command line for a task on another node, with its part of that node's GPUs."""
    text = "" if gpus is None else f"{gpus.first}-{gpus.last}" if gpus.first else "none"
    of_step = "" if gpus is None else str(gpus.of_step)
    return ("/bin/sh", "-c", _REMOTE, "srun", directory, text, of_step, *command)
