"""Prints the resources that running jobs and their steps have used until now, as sstat does."""

from __future__ import annotations

import sys

from cli.slurm.arguments import COMMON, Option, parse, prints_only_help, switch
from cli.slurm.formats.output_formats import print_lines
from cli.slurm.formats.sacct_columns import choose, columns_of, lines, shape_of
from cli.slurm.programs import SlurmError
from cli.slurm.show import accounting_fields
from cli.slurm.show.accounting_fields import with_steps
from cli.slurm.show.controller import Rows, controller, job_rows
from cli.slurm.show.sacct import job_steps
from cli.slurm.show.steps import STEP_COLUMNS

OPTIONS = (
    switch("allsteps", "a"),
    switch("helpformat", "e", "List all fields of --format."),
    switch("pidformat", "i"),
    Option("jobs", "j", help="The jobs or steps to print, such as 7,8_3,9.batch."),
    switch("noheader", "n", "Print no header."),
    switch("noconvert"),
    Option("format", "o", help="The fields to print, such as JobID,MaxRSS,AveCPU."),
    switch("parsable", "p", "Print '|' after each value."),
    switch("parsable2", "P", "Print '|' between the values."),
    switch("verbose", "v"),
    switch("help", "h", "Show this help and exit."),
    *COMMON[1:],
)
_NAMES = (
    "JobID,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,AveVMSize,MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,MaxPages,"
    "MaxPagesNode,MaxPagesTask,AvePages,MinCPU,MinCPUNode,MinCPUTask,AveCPU,NTasks,AveCPUFreq,ReqCPUFreqMin,"
    "ReqCPUFreqMax,ReqCPUFreqGov,ConsumedEnergy,MaxDiskRead,MaxDiskReadNode,MaxDiskReadTask,AveDiskRead,"
    "MaxDiskWrite,MaxDiskWriteNode,MaxDiskWriteTask,AveDiskWrite,TRESUsageInAve,TRESUsageInMax,"
    "TRESUsageInMaxNode,TRESUsageInMaxTask,TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,"
    "TRESUsageInTot,TRESUsageOutAve,TRESUsageOutMax,TRESUsageOutMaxNode,TRESUsageOutMaxTask,"
    "TRESUsageOutMin,TRESUsageOutMinNode,TRESUsageOutMinTask,TRESUsageOutTot"
)
COLUMNS = choose(_NAMES, accounting_fields.COLUMNS)[0]


def main(words: list[str]) -> int:
    """Print the usage of running steps. As in Slurm, a job that does not run gives an error message, and the
    exit code is 0 in any case.
    """
    arguments = parse(OPTIONS, words)
    if prints_only_help(arguments, "sstat [OPTIONS] -j JOB[.STEP]", OPTIONS):
        return 0
    if arguments.has("helpformat"):
        print("\n".join(sorted(column.name for column in COLUMNS)))
        return 0
    steps = job_steps("sstat", [*arguments.all("jobs"), *arguments.words])
    if not steps:
        raise SlurmError("No job specified. Write: sstat -j JOB")
    columns = columns_of(arguments.last("format") or _NAMES, COLUMNS)
    needs = [name for column in columns for name in column.needs]
    with controller() as transport:
        jobs = job_rows(transport, [*needs, *STEP_COLUMNS], jobs=[job for job, _ in steps])
    running = [job for job in jobs if job["state"] == "RUNNING"]
    names = {name for job in running for name in (str(job["id"]), str(job["label"]), str(job.get("array")))}
    shape = shape_of(arguments)
    unit = "raw" if arguments.has("noconvert") else ""
    rows = _chosen(running, steps, unit, every=arguments.has("allsteps"))
    print_lines(lines(columns, rows, shape))
    sys.stdout.flush()
    for job, _ in steps:
        if job not in names and not any(str(row["label"]).startswith(f"{job}_") for row in running):
            print(f"sstat: error: couldn't get steps for job {job}", file=sys.stderr)
    return 0


def _chosen(jobs: Rows, wanted: list[tuple[str, str]], unit: str, *, every: bool) -> Rows:
    """Return the rows of the running steps in `wanted`, pairs of a job and a step. If the step is empty,
    return the last running step of the job, which is the batch script if no step of srun runs. With `every`
    (-a), return all running steps of the job.
    """
    found = []
    for job in jobs:
        names = (str(job["label"]), str(job["id"]), str(job["label"]).partition("_")[0])
        steps = [row for row in with_steps(job, unit) if row["step"] and row["ended_at"] is None]
        for name, step in wanted:
            if name not in names:
                continue
            if step:
                found += [row for row in steps if row["step"] == step]
            else:
                found += steps if every else steps[-1:]
    return found
