"""[queues.NAME]: the limits of a queue and the default values for its jobs."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from controller.config.tables.fields import Name, SizesSection
from controller.config.tables.limits import Priority, Seconds
from controller.core.quota.hours.week_hours import windows_of

Gpus = Annotated[float, Field(ge=0, le=100_000)]


def _window(text: str) -> str:
    windows_of(text)
    return text


Window = Annotated[str, AfterValidator(_window)]


class QueueSection(SizesSection):
    """One queue: its limits, and the default values for its jobs."""

    priority: int = Field(0, ge=-1_000, le=1_000)
    max_priority: Priority | None = None
    max_running: int | None = Field(None, ge=0, le=1_000_000)
    default_time_limit_s: float | None = Field(None, gt=0, le=315_360_000)
    max_time_limit_s: float | None = Field(None, gt=0, le=315_360_000)
    users: list[Name] = []
    projects: list[Name] = []
    default_project: Name | None = None
    min_gpus_per_job: Gpus | None = None
    max_gpus_per_job: Gpus | None = None
    preemptible: bool = True
    may_preempt: list[Name] | None = None
    min_runtime_s: Seconds | None = None
    max_preemptions: int | None = Field(None, ge=1, le=1_000_000)
    cooldown_s: Seconds | None = None
    max_running_per_user: int | None = Field(None, ge=0, le=1_000_000)
    max_gpus_per_user: Gpus | None = None
    max_jobs_per_user: int | None = Field(None, ge=0, le=1_000_000)
    exempt: list[Literal["quota", "fair_share"]] = []
    idle: Literal["flag", "requeue", "cancel"] | None = None
    idle_after_s: Seconds | None = None
    idle_grace_s: Seconds | None = None
    hours: list[Window] = []
    keep_free_gpus: int = Field(0, ge=0, le=100_000)
    keep_free_hours: list[Window] = []
    wait_target_s: float | None = Field(None, gt=0, le=315_360_000)
    select: dict[str, str] = {}
    qos: Name | None = None

    @model_validator(mode="after")
    def _limits_agree(self) -> Self:
        for less, more in (
            ("default_time_limit_s", "max_time_limit_s"),
            ("min_gpus_per_job", "max_gpus_per_job"),
            ("min_gpus_per_job", "max_gpus_per_user"),
        ):
            least, most = getattr(self, less), getattr(self, more)
            if least is not None and most is not None and least > most:
                raise ValueError(f"{less} is more than {more}")
        return self
