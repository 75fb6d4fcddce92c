"""The commands of PBS: qsub, qstat, pbsnodes and qdel."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from controller.engines.batch_systems.batch_job import BatchJob, BatchNode, BatchStatus, Unreadable
from controller.engines.batch_systems.dialect import Dialect, Refusal
from controller.engines.batch_systems.pbs.job_script import job_script
from controller.engines.batch_systems.pbs.text_output import parse_pbsnodes, parse_qstat
from controller.engines.contract import EngineUnavailable, ForeignQuota

_ID = re.compile(r"\d+(?:\[\d*\])?(?:\.[A-Za-z0-9_.-]+)?")
_UNKNOWN_JOB, _FINISHED_JOB = 153, 35
_NO_ANSWER = (
    "cannot connect",
    "communication failure",
    "connection refused",
    "timed out",
    "unable to contact",
)
_FOR_NOW = ("limit", "would exceed", "busy", "not enabled", "quota", "policy", "try again")


@dataclass(frozen=True, slots=True)
class PbsCommands:
    """The dialect of PBS. With `openpbs` the options are those of OpenPBS and PBS Professional; without it,
    those of Torque, which Slurm's own commands with the names of PBS commands also have.
    """

    name: str = "PBS"
    openpbs: bool = True

    def script(self, job: BatchJob) -> str:
        return job_script(job, select=self.openpbs)

    def submit_command(self, path: str) -> str:
        return f"qsub {path}"

    def submitted_id(self, out: str) -> str:
        last = out.strip().rpartition("\n")[2].strip()
        if _ID.fullmatch(last) is None:
            raise Unreadable(f"qsub did not print the id of a job, but {out.strip()[-200:]!r}")
        return last

    def refusal(self, err: str) -> Refusal:
        text = err.lower()
        if any(words in text for words in _NO_ANSWER):
            return Refusal.UNKNOWN
        return Refusal.FOR_NOW if any(words in text for words in _FOR_NOW) else Refusal.LASTING

    def jobs_command(self) -> str:
        return _tolerant("qstat -x -f" if self.openpbs else "qstat -f")

    def jobs(self, out: str) -> list[BatchStatus]:
        return parse_qstat(out)

    def history_command(self, job_id: str) -> str:
        option = "-x -f" if self.openpbs else "-f"
        return _tolerant(f"qstat {option} {shlex.quote(job_id)}")

    def history(self, out: str) -> list[BatchStatus]:
        return parse_qstat(out)

    def nodes_command(self) -> str:
        return "pbsnodes -a"

    def nodes(self, out: str) -> list[BatchNode]:
        return parse_pbsnodes(out)

    def cancel_command(self, job_id: str) -> str:
        return _tolerant(f"qdel {shlex.quote(job_id)}")

    def quota_commands(self) -> tuple[str, ...]:
        return ()

    def quota(self, name: str, outs: Sequence[str]) -> ForeignQuota:
        raise EngineUnavailable(f"Corral reads no quotas from {self.name}")

    def fallback(self, err: str) -> Dialect | None:
        return None


def _tolerant(command: str) -> str:
    """Return the command, changed so that it succeeds if the job is unknown or has finished."""
    return f"{command} || case $? in {_UNKNOWN_JOB}|{_FINISHED_JOB}) true;; *) exit 1;; esac"
