"""Chooses the project of a submitted job, and checks that the user may use this project.

1. A job without --project gets the `default_project` of its queue. If the queue has none, the job gets the
   project whose `default_for` names the user. If there is no such project, the job stays in project
   "default".
2. A project is declared if scheduler.toml names the project, or if an operator has set its quota, weight or
   limit. "default" is always declared. For a job in an undeclared project, `[scheduler] unknown_projects`
   decides: "open" accepts the job, "default" puts the job into project "default", and "refuse" refuses the
   job. The setting applies to operators and admins too.
3. If the project has members, the user must be a member. Operators and admins may use every declared project.

4. If the request was sent with a token for some projects, the project must be one of them.

An edit that changes the project is checked by steps 2 to 4. The simulator and replays have no Requester
(user with rights), so only step 1 applies to their jobs.

Cost: one look-up. If scheduler.toml does not name the project, also one search of all quotas, weights and
limits that operators have set.

Example: scheduler.toml has [projects.vision] with members ada and bob, and default_for ada. A job of ada
without --project goes to vision. With "refuse", a job of ada in project visoin (a typing error) is refused. A
job of eve in vision is always refused.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.core.model.decision.decision import Refusal
from controller.core.model.inputs.input import Requester
from wire.job.spec import JobSpec
from wire.text import printable

DEFAULT_PROJECT = "default"
"""The project of jobs without --project."""

MOST_NAMES = 20
"""The most project names in one error."""


class UnknownProjects(enum.Enum):
    """The treatment of jobs in projects that are not declared (`[scheduler] unknown_projects`)."""

    OPEN = "open"
    """Every project may be used."""
    DEFAULT = "default"
    """The job is put into project "default"."""
    REFUSE = "refuse"
    """The job is refused."""


@dataclass(frozen=True, slots=True)
class ProjectRules:
    """The projects that scheduler.toml declares, with their members. By default no project is declared, and
    every project is open to all users.
    """

    unknown: UnknownProjects = UnknownProjects.OPEN
    declared: frozenset[str] = frozenset()
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The members of each project. A project without members, or without an entry here, is open to all
    users.
    """
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The project of jobs without --project, by user."""
    queue_defaults: Mapping[str, str] = field(default_factory=dict)
    """The project of jobs without --project, by queue. It takes precedence over `defaults`."""

    def with_default(self, spec: JobSpec, user: str) -> JobSpec:
        """Return the spec with the project of step 1 of the module docstring: if the project of `spec` is
        "default", the default project of the queue or of the user replaces it.
        """
        if spec.project != DEFAULT_PROJECT:
            return spec
        project = self.queue_defaults.get(spec.queue) or self.defaults.get(user)
        return spec if project is None else replace(spec, project=project)

    def admit(
        self, asker: Requester | None, spec: JobSpec, set_live: Callable[[], Iterable[str]]
    ) -> JobSpec | Refusal:
        """Return the spec if the user may use its project; otherwise return a refusal. If the project is not
        declared and `unknown_projects` is "default", the returned spec has the project "default".

        `set_live` is a function that returns the projects for which operators have set a quota, weight or
        limit. It is called only if scheduler.toml does not declare the project.
        """
        if asker is None:
            return spec
        if self.unknown is not UnknownProjects.OPEN and not self._is_named(spec.project):
            live = frozenset(set_live())
            if spec.project not in live:
                if self.unknown is UnknownProjects.REFUSE:
                    return self._not_declared(asker, spec.project, live)
                spec = replace(spec, project=DEFAULT_PROJECT)
        if asker.projects is not None and spec.project not in asker.projects:
            there = ", ".join(map(printable, sorted(asker.projects)))
            return Refusal(
                "not_allowed",
                f"this token is not for project {printable(spec.project)!r}",
                "project",
                f"It is for: {there}.",
            )
        return spec if self.may_use(asker, spec.project) else self._not_a_member(asker, spec.project)

    def _is_named(self, project: str) -> bool:
        return project == DEFAULT_PROJECT or project in self.declared

    def may_use(self, asker: Requester, project: str) -> bool:
        """Return whether the user may submit to a project. Only its members, operators and admins may submit
        to a project with members.
        """
        members = self.members.get(project)
        return not members or asker.operator or asker.user in members

    def _not_declared(self, asker: Requester, project: str, set_live: frozenset[str]) -> Refusal:
        usable = sorted(
            name for name in {DEFAULT_PROJECT, *self.declared, *set_live} if self.may_use(asker, name)
        )
        close = difflib.get_close_matches(project.casefold(), usable, n=1, cutoff=0.6)
        guess = f"Did you mean {printable(close[0])!r}? " if close else ""
        return Refusal(
            "invalid",
            f"there is no project {printable(project)!r}",
            "project",
            f"{guess}{_names(usable)} An admin or operator declares a project by [projects.NAME] in "
            "scheduler.toml, and then runs 'corral config apply'.",
        )

    def _not_a_member(self, asker: Requester, project: str) -> Refusal:
        return Refusal(
            "not_allowed",
            f"user {printable(asker.user)!r} is not a member of project {printable(project)!r}",
            "project",
            "Submit to another project, or ask an admin to add you to "
            f"[projects.{printable(project)}] members.",
        )


def project_notes(requested: JobSpec, queued: JobSpec) -> tuple[str, ...]:
    """Return a sentence for the user if a submitted job was put into project "default" because the requested
    project is not declared. Otherwise return an empty tuple.
    """
    if requested.project == queued.project or requested.project == DEFAULT_PROJECT:
        return ()
    return (f"there is no project {printable(requested.project)!r}: the job is in project 'default'",)


def _names(usable: list[str]) -> str:
    if not usable:
        return "You may use no project."
    more = f" and {len(usable) - MOST_NAMES} more" if len(usable) > MOST_NAMES else ""
    return f"You may use: {', '.join(map(printable, usable[:MOST_NAMES]))}{more}."
