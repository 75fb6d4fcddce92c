"""The command line of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wire.agent.job_policy import DEFAULT_JOB_POLICY, JobPolicy
from wire.codec import dumps, encode


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The settings of an agent. What is left out is what the host reports."""

    gpus: str = "auto"
    cpus: int | None = None
    memory: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    keep: int | None = None
    run_as_self: bool = False
    jobs: JobPolicy = DEFAULT_JOB_POLICY
    scratch: str | None = None
    scratch_dir: str = ""
    cluster: str = ""

    def arguments(self, name: str, spool: str) -> list[str]:
        """The agent's command line."""
        made = ["--name", name, "--spool", spool, "--gpus", self.gpus]
        said = {
            "--cpus": self.cpus,
            "--memory": self.memory,
            "--keep": self.keep,
            "--scratch": self.scratch,
            "--scratch-dir": self.scratch_dir or None,
            "--cluster": self.cluster or None,
        }
        for option, value in said.items():
            if value is not None:
                made += [option, str(value)]
        if self.jobs != DEFAULT_JOB_POLICY:
            made += ["--jobs", dumps(encode(self.jobs))]
        for key, text in self.labels.items():
            made += ["--label", f"{key}={text}"]
        return [*made, "--run-as-self"] if self.run_as_self else made
