"""Scheduler profiles. A profile is a scheduling policy for some jobs on some nodes, like a partition with its
own settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.model.decision.decision import Refusal
from controller.core.model.request import PerNodeRequest
from wire.job.placement.affinity import Term
from wire.job.spec import JobSpec
from wire.text import printable

if TYPE_CHECKING:
    from controller.core.framework.interfaces import SchedulingPolicy

DEFAULT_PROFILE = "default"
"""The scheduler profile of jobs that no other profile accepts. If no profiles are configured, the profile of
a job is empty.
"""


@dataclass(frozen=True, slots=True)
class ProfileNodesFilter:
    """The filter that allows the jobs of a scheduler profile only on the nodes of the profile."""

    name: ClassVar[str] = "profile"
    static: ClassVar[bool] = True

    profile: str
    terms: tuple[Term, ...]

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:  # noqa: ARG002 - the same for all requests
        """Return True for each node whose labels match all label terms in the scheduler profile's `nodes`."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        terms, labels = self.terms, nodes.labels
        return np.array([all(term.matches(labels[row]) for term in terms) for row in chosen], dtype=np.bool_)

    def concerns(self, part: PerNodeRequest) -> bool:  # noqa: ARG002 - the same for all requests
        return True

    def explain(self, part: PerNodeRequest) -> str:  # noqa: ARG002 - the same for all requests
        return f"outside profile {printable(self.profile)}"


@dataclass(frozen=True, slots=True)
class Profile:
    """A named scheduling policy for the jobs of some queues, projects and users, on nodes whose labels match
    `nodes`.

    A field with an empty tuple restricts nothing.
    """

    name: str
    policy: SchedulingPolicy
    queues: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    nodes: tuple[Term, ...] = ()

    @property
    def pipeline(self) -> SchedulingPolicy:
        """The scheduling policy of the scheduler profile, with a filter that restricts jobs to the nodes of
        the profile.
        """
        if not self.nodes:
            return self.policy
        return replace(self.policy, filters=(ProfileNodesFilter(self.name, self.nodes), *self.policy.filters))

    def refused(self, spec: JobSpec, user: str) -> tuple[str, str] | None:
        """Return why the scheduler profile does not accept the job: the field and the value that it does not
        allow, such as ("queue", "batch"). Return None if the profile accepts the job.
        """
        for kind, name, names in (
            ("queue", spec.queue, self.queues),
            ("project", spec.project, self.projects),
            ("user", user, self.users),
        ):
            if names and name not in names:
                return kind, name
        return None

    def rows(self, columns: NodeTable) -> Bools:
        return np.array([all(term.matches(each) for term in self.nodes) for each in columns.labels], np.bool_)


def profile_of(profiles: Sequence[Profile], spec: JobSpec, user: str) -> str:
    """Return the name of a job's scheduler profile. The result is the requested profile if it accepts the
    job, otherwise the first profile that accepts the job. It is empty if there are no profiles.

    The profile depends on the job and the configuration. A change of the configuration may therefore change
    the profile of a waiting job.
    """
    fitting = [each.name for each in profiles if each.refused(spec, user) is None]
    if not fitting:
        return ""
    return spec.profile if spec.profile in fitting else fitting[0]


def may_change_profile(before: JobSpec, after: JobSpec) -> bool:
    """Return whether an edit of a job's spec may change the job's scheduler profile. The spec changes from
    `before` to `after`.
    """
    return (before.profile, before.queue, before.project) != (after.profile, after.queue, after.project)


def profile_refusal(profiles: Sequence[Profile], spec: JobSpec, user: str) -> Refusal | None:
    """Return a refusal if the requested scheduler profile does not exist or does not accept the job;
    otherwise None.
    """
    if spec.profile is None or (not profiles and spec.profile == DEFAULT_PROFILE):
        return None
    found = next((each for each in profiles if each.name == spec.profile), None)
    shown = printable(spec.profile)
    if found is None:
        hint = _nearest(spec.profile, (each.name for each in profiles))
        return Refusal("invalid", f"there is no profile {shown!r}", "profile", hint)
    refused = found.refused(spec, user)
    if refused is None:
        return None
    kind, name = refused
    there = ", ".join(map(printable, getattr(found, f"{kind}s")))
    fitting = profile_of(profiles, spec, user)
    return Refusal(
        "not_allowed",
        f"profile {shown!r} is not for {kind} {printable(name)!r}",
        "profile",
        f"It is for {there}. Without --profile the job has profile {printable(fitting)!r}.",
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if not names:
        return "This cluster has no profiles: leave the profile out."
    close = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(names)}."
