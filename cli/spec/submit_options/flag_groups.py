"""Groups of flags with all job options, for commands such as `corral submit` and `corral job set`."""

from __future__ import annotations

import inspect
import re
from typing import Annotated, Any

from cli import completion
from cli.flags import FlagGroup, option, parameter, switch
from cli.spec.submit_options.job_option import JobOption
from cli.spec.submit_options.table import OPTIONS

_COMPLETED = {
    "project": completion.projects,
    "queue": completion.queues,
    "reservation": completion.reservations,
}
"""The functions that complete the values of job options in the shell, by option name."""
_DEFAULT = re.compile(r" Default: .*?\.(?= [A-Z]|$)")


class SubmitOptions(FlagGroup, dict[str, Any]):
    """The job flags of one command line, by option name. A value is a text, True for a switch, or a list for
    a repeated flag.

    There is one flag for each row in the table of job options.
    """

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        return [_parameter(each, each.help) for each in OPTIONS.values()]


class EditOptions(SubmitOptions):
    """The job flags of a command that edits jobs, such as `corral job set`. The help names no defaults,
    because the job keeps its value if the user does not write the flag.
    """

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        return [_parameter(each, _DEFAULT.sub("", each.help)) for each in OPTIONS.values()]


def _parameter(row: JobOption, help_text: str) -> inspect.Parameter:
    if row.is_switch:
        return parameter(row.name, Annotated[bool, switch(row.flag, help_text)], False)
    kind: Any = list[str] if row.repeats else str | None
    flag = option(row.flag, row.metavar, help_text, autocompletion=_COMPLETED.get(row.name))
    return parameter(row.name, Annotated[kind, flag], [] if row.repeats else None)
