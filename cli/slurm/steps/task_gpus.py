"""Gives each task of a step its part of the GPUs of its node, in CUDA_VISIBLE_DEVICES and SLURM_STEP_GPUS."""

from __future__ import annotations

_REMOTE = (
    'cd "$1" || exit 1; range=$2; shift 2; gpus=$SLURM_JOB_GPUS; '
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
        *("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL"),
    )
)
"""Variables that the agent of another node sets for its tasks."""


def choose_gpus(variables: dict[str, str], gpus: tuple[int, int] | None) -> None:
    """Set the variables with the GPUs of a task on this node: UUIDs for CUDA, and indices. `gpus` has the
    first and the last of the node's GPUs for the task, from 1. None means all, and (0, 0) means none.
    """
    first, last = gpus or (1, None)

    def chosen(name: str) -> str:
        known = [gpu for gpu in variables.get(name, "").split(",") if gpu]
        return ",".join(known[first - 1 : last] if first else [])

    if gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = chosen("CUDA_VISIBLE_DEVICES")
    indices = chosen("SLURM_JOB_GPUS")
    for name in ("SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL"):
        variables.pop(name, None)
        if indices:
            variables[name] = indices


def remote_words(directory: str, gpus: tuple[int, int] | None, command: list[str]) -> tuple[str, ...]:
    """Return the command line that runs a task on another node, with its part of the GPUs of that node."""
    text = "" if gpus is None else "none" if gpus == (0, 0) else "{}-{}".format(*gpus)
    return ("/bin/sh", "-c", _REMOTE, "srun", directory, text, *command)
