"""[services.NAME]: a service. A service is a number of jobs (replicas) that must run at all times."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from controller.config.tables.fields import AbsolutePath, Cpus, Memory, Name, Section
from wire.names import PRIORITIES

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")


def _service(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a service: at most 63 letters, digits, '-' and '_'")
    return name


ServiceName = Annotated[str, AfterValidator(_service)]


class HealthSection(Section):
    """The health check of each replica of a service: a command or a URL."""

    command: list[str] = []
    url: str = ""
    every_s: float = Field(10.0, ge=0.1, le=86_400)
    timeout_s: float = Field(5.0, ge=0.1, le=86_400)
    failures: int = Field(3, ge=1, le=1_000)
    start_s: float = Field(60.0, ge=0, le=86_400)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError(
                'write either command = ["test", "-e", "ready"] or url = "http://127.0.0.1:8000/"'
            )
        return self


class ServiceSection(Section):
    """One service: the request of each replica, the number of replicas, and the rules for restarting
    replicas.
    """

    user: Name
    command: Annotated[list[str], Field(min_length=1)]
    replicas: int = Field(1, ge=0, le=1_000)
    project: Name = "default"
    queue: Name = "default"
    priority: int = Field(PRIORITIES["NORMAL"], ge=0, le=100)
    image: str = ""
    mounts: list[str] = []
    workdir: AbsolutePath = ""
    environment: dict[str, str] = {}
    gpus: float = Field(0, ge=0, le=100_000)
    gpu_models: list[str] = []
    cpus: Cpus | None = None
    memory: Memory | None = None
    nodes: int | None = Field(None, ge=1, le=10_000)
    select: dict[str, str] = {}
    spread: Literal["prefer", "require", "none"] = "prefer"
    health: HealthSection | None = None
    ready_after_s: float = Field(10.0, ge=0, le=86_400)
    max_unavailable: int = Field(1, ge=0, le=1_000)
    restart_delay_s: float = Field(10.0, ge=0, le=86_400)
    restart_delay_most_s: float = Field(600.0, ge=0, le=86_400)
    grace_s: float = Field(10.0, ge=0, le=3_600)

    @field_validator("priority", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.upper() not in PRIORITIES:
            raise ValueError(f"{value!r} is no priority; write 0 to 100, or {', '.join(PRIORITIES)}")
        return PRIORITIES[value.upper()]
