"""Computes the changes of a job for `corral job set` from the options on the command line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cli.exit_codes import CommandError
from cli.registry import nearest
from cli.spec.option_sources import from_flags
from cli.spec.spec_builder import flag_of, spec_from
from cli.spec.submit_options.flag_groups import SubmitOptions
from cli.spec.submit_options.job_option import JobOption
from cli.spec.submit_options.table import BY_FLAG, OPTIONS
from wire import amounts
from wire.api.problem import Problem
from wire.codec import encode


def changes_of(options: SubmitOptions, clear: str, *, extends: bool = False) -> dict[str, Any]:
    """Return a dict from each changed JobSpec field to its new value as JSON data. `clear` is a list of
    options such as `gpus,time`; the fields of these options get the value None, which means the default.
    Raise CommandError if nothing changes, unless the command extends the time limit (`extends`).
    """
    texts = from_flags(options)
    spec = encode(spec_from(("true",), "", texts, {}))
    changes: dict[str, Any] = {field: spec[field] for name in texts for field in _fields(OPTIONS[name])}
    for word in filter(None, (part.strip() for part in clear.split(","))):
        flag = "--" + word.removeprefix("--")
        if flag not in BY_FLAG:
            raise CommandError(f"--clear: {word!r} is not an option of a job.{nearest(flag, BY_FLAG)}")
        changes.update(dict.fromkeys(_fields(BY_FLAG[flag])))
    if not changes and not extends:
        raise CommandError("there is nothing to change", "Name an option: corral job set 7 --priority high")
    return changes


def split_extension(options: SubmitOptions) -> tuple[SubmitOptions, float]:
    """Return the options without a --time that begins with a plus sign, such as --time +2h, and the seconds
    that this --time adds to the time limit; 0 if there is no such --time.
    """
    text = options.get("time")
    if not isinstance(text, str) or not text.startswith("+"):
        return options, 0.0
    try:
        added = amounts.seconds(text[1:])
    except ValueError as error:
        raise CommandError(f"--time: {error}", "Write +2h, or the whole limit, such as 8h.") from None
    return type(options)({name: value for name, value in options.items() if name != "time"}), added


def with_flag_names(problem: Problem) -> Problem:
    """Return the controller's error about a job with the flag, such as --time, in place of the API field."""
    return replace(problem, where=flag_of(problem.where))


def _fields(option: JobOption) -> tuple[str, ...]:
    # --gpus-per-node sets two fields: the number of GPUs of the job, and the number of its nodes.
    return ("gpus", "nodes") if option.name == "gpus_per_node" else (option.field,)
