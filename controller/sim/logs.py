"""What is read of a log, whatever it is written in, and what is left of it on a given cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from controller.sim.cluster import CORE, Cluster
from controller.sim.logfile import Form, LogFile, LogRefused
from controller.sim.swf import Line, Reading, Swf, choose
from controller.sim.table import Table
from controller.sim.workload import Work


@dataclass
class Log:
    """A log that has been read. An SWF log asks for processors: what that means depends on the cluster."""

    name: str
    form: Form
    lines: list[Line] = field(default_factory=list)
    table: list[Work] = field(default_factory=list)
    processors: int | None = None
    """Those of the machine it was written on, if it says so."""
    bad: list[tuple[int, str]] = field(default_factory=list)
    """(line, why) of broken lines that were passed over."""
    unread: list[str] = field(default_factory=list)
    """Columns that mean nothing here, in words."""

    def work(self, cluster: Cluster, reading: Reading) -> tuple[list[Work], Counter[str]]:
        """The jobs to run there in the order they come, and how many were dropped for which reason."""
        if self.table and cluster.core_milli != CORE:
            message = "a pool of so many processors is for SWF logs: others ask for parts of a core"
            raise LogRefused(self.name, message, "Give the cluster by --nodes and --cpus.")
        dropped: Counter[str] = Counter()
        work = list(self.table)
        specs = {}
        for job in choose(self.lines, cluster.width, reading, dropped):
            key = job.size, job.estimate_s
            if key not in specs:
                specs[key] = cluster.spec(*key)
            user = str(job.user) if job.user >= 0 else "unknown"
            work.append(Work(job.number, job.submit_s, specs[key], job.run_s, user))
        work.sort(key=lambda each: each.submit_s)
        return work, dropped


def read_log(path: Path, *, skip_bad: bool = False) -> Log:
    """Read all of it. Raises LogRefused for a line that is broken, unless those are to be passed over."""
    with LogFile(path, skip_bad=skip_bad) as file:
        log = Log(file.name, file.form, bad=file.bad)
        if log.form is Form.SWF:
            swf = Swf(file)
            log.lines, log.processors = list(swf), swf.processors
        else:
            table = Table(file)
            log.table = list(table.csv() if log.form is Form.CSV else table.json())
            log.unread = table.unread
    if not (log.lines or log.table):
        raise LogRefused(log.name, "there are no jobs in it")
    return log
