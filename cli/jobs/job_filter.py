"""The flags with which lists show only some jobs: --user, --project, --queue, --node and --name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

from cli import completion
from cli.flags import FlagGroup, option


@dataclass(frozen=True)
class OwnerFilter(FlagGroup):
    """The values of --user, --project and --queue, which select the jobs to show. An empty value selects all
    jobs.
    """

    user: Annotated[str, option("--user", "NAME", "Only jobs of this user. Default: all jobs.")] = ""
    project: Annotated[
        str,
        option(
            "--project",
            "NAME",
            "Only jobs of this project. Default: all jobs.",
            autocompletion=completion.projects,
        ),
    ] = ""
    queue: Annotated[
        str,
        option(
            "--queue", "NAME", "Only jobs of this queue. Default: all jobs.", autocompletion=completion.queues
        ),
    ] = ""

    @property
    def only(self) -> dict[str, str]:
        """Return the fields that are not empty, as parameters of an API request."""
        fields = {"user": self.user, "project": self.project, "queue": self.queue}
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True)
class JobFilter(OwnerFilter):
    """The values of --user, --project, --queue, --node and --name, which select the jobs to show."""

    node: Annotated[
        str,
        option(
            "--node", "NAME", "Only jobs on this node. Default: all jobs.", autocompletion=completion.nodes
        ),
    ] = ""
    name: Annotated[
        str,
        option(
            "--name",
            "PATTERN",
            "Only jobs whose names match the pattern, for example 'sweep-*'. Default: all jobs.",
        ),
    ] = ""

    def selects(self, user: str, project: str, queue: str, name: str, nodes: Iterable[str]) -> bool:
        """Return whether a job with these values is shown."""
        return (
            self.user in ("", user)
            and self.project in ("", project)
            and self.queue in ("", queue)
            and (not self.node or self.node in nodes)
            and (not self.name or fnmatchcase(name, self.name))
        )
