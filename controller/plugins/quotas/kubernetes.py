"""The `kubernetes` quota provider: the limits of projects come from resource quotas of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from controller.plugins.quotas.local import LocalQuotas


@dataclass(frozen=True, slots=True)
class KubernetesQuotas(LocalQuotas):
    """The tables of the provider `local`, and the namespaces of projects. The controller reads the resource
    quotas of these namespaces every `interval_s` seconds through the execution engine `engine`, and sets
    their limits as quotas of the projects: see ForeignQuotas.
    """

    name: ClassVar[str] = "kubernetes"
    engine: str = ""
    namespaces: Mapping[str, str] = field(default_factory=dict)
    interval_s: float = 60.0

    def __post_init__(self) -> None:
        if self.namespaces and not self.engine:
            raise ValueError("engine: name the table [engines.NAME] through which namespaces are read")
        if not 1 <= self.interval_s <= 86_400:
            raise ValueError("interval_s must be from 1 to 86400 seconds")
