"""Gives a job settings of the submitting shell: the umask, an activated venv, and the variables of --env."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, replace

from cli.exit_codes import CommandError
from cli.spec.option_sources import OptionText
from wire import amounts
from wire.dataclass import dataclass
from wire.job.spec import JobSpec, is_storable

ALL, NONE = "all", "none"
_OF_THE_SHELL = frozenset(("HOME", "USER", "LOGNAME", "SHELL", "MAIL", "PWD", "OLDPWD", "SHLVL", "_", "TERM"))
"""Variables that --env all does not pass on: they describe the user's shell, or the node sets them for the
user of the job.
"""
_OF_SCHEDULERS = ("CORRAL_", "SLURM_")
"""Prefixes of variables that --env all does not pass on. These are settings and secrets of corral, and, in a
job that submits another job, the variables of the first job.
"""


@dataclass(frozen=True)
class Submitter:
    umask: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def activated(self) -> dict[str, str]:
        """Return the variables of an activated Python venv or conda environment; empty if none is active."""
        if not (self.environment.get("VIRTUAL_ENV") or self.environment.get("CONDA_PREFIX")):
            return {}
        return {
            name: value
            for name, value in self.environment.items()
            if name in ("PATH", "VIRTUAL_ENV") or name.startswith("CONDA_")
        }


def submitter() -> Submitter:
    before = os.umask(0o077)
    os.umask(before)
    return Submitter(before, os.environ)


def inherited(spec: JobSpec) -> JobSpec:
    """Return the job with the defaults of `corral submit`: the umask, the activated venv or conda
    environment, and one log for stdout and stderr.
    """
    shell = submitter()
    return replace(spec, umask=shell.umask, merge_output=True, env={**shell.activated, **spec.env})


def variables(
    env_options: list[OptionText], environment: Mapping[str, str], first: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables of a job: the variables in `first`, changed by each --env option in
    order.

    NAME=VALUE sets a variable, and NAME passes on a variable of the submitting shell (`environment`). `all`
    passes on all variables of this shell except those that belong to the shell or to a scheduler. `none`
    removes the variables of `first` and of the --env options before it.
    """
    found = dict(first)
    for option in env_options:
        if option.text == NONE:
            found.clear()
        elif option.text == ALL:
            found.update(_all_variables(environment))
        else:
            name, value = _variable(option, environment)
            found[name] = value
    return found


def _all_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name not in _OF_THE_SHELL and not name.startswith(_OF_SCHEDULERS) and is_storable(name + value)
    }


def _variable(option: OptionText, environment: Mapping[str, str]) -> tuple[str, str]:
    text = option.text
    try:
        if "=" in text:
            return amounts.pair(text)
    except ValueError as error:
        raise CommandError(
            f"{option.source}: {error}", "'corral submit --help' shows how to write it."
        ) from None
    if text not in environment:
        raise CommandError(
            f"{option.source}: {text!r} is not set in your environment; write {text}=VALUE",
            "'--env all' passes on all variables that are set, '--env none' passes on none.",
        )
    return text, environment[text]
