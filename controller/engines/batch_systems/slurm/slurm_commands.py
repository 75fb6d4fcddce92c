"""The commands of Slurm: sbatch, squeue, sacct, sinfo, scancel and sacctmgr."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from controller.engines.batch_systems.batch_job import BatchJob, BatchNode, BatchStatus
from controller.engines.batch_systems.dialect import Dialect, Refusal
from controller.engines.batch_systems.slurm.account_limits import (
    ACCOUNT_LIMITS,
    AMOUNTS_IN_USE,
    QOS_LIMITS,
    quota_of,
)
from controller.engines.batch_systems.slurm.batch_script import batch_script
from controller.engines.batch_systems.slurm.json_output import parse_jobs
from controller.engines.batch_systems.slurm.text_output import (
    EPOCH_TIMES,
    SACCT,
    SINFO,
    SQUEUE,
    parse_sacct,
    parse_sinfo,
    parse_squeue,
    parse_submitted,
)
from controller.engines.contract import ForeignQuota

_NO_ANSWER = (
    "unable to contact slurm controller",
    "socket timed out",
    "zero bytes were transmitted",
    "connection refused",
    "connection timed out",
    "communication connection failure",
    "unexpected message received",
    "in standby mode",
    "protocol authentication error",
)
_FOR_NOW = (
    "policy",
    "limit",
    "temporarily",
    "try again",
    "busy",
    "no space left",
    "partition(s) not available",
    "is not active",
    "i/o error",
)
_LASTING = ("time limit is invalid", "memory specification")


@dataclass(frozen=True, slots=True)
class SlurmCommands:
    """The dialect of Slurm. With `json`, squeue prints JSON.

    sacct and sinfo always print text, because the JSON of sacct 22.05 gives the exit code 0 for every job
    that ended by itself.
    """

    name: str = "Slurm"
    json: bool = False
    partitions: tuple[str, ...] = ()

    def script(self, job: BatchJob) -> str:
        return batch_script(job)

    def submit_command(self, path: str) -> str:
        return f"sbatch --parsable {path}"

    def submitted_id(self, out: str) -> str:
        return parse_submitted(out)

    def refusal(self, err: str) -> Refusal:
        text = err.lower()
        if any(words in text for words in _NO_ANSWER):
            return Refusal.UNKNOWN
        if any(words in text for words in _LASTING):
            return Refusal.LASTING
        return Refusal.FOR_NOW if any(words in text for words in _FOR_NOW) else Refusal.LASTING

    def jobs_command(self) -> str:
        # Use no filter with --json, because squeue 22.05 ignores filters with --json and lists the jobs of
        # all users.
        return "squeue --json" if self.json else _command((*SQUEUE, "-u")) + ' "$(id -un)"'

    def jobs(self, out: str) -> list[BatchStatus]:
        return parse_jobs(out) if self.json else parse_squeue(out)

    def history_command(self, job_id: str) -> str:
        # Name the job, because sacct without -j leaves out jobs that were cancelled while held.
        return f"{_command(SACCT)} -j {shlex.quote(job_id)}"

    def history(self, out: str) -> list[BatchStatus]:
        return parse_sacct(out)

    def nodes_command(self) -> str:
        # Use only one option, because sinfo refuses -a (all partitions, also hidden ones) together with -p.
        chosen = ("-p", ",".join(self.partitions)) if self.partitions else ("-a",)
        return _command((*SINFO, *chosen))

    def nodes(self, out: str) -> list[BatchNode]:
        return parse_sinfo(out)

    def cancel_command(self, job_id: str) -> str:
        return f"scancel {shlex.quote(job_id)}"

    def quota_commands(self) -> tuple[str, ...]:
        return (ACCOUNT_LIMITS, QOS_LIMITS, AMOUNTS_IN_USE)

    def quota(self, name: str, outs: Sequence[str]) -> ForeignQuota:
        accounts, qos, in_use = outs
        return quota_of(name, accounts, qos, in_use)

    def fallback(self, err: str) -> Dialect | None:
        unknown = "unrecognized option" in err or "invalid option" in err or "Unable to find plugin" in err
        return replace(self, json=False) if self.json and unknown else None


def _command(words: Sequence[str]) -> str:
    settings = " ".join(f"{name}={value}" for name, value in EPOCH_TIMES.items())
    return f"env {settings} {shlex.join(words)}"
