"""The command line of an agent."""

from __future__ import annotations

from wire.agent.job_policy import DEFAULT_JOB_POLICY, JobPolicy
from wire.cluster.hosts import HostSpec
from wire.codec import dumps, encode


def agent_arguments(
    name: str,
    host: HostSpec,
    home: str,
    jobs: JobPolicy = DEFAULT_JOB_POLICY,
    cluster: str = "",
    epoch: int = 0,
) -> list[str]:
    """Return the command line arguments of the agent on a node. `home` is used only if `host` names no spool:
    the spool is then a directory below `home`. `epoch` is the epoch of the leading controller; 0 if the
    cluster can have only one controller.
    """
    options = {
        "--name": name,
        "--spool": host.spool or f"{home}/nodes/{name}",
        "--gpus": host.gpus,
        "--cpus": host.cpus,
        "--memory": host.memory,
        "--scratch": host.scratch,
        "--scratch-dir": host.scratch_dir or None,
        "--cluster": cluster or None,
        "--epoch": epoch or None,
        "--jobs": None if jobs == DEFAULT_JOB_POLICY else dumps(encode(jobs)),
    }
    words = [word for key, value in options.items() if value is not None for word in (key, str(value))]
    return [*words, "--run-as-self"] if host.run_as_self else words
