"""sprio: lists the priorities of waiting jobs."""

from __future__ import annotations

from cli.slurm.arguments import COMMON, Option, parse, prints_only_help, switch
from cli.slurm.formats.output_formats import Field, percent_format, print_lines
from cli.slurm.formats.resources import natural
from cli.slurm.show import jobs
from cli.slurm.show.controller import controller, job_rows
from cli.slurm.show.squeue import job_words, user_names

OPTIONS = (
    switch("noheader", "h", "Print no header."),
    Option("jobs", "j", help="Only these jobs, such as 7,8_3."),
    switch("long", "l", "Print all parts of the priority."),
    Option("cluster", "M"),
    Option("clusters"),
    switch("norm", "n", "Print priorities from 0 to 1."),
    Option("format", "o", help="The fields to print, by letter, such as '%.15i %.10Y'."),
    Option("partition", "p", help="Only jobs of these partitions (queues)."),
    Option("sort", "S"),
    Option("user", "u", help="Only jobs of these users (names or uids), such as ada,1000."),
    switch("verbose", "v"),
    switch("weights", "w", "Print the weights of the parts of the priority."),
    switch("help", "", "Show this help and exit."),
    *COMMON[1:],
)
USAGE = "sprio [OPTIONS]"
DEFAULT = "%.15i %9r %.10Y %.10S"
LONG = "%.15i %9r %.8u %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10Q %.11N %.20T"
NORMAL = "%.15i %9r %.10y"


def _same(text: str) -> Field:
    letter, _, heading = text.partition(":")
    return Field(letter, "", heading, (), lambda _: "" if letter == "T" else "0")


FIELDS = (
    Field("i", "", "JOBID", ("label",), lambda job: str(job["label"])),
    Field("r", "", "PARTITION", ("queue",), lambda job: str(job["queue"])),
    Field("u", "", "USER", ("user",), lambda job: str(job["user"])),
    Field("Y", "", "PRIORITY", ("priority", "hold"), lambda job: str(jobs.priority(job))),
    Field("y", "", "PRIORITY", ("priority", "hold"), lambda job: f"{jobs.priority(job) / 100:.8f}"),
    *map(_same, ("S:SITE", "A:AGE", "B:ASSOC", "F:FAIRSHARE", "J:JOBSIZE", "P:PARTITION", "Q:QOS", "N:NICE")),
    _same("T:TRES"),
)
"""The fields of sprio. The parts of the priority, such as AGE, are 0 or empty: in Corral, the order plugin
ranks the jobs of the queue, and it does not add such parts. `corral explain` shows why a job waits.
"""


def main(words: list[str]) -> int:
    """Print the priorities of the waiting jobs that the options select. Return exit code 0."""
    arguments = parse(OPTIONS, words)
    if prints_only_help(arguments, USAGE, OPTIONS):
        return 0
    default = LONG if arguments.has("long") else NORMAL if arguments.has("norm") else DEFAULT
    form = percent_format(arguments.last("format") or default, FIELDS)
    if not arguments.has("noheader"):
        print(form.header())
    if arguments.has("weights"):
        print(f"{'Weights':>15} {'':<9} {'':>10} {'1':>10}")
        return 0
    users = arguments.last("user")
    with controller() as transport:
        rows = job_rows(
            transport,
            (*form.columns, "state", "id"),
            jobs=job_words(arguments.last("jobs")) if arguments.last("jobs") else (),
            users=user_names(users) if users else (),
            queues=[word for word in arguments.last("partition").split(",") if word],
        )
    waiting = [job for job in rows if job["state"] in ("QUEUED", "PREEMPTED")]
    waiting.sort(key=lambda job: natural(str(job["label"])))
    print_lines([form.line(job) for job in waiting])
    return 0
