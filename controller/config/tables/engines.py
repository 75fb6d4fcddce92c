"""Tables of execution engines, which run jobs for Corral: [engines.NAME]."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from controller.config.tables.fields import Name, WithOptions
from wire.cluster import hosts

EngineName = Annotated[str, Field(max_length=32), AfterValidator(hosts.checked_node_name)]


class EngineSection(WithOptions):
    """One execution engine: [engines.NAME]. Keys without a field in this class are options of the engine
    type.
    """

    type: Name
    interval_s: float = Field(10.0, ge=0.05, le=3_600)
    timeout_s: float = Field(30.0, ge=0.1, le=3_600)
    lost_after_s: float = Field(300.0, ge=0, le=31_536_000)
    breaker_failures: int = Field(3, ge=1, le=1_000)
    ask_patience_s: float = Field(600.0, ge=0, le=31_536_000)
    only_on_request: bool = True
    labels: dict[str, str] = {}
