"""[projects.NAME]: the members of a project, its weight, its organisation and its budget; and [budgets]."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from controller.config.tables.fields import Name, Section
from controller.config.tables.policy.scheduler import Weight

Amount = Annotated[float, Field(ge=0, le=1e12)]


class BudgetSection(Section):
    """The budget of one project for each calendar month: [projects.NAME.budget]."""

    gpu_hours: Amount | None = None
    money: Amount | None = None
    carry_over: float = Field(0.0, ge=0, le=1)
    then: Literal["alert", "low", "stop"] = "alert"

    @model_validator(mode="after")
    def _has_amount(self) -> Self:
        if self.gpu_hours is None and self.money is None:
            raise ValueError("set gpu_hours, money or both")
        return self


class BudgetsSection(Section):
    """The prices of GPU-hours, CPU-hours and memory, for budgets in money and for reports: [budgets]."""

    currency: str = Field("", max_length=20)
    gpu_hour: Amount = 0.0
    gpu_hour_per_model: dict[Name, Amount] = {}
    cpu_hour: Amount = 0.0
    memory_gib_hour: Amount = 0.0


class ProjectSection(Section):
    """One project. A project without members is open to all users."""

    members: list[Name] = []
    operators: list[Name] = []
    weight: Weight | None = None
    organisation: Name | None = None
    default_for: list[Name] = []
    budget: BudgetSection | None = None
