"""Quota providers that take the limits of projects from an execution engine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from controller.plugins.quotas.local import LocalQuotas


@dataclass(frozen=True, slots=True)
class EngineQuotas(LocalQuotas):
    """The tables of the provider `local`, and the names that the quotas of projects have in the execution
    engine `engine`. The controller reads these quotas every `interval_s` seconds, and sets their limits as
    quotas of the projects: see ForeignQuotas.
    """

    engine: str = ""
    interval_s: float = 60.0

    def __post_init__(self) -> None:
        if self.foreign_names and not self.engine:
            raise ValueError("engine: name the table [engines.NAME] through which quotas are read")
        if not 1 <= self.interval_s <= 86_400:
            raise ValueError("interval_s must be from 1 to 86400 seconds")

    @property
    @abstractmethod
    def foreign_names(self) -> Mapping[str, str]:
        """The name that the quota of each project has in the engine: the argument of ExecutionEngine.quota.
        Projects without a quota there are left out.
        """
