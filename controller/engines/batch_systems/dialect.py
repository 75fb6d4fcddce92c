"""The interface of a dialect: the commands of one batch system, and the meaning of their output."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

from controller.engines.batch_systems.batch_job import BatchJob, BatchNode, BatchStatus
from controller.engines.contract import ForeignQuota


class Refusal(enum.Enum):
    """Whether a job that the submit command refused may be submitted again."""

    LASTING = "lasting"
    """The same job would be refused again."""
    FOR_NOW = "for now"
    """A limit was reached, or the job was refused for another reason that can change."""
    UNKNOWN = "unknown"
    """The batch system gave no answer. It may have accepted the job."""


class Dialect(Protocol):
    """The commands of a batch system. The methods run nothing: they return commands, as texts for /bin/sh, or
    read the output of commands.

    The methods that read output raise Unreadable if the output has an unknown form.
    """

    @property
    def name(self) -> str:
        """Return the name of the batch system for messages."""

    def script(self, job: BatchJob) -> str:
        """Return the script of a job."""

    def submit_command(self, path: str) -> str:
        """Return the command that submits a script. `path` is a word for the shell."""

    def submitted_id(self, out: str) -> str:
        """Return the id of the job in the output of the submit command."""

    def refusal(self, err: str) -> Refusal:
        """Return whether the job may be submitted again after a failed submit command with this stderr."""

    def jobs_command(self) -> str:
        """Return the command that lists all jobs of the account, including ended jobs that the batch system
        still knows.
        """

    def jobs(self, out: str) -> list[BatchStatus]:
        """Return the jobs in the output of `jobs_command`."""

    def history_command(self, job_id: str) -> str:
        """Return the command that shows one job from the accounting. It prints nothing for an unknown job."""

    def history(self, out: str) -> list[BatchStatus]:
        """Return the runs of the job in the output of `history_command`. A requeued job has several runs."""

    def nodes_command(self) -> str:
        """Return the command that lists all nodes."""

    def nodes(self, out: str) -> list[BatchNode]:
        """Return the nodes in the output of `nodes_command`."""

    def cancel_command(self, job_id: str) -> str:
        """Return the command that ends a job. An unknown job is no error."""

    def quota_commands(self) -> tuple[str, ...]:
        """Return the commands that print the quotas of all accounts; none if Corral cannot read quotas from
        this batch system.
        """

    def quota(self, name: str, outs: Sequence[str]) -> ForeignQuota:
        """Return the quota `name` from the outputs of `quota_commands`. Raise EngineUnavailable if it does
        not exist.
        """

    def fallback(self, err: str) -> Dialect | None:
        """Return a dialect for older commands if the failure of `jobs_command` shows that the commands do not
        know an option; None for any other failure.
        """
