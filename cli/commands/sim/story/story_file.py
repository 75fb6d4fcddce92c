"""Reads a story: a text file with the commands that operators run while the jobs of a log run.

A line is a time and a command, in the words of the command line of corral:

    day 1 08:00  nodes drain --select rack=r2 --why 'new power supply'
    day 1 18:00  nodes resume --select rack=r2
          +30m   shares set vision 3

Algorithm of `read_story`
1. Split each line into its time and its command. A time is `day N HH:MM`, counted from midnight before the
   first submit, or any time that options such as --start accept: 18:00, +30m or 2030-05-01T08:00. 18:00 means
   the next 18:00 after the time of the line above, and +30m means 30 minutes after that time. A line without
   a time must begin with a space or a tab, and has the time of the line above.
2. Parse the command with the parser of the command line (story_commands.py). Relative times in the command
   count from the time of the line.
3. Check the names of nodes, services and reservations, and the ids of jobs. Names and ids that are only known
   during the run are not checked.

Every error names the file and the line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import typer

from cli.commands.sim.story.story_commands import NODE, SERVICE, Named, command_of
from cli.exit_codes import CommandError
from cli.registry import nearest
from wire import amounts

# Import these modules only for type checks, because numpy and pydantic are slow to import.
if TYPE_CHECKING:
    from controller.config import Config
    from controller.sim.cluster import Cluster
    from controller.sim.story.commands import StoryCommand
    from controller.sim.story.story import StoryStep
    from controller.sim.trace_job import TraceJob

_TIME_HINT = "Begin the line with a time: day 3 08:00, 18:30, +30m or 2030-05-01T08:00."
_DAY = re.compile(r"day +(\S+) +(\S+) *(.*)")
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


@dataclass
class StoryFacts:
    """Facts that are known before the run: the time of the first submit (`begin_s`), the nodes, services and
    reservations (`named`), and the jobs of the log.
    """

    begin_s: float
    zone: tzinfo
    named: set[Named]
    configured: bool
    """Whether the simulated nodes are the nodes of scheduler.toml."""
    jobs: Mapping[int, TraceJob] = field(default_factory=dict)

    def names(self, kind: str) -> list[str]:
        """Return the sorted names of all objects of this kind: NODE, SERVICE or RESERVATION."""
        return sorted(name for each, name in self.named if each == kind)


def facts_of(work: Iterable[TraceJob], cluster: Cluster, config: Config) -> StoryFacts:
    jobs = {job.number: job for job in work}
    return StoryFacts(
        begin_s=min((job.submit_s for job in jobs.values()), default=0.0),
        zone=ZoneInfo(config.scheduler.time_zone),
        named={*((NODE, name) for name in cluster.nodes), *((SERVICE, name) for name in config.services)},
        configured=bool(config.nodes) and set(config.nodes) == set(cluster.nodes),
        jobs=jobs,
    )


def read_story(path: Path, facts: StoryFacts) -> tuple[StoryStep, ...]:
    """Return the steps of the story in this file. Raise CommandError with the file and line of a mistake."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise CommandError(f"{path}: the file is not text in UTF-8") from None
    except FileNotFoundError:
        raise CommandError(f"{path}: there is no such file", "Check the path given with --story.") from None
    return story_of(lines, str(path), facts)


def story_of(lines: Iterable[str], name: str, facts: StoryFacts) -> tuple[StoryStep, ...]:
    """Return the steps of the story with these lines. `name` is the name of the story in errors."""
    from controller.config import ConfigRefused
    from controller.sim.errors import SimulationRefused
    from controller.sim.story.story import StoryStep

    first = datetime.fromtimestamp(facts.begin_s, UTC).astimezone(facts.zone)
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    steps: list[StoryStep] = []
    at_s = None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            moment_s, rest = _time(line, midnight, at_s, facts.zone)
            words = shlex.split(rest)
            with amounts.as_of(moment_s, facts.zone):
                command = _command(words, facts)
        except CommandError as error:
            raise CommandError(f"{name}:{number}: {error.message}", error.hint) from None
        except ConfigRefused as refused:
            raise CommandError(f"{name}:{number}: {'; '.join(map(str, refused.problems))}") from None
        except typer.TyperException as error:
            context = getattr(error, "ctx", None)
            hint = f"Try '{context.command_path} --help'." if context else ""
            raise CommandError(f"{name}:{number}: {error.format_message()}", hint) from None
        except SimulationRefused as refused:
            raise CommandError(f"{name}:{number}: {refused}", refused.hint) from None
        except ValueError as error:
            raise CommandError(f"{name}:{number}: {error}") from None
        steps.append(StoryStep(number, moment_s, _when(moment_s, midnight), rest, command))
        at_s = moment_s
    return tuple(steps)


def _command(words: list[str], facts: StoryFacts) -> StoryCommand:
    if words[:1] == ["corral"]:
        words = words[1:]
    if not words:
        raise CommandError(
            "there is no command behind the time", "Write one, such as: day 3 08:00 nodes drain gpu01"
        )
    command = command_of(words, configured=facts.configured)
    unknown = next((each for each in command.named if each not in facts.named), None)
    if unknown is not None:
        kind, name = unknown
        known = facts.names(kind)
        raise CommandError(
            f"there is no {kind} {name!r}.{nearest(name, known)}",
            f"The {kind}s at this line: {_few(known) or 'none'}.",
        )
    for word in command.jobs:
        _check_jobs(word, facts)
    facts.named |= command.added
    return command.command


def _check_jobs(word: str, facts: StoryFacts) -> None:
    """Raise CommandError if the job selection `word`, such as 12, 12_3 or user:ada, is invalid, or names a
    job, a user, a project or a job name that the log does not have. Ranges, last and all are not checked.
    """
    from wire.api.job_selection import ArrayElements, InvalidSelection, JobLabel, JobsOf, parse_selection

    try:
        selection = parse_selection(word)
    except InvalidSelection as invalid:
        raise CommandError(str(invalid), invalid.hint) from None
    number = None
    match selection:
        case JobLabel(text):
            number = int(text.partition("_")[0])
        case ArrayElements(array, _):
            number = array
        # Check a selection by user, project or name only in a story without services, because the selection
        # may match replicas of services, which are not in the job log.
        case JobsOf() if not facts.names(SERVICE):
            jobs = facts.jobs.values()
            if not any(selection.matches(job.user, job.spec.project, job.spec.name) for job in jobs):
                known = {_of(job, selection.field) for job in jobs}
                raise CommandError(
                    f"no job of the log has the {selection.field} {selection.value!r}."
                    f"{nearest(selection.value, sorted(known))}",
                    f"The log has: {_few(sorted(known))}.",
                )
    if number is not None and number not in facts.jobs:
        raise CommandError(f"the log has no job {number}", "Job numbers in a story are those of the log.")


def _of(job: TraceJob, kind: str) -> str:
    return {"user": job.user, "project": job.spec.project, "name": job.spec.name}[kind]


def _few(names: list[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")


def _time(line: str, midnight: datetime, before_s: float | None, zone: tzinfo) -> tuple[float, str]:
    """Return the time of a line in seconds since 1970, and the command after the time.

    `midnight` is the beginning of day 1, the day of the first submit. `before_s` is the time of the line
    above; None for the first line.
    """
    text = line.strip()
    day = _DAY.fullmatch(text)
    if day is not None:
        moment_s, rest = _on_day(day[1], day[2], midnight), day[3]
    else:
        word, _, rest = text.partition(" ")
        start_s = midnight.timestamp() if before_s is None else before_s
        try:
            with amounts.as_of(start_s, zone):
                moment_s = amounts.moment(word)
        except ValueError:
            if line[0].isspace() and before_s is not None:
                return before_s, text
            raise CommandError(f"{word!r} is not a time", _TIME_HINT) from None
    if before_s is not None and moment_s < before_s:
        raise CommandError(
            f"the time is before that of the line above, {_when(before_s, midnight)}",
            "Write the lines in the order of their times.",
        )
    return moment_s, rest.strip()


def _on_day(number: str, time_of_day: str, midnight: datetime) -> float:
    clock = _TIME_OF_DAY.fullmatch(time_of_day)
    if not (number.isascii() and number.isdigit() and 1 <= int(number) <= 36_500):
        raise CommandError(f"{number!r} is not the number of a day", "Write day 1 for the first day.")
    if clock is None or int(clock[1]) > 24 or int(clock[2]) > 59:
        raise CommandError(f"{time_of_day!r} is not a time of day", "Write day 3 08:00.")
    hours, minutes, seconds = (int(part or 0) for part in clock.groups())
    date = midnight + timedelta(days=int(number) - 1)
    # Add the time of day to local midnight without a fixed UTC offset, so that the result is right when
    # summer time begins or ends.
    return (date + timedelta(hours=hours, minutes=minutes, seconds=seconds)).timestamp()


def _when(moment_s: float, midnight: datetime) -> str:
    """Return the time of a line as `day N HH:MM`."""
    at = datetime.fromtimestamp(moment_s, UTC).astimezone(midnight.tzinfo)
    days = (at.date() - midnight.date()).days + 1
    return f"day {days} {at:%H:%M:%S}".removesuffix(":00")
