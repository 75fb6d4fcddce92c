"""Types that several tables of scheduler.toml use: names, and plugins with their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_serializer, model_validator

from controller.core.model.request import JobDefaults
from wire.cluster import hosts

NodeName = Annotated[str, AfterValidator(hosts.checked_node_name)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Section(BaseModel):
    """Base class of the tables of scheduler.toml. A table object cannot be changed. Unknown keys and values
    of a wrong type are refused.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class WithOptions(BaseModel):
    """Base class of tables with the options of a plugin. Every key that is not a field of the class is an
    option."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    @property
    def options(self) -> dict[str, Any]:
        return self.model_extra or {}


class Plugin(WithOptions):
    """A plugin, written in scheduler.toml as its name, or as a table with its name and options."""

    name: Name

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if isinstance(value, dict | Plugin):
            return value
        if isinstance(value, str):
            return {"name": value}
        raise ValueError("must be the name of a plugin, or a table with its name and options")

    @model_serializer
    def _as_written(self) -> Any:
        return {"name": self.name, **self.options} if self.options else self.name


class WeightedPlugin(WithOptions):
    """The weight of a scorer, written in scheduler.toml as a number, or as a table with the weight and the
    scorer's options.
    """

    weight: float = Field(ge=0, le=1_000_000)

    @model_validator(mode="before")
    @classmethod
    def _from_weight(cls, value: Any) -> Any:
        if isinstance(value, dict | WeightedPlugin):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"weight": value}
        raise ValueError("must be a weight, or a table with weight and options")

    @model_serializer
    def _as_written(self) -> Any:
        return {"weight": self.weight, **self.options} if self.options else self.weight


def _absolute(text: str) -> str:
    # Refuse a relative path, because it would depend on the working directory in which the controller was
    # started.
    if text and not Path(text).expanduser().is_absolute():
        raise ValueError(f"{text!r} is not an absolute path; start it with / or ~/")
    return text


def _root(text: str) -> str:
    # Refuse a path with `.`, `..` or `//`, because the path is compared with the paths of jobs as text.
    if not text.startswith("/") or "//" in text or {".", ".."} & set(text.split("/")):
        raise ValueError(f"{text!r} is not a plain absolute path; start it with / and leave out . and ..")
    return text


PlainPath = Annotated[str, AfterValidator(_root)]

AbsolutePath = Annotated[str, AfterValidator(_absolute)]

Cpus = Annotated[float, Field(gt=0, le=10_000)]

Memory = Annotated[str, AfterValidator(hosts.checked_memory)]


class SizesSection(Section):
    """The default CPU and memory of jobs that request none. If a default is not set, it is computed from the
    CPU and memory of the nodes.
    """

    cpus: Cpus | None = None
    memory: Memory | None = None
    cpus_per_gpu: Cpus | None = None
    memory_per_gpu: Memory | None = None

    @property
    def defaults(self) -> JobDefaults:
        """Return these defaults in the units of the engine: thousandths of a CPU, and MiB of memory."""
        return JobDefaults(
            _milli(self.cpus), _mib(self.memory), _milli(self.cpus_per_gpu), _mib(self.memory_per_gpu)
        )


def _milli(cpus: float | None) -> int | None:
    return None if cpus is None else max(1, round(cpus * 1_000))


def _mib(memory: str | None) -> int | None:
    return None if memory is None else hosts.memory_mib(memory)
