"""Gives each task of a step its part of the GPUs of its node, in CUDA_VISIBLE_DEVICES and SLURM_STEP_GPUS."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuSlice:
    """The GPUs of one task. The job's GPUs on the node of the task are counted from 1; the task gets those
    from number `first` to number `last`. Both are 0 for a task without GPUs. `of_step` is the number of GPUs
    that all tasks of the step on this node have together.
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
"""Variables that srun does not send with a task to another node, because that node sets the variables
itself.
"""


def choose_gpus(variables: dict[str, str], gpus: GpuSlice | None) -> None:
    """Change `variables`, the environment of a task on this node, so that the task sees only the GPUs of
    `gpus`. If `gpus` is None, the task sees all GPUs of the job on this node.
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
    """Return the command line for a task on another node, in `directory` and with the GPUs of `gpus`. If
    `gpus` is None, the task gets all GPUs of the job on that node.
    """
    text = "" if gpus is None else f"{gpus.first}-{gpus.last}" if gpus.first else "none"
    of_step = "" if gpus is None else str(gpus.of_step)
    return ("/bin/sh", "-c", _REMOTE, "srun", directory, text, of_step, *command)
