"""The `kubernetes` quota provider: the limits of projects come from resource quotas of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from controller.plugins.quotas.from_engine import EngineQuotas


@dataclass(frozen=True, slots=True)
class KubernetesQuotas(EngineQuotas):
    """The namespaces of projects, whose resource quotas are the quotas of the projects."""

    name: ClassVar[str] = "kubernetes"
    namespaces: Mapping[str, str] = field(default_factory=dict)

    @property
    def foreign_names(self) -> Mapping[str, str]:
        return self.namespaces
