"""Profiles: several policies side by side, each for some of the jobs and on some of the nodes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from controller.core.columns import Bools, Columns, Rows
from controller.core.inputs import Refusal
from controller.core.requests import Part
from wire.affinity import Term
from wire.spec import JobSpec
from wire.text import plain

if TYPE_CHECKING:
    from controller.core.plugin import Pipeline

DEFAULT_PROFILE = "default"
"""For jobs that no other profile is for. Where there are no profiles, that of a job is the empty name."""


@dataclass(frozen=True, slots=True)
class Inside:
    """The filter that a profile puts before its own: only its nodes."""

    name: ClassVar[str] = "profile"
    static: ClassVar[bool] = True

    profile: str
    terms: tuple[Term, ...]

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:  # noqa: ARG002 - alike for all parts
        """True where every term matches."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        terms, labels = self.terms, nodes.labels
        return np.array([all(term.matches(labels[row]) for term in terms) for row in chosen], dtype=np.bool_)

    def concerns(self, part: Part) -> bool:  # noqa: ARG002 - alike for all parts
        """Every job of the profile."""
        return True

    def explain(self, part: Part) -> str:  # noqa: ARG002 - alike for all parts
        """What is wrong with a lost node."""
        return f"outside profile {plain(self.profile)}"


@dataclass(frozen=True, slots=True)
class Profile:
    """A policy under a name, for jobs of these queues, projects and users on nodes that meet these terms.

    What is empty narrows nothing.
    """

    name: str
    policy: Pipeline
    queues: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    nodes: tuple[Term, ...] = ()

    @property
    def pipeline(self) -> Pipeline:
        """The policy, on the profile's nodes alone."""
        if not self.nodes:
            return self.policy
        return replace(self.policy, filters=(Inside(self.name, self.nodes), *self.policy.filters))

    def refused(self, spec: JobSpec, user: str) -> tuple[str, str] | None:
        """The first thing for which the job is none of the profile's: its kind, and its name."""
        for kind, name, names in (
            ("queue", spec.queue, self.queues),
            ("project", spec.project, self.projects),
            ("user", user, self.users),
        ):
            if names and name not in names:
                return kind, name
        return None

    def rows(self, columns: Columns) -> Bools:
        """The nodes that it may use."""
        return np.array([all(term.matches(each) for term in self.nodes) for each in columns.labels], np.bool_)


def profile_of(profiles: Sequence[Profile], spec: JobSpec, user: str) -> str:
    """The profile of a job: the one it asks for if that is for it, else the first that is.

    A function of the job and of the configuration, and of nothing else: after a restart with another
    configuration waiting jobs are where that puts them.
    """
    fitting = [each.name for each in profiles if each.refused(spec, user) is None]
    if not fitting:
        return ""
    return spec.profile if spec.profile in fitting else fitting[0]


def moves(was: JobSpec, spec: JobSpec) -> bool:
    """May another profile be that of the job after such a change?"""
    return (was.profile, was.queue, was.project) != (spec.profile, spec.queue, spec.project)


def refuse(profiles: Sequence[Profile], spec: JobSpec, user: str) -> Refusal | None:
    """Why a job cannot have the profile that it asks for."""
    if spec.profile is None or (not profiles and spec.profile == DEFAULT_PROFILE):
        return None
    found = next((each for each in profiles if each.name == spec.profile), None)
    shown = plain(spec.profile)
    if found is None:
        hint = _nearest(spec.profile, (each.name for each in profiles))
        return Refusal("invalid", f"there is no profile {shown!r}", "profile", hint)
    refused = found.refused(spec, user)
    if refused is None:
        return None
    kind, name = refused
    there = ", ".join(map(plain, getattr(found, f"{kind}s")))
    fitting = profile_of(profiles, spec, user)
    return Refusal(
        "not_allowed",
        f"profile {shown!r} is not for {kind} {plain(name)!r}",
        "profile",
        f"It is for {there}. Without --profile the job has profile {plain(fitting)!r}.",
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if not names:
        return "This cluster has no profiles: leave it out."
    close = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(names)}."
