"""[projects.NAME]: the members of a project, its weight and its organisation in the share tree."""

from __future__ import annotations

from controller.config.tables.fields import Name, Section
from controller.config.tables.policy import Weight


class ProjectSection(Section):
    """One project. A project without members is open to all users."""

    members: list[Name] = []
    weight: Weight | None = None
    organisation: Name | None = None
    default_for: list[Name] = []
