"""Completes the environment of a job before its start: a free port, and the checkpoint to resume from."""

from __future__ import annotations

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.checkpoints import directory
from agent.host import tcp_ports

_PORT = "MASTER_PORT"
_CHECKPOINT = "CORRAL_CHECKPOINT"


def choose_port(launch: LaunchSpec) -> str:
    """Choose another port for the job if the port in the variable MASTER_PORT is in use. Return an empty
    text.

    The port of a gang cannot be changed, because the other members have already received it. If this port is
    in use, return a reason that begins with `port_in_use`: the attempt ends with this reason, and the
    controller starts the gang again.
    """
    env = launch.env
    port = env.get(_PORT, "")
    free = str(tcp_ports.next_free_port(int(port))) if port.isascii() and port.isdigit() else port
    if free == port:
        return ""
    if launch.barrier:
        return f"port_in_use: {_PORT} {port} is in use on this host"
    for name in [name for name in env if name.endswith(_PORT)]:
        env[name] = free
    return ""


def find_checkpoint(launch: LaunchSpec) -> None:
    """Set the variable CORRAL_CHECKPOINT to the checkpoint from which the job resumes, or delete the variable
    if there is no checkpoint. Do nothing if the job has no such variable. Call this function after the
    prolog, because the prolog may mount the file system with the checkpoint.
    """
    env = launch.env
    if _CHECKPOINT not in env:
        return
    found = directory.checkpoint_to_resume(launch, env[_CHECKPOINT])
    # Also set or delete the copy of the variable for apptainer (prefix APPTAINERENV_) or singularity (prefix
    # SINGULARITYENV_).
    for name in [name for name in env if name.endswith(_CHECKPOINT)]:
        if found:
            env[name] = found
        else:
            del env[name]
