"""A job log in any supported format, and the selection of the jobs that can run on a given cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from controller.sim.cluster import CORE, Cluster
from controller.sim.logs.gpu_job_table import NO_OPTION_COLUMNS, GpuJobTable, OptionColumns
from controller.sim.logs.log_file import LogFile, LogFormat, LogRefused
from controller.sim.logs.swf import SwfLine, SwfLog, SwfOptions, select_jobs
from controller.sim.trace_job import TraceJob


@dataclass
class JobLog:
    """The jobs of a job log, and the invalid lines of the log, which were skipped.

    The jobs of an SWF log are in `lines`. Their requests depend on the simulated cluster, so `work` makes the
    jobs from these lines later. The jobs of a log in another format are in `table`, with their requests.
    """

    name: str
    form: LogFormat
    lines: list[SwfLine] = field(default_factory=list)
    table: list[TraceJob] = field(default_factory=list)
    processors: int | None = None
    """The number of processors of the machine on which the log was recorded; None if the log does not state
    it.
    """
    bad: list[tuple[int, str]] = field(default_factory=list)
    """The line number and the error of each invalid line that was skipped."""
    unread: list[str] = field(default_factory=list)
    """The names of the columns that the simulator does not use, each with a hint if a known column has a
    similar name.
    """

    def work(self, cluster: Cluster, reading: SwfOptions) -> tuple[list[TraceJob], Counter[str]]:
        """Return the jobs to simulate on this cluster, in submit order. For an SWF log, also return how many
        jobs were left out for each reason; no jobs of other logs are left out.
        """
        if self.table and cluster.core_milli != CORE:
            message = "a pool of this size is only for SWF logs; other logs request parts of a core"
            raise LogRefused(self.name, message, "Describe the cluster with --nodes and --cpus.")
        dropped: Counter[str] = Counter()
        work = list(self.table)
        specs = {}
        for job in select_jobs(self.lines, cluster.width, reading, dropped):
            key = job.size, job.estimate_s
            if key not in specs:
                specs[key] = cluster.spec(*key)
            user = str(job.user) if job.user >= 0 else "unknown"
            work.append(TraceJob(job.number, job.submit_s, specs[key], job.run_s, user))
        work.sort(key=lambda each: each.submit_s)
        return work, dropped


def read_log(
    path: Path,
    *,
    skip_bad: bool = False,
    options: OptionColumns = NO_OPTION_COLUMNS,
    overhead_column: str = "",
) -> JobLog:
    """Read the whole log. An invalid line raises LogRefused, or is skipped if `skip_bad` is True.

    `options` describes the columns of a table that are named like options of corral submit.
    `overhead_column` is the column with the start overhead of each job; empty if no column has it.
    """
    with LogFile(path, skip_bad=skip_bad) as file:
        log = JobLog(file.name, file.form, bad=file.bad)
        if log.form is LogFormat.SWF and overhead_column:
            message = f"a log in SWF has no column {overhead_column!r}"
            raise LogRefused(file.name, message, "Give --start-overhead a time such as 30s.")
        if log.form is LogFormat.SWF:
            swf = SwfLog(file)
            log.lines, log.processors = list(swf), swf.processors
        else:
            table = GpuJobTable(file, options, overhead_column)
            log.table = table.jobs(log.form)
            log.unread = table.unread
    if not (log.lines or log.table):
        raise LogRefused(log.name, "there are no jobs in it")
    return log
