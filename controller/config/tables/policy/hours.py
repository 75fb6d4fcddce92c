"""[hours.NAME]: quotas and weights of tenants for some hours of the week."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from controller.config.tables.fields import Name, Section
from controller.config.tables.policy.scheduler import Weight
from controller.config.tables.queues import Window


class HoursSection(Section):
    """Quotas and weights that replace the values of [quota] and [fair_share] during the hours of
    the table.
    """

    hours: Annotated[list[Window], Field(min_length=1)]
    weights: dict[Name, Weight] = {}
    quota: dict[str, Any] = {}
