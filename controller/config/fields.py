"""Building blocks of the tables of scheduler.toml: names, and plugins with their options."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_serializer, model_validator

from wire.cluster import hosts

NodeName = Annotated[str, AfterValidator(hosts.checked_node_name)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Section(BaseModel):
    """A table: frozen, without unknown keys and without conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Plugin(BaseModel):
    """A plugin by name, or as a table of its name and its options."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: Name

    @property
    def options(self) -> dict[str, Any]:
        """What the plugin's fields are set to."""
        return self.model_extra or {}

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


class WeightedPlugin(BaseModel):
    """A scorer's weight, or a table of its weight and its options."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    weight: float = Field(ge=0, le=1_000_000)

    @property
    def options(self) -> dict[str, Any]:
        """What the plugin's fields are set to."""
        return self.model_extra or {}

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
