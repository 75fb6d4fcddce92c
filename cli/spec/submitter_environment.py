"""Gives a job the umask, the activated environment and the chosen variables of the shell that submits it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cli.exit_codes import CommandError
from cli.spec.submit_options import Given
from wire import amounts
from wire.job.spec import JobSpec, is_storable

ALL, NONE = "all", "none"
_OF_THE_SHELL = frozenset(("HOME", "USER", "LOGNAME", "SHELL", "MAIL", "PWD", "OLDPWD", "SHLVL", "_", "TERM"))
"""Variables that --env all does not pass on, because the node sets them for the job's user, or only the shell
needs them.
"""
_OF_SCHEDULERS = ("CORRAL_", "SLURM_")
"""Prefixes of variables that --env all does not pass on: settings and secrets of this client, and variables
of a job that submits another job.
"""


@dataclass(frozen=True)
class Submitter:
    """The shell from which a job is submitted."""

    umask: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def activated(self) -> dict[str, str]:
        """The variables of an activated Python venv or conda environment; none if none is active."""
        if not (self.environment.get("VIRTUAL_ENV") or self.environment.get("CONDA_PREFIX")):
            return {}
        return {
            name: value
            for name, value in self.environment.items()
            if name in ("PATH", "VIRTUAL_ENV") or name.startswith("CONDA_")
        }


def submitter() -> Submitter:
    """The shell that started this process."""
    before = os.umask(0o077)
    os.umask(before)
    return Submitter(before, os.environ)


def inherited(spec: JobSpec) -> JobSpec:
    """The same job with the defaults of `corral submit`: the umask, the activated environment, and one log
    for stdout and stderr.
    """
    shell = submitter()
    return replace(spec, umask=shell.umask, merge_output=True, env={**shell.activated, **spec.env})


def variables(asked: list[Given], environment: Mapping[str, str], first: Mapping[str, str]) -> dict[str, str]:
    """The variables of a job: first those of `first`, then those of each --env option in order.

    NAME=VALUE sets a variable, NAME passes one on, `all` passes on all variables of the submitter, and `none`
    drops all variables before it.
    """
    found = dict(first)
    for given in asked:
        if given.text == NONE:
            found.clear()
        elif given.text == ALL:
            found.update(_all(environment))
        else:
            name, value = _one(given, environment)
            found[name] = value
    return found


def _all(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name not in _OF_THE_SHELL and not name.startswith(_OF_SCHEDULERS) and is_storable(name + value)
    }


def _one(given: Given, environment: Mapping[str, str]) -> tuple[str, str]:
    text = given.text
    try:
        if "=" in text:
            return amounts.pair(text)
    except ValueError as error:
        raise CommandError(
            f"{given.source}: {error}", "'corral submit --help' shows how to write it."
        ) from None
    if text not in environment:
        raise CommandError(
            f"{given.source}: {text!r} is not set in your environment; write {text}=VALUE",
            "'--env all' passes on everything that is set, '--env none' nothing.",
        )
    return text, environment[text]
