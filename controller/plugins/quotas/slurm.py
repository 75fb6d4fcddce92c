"""The `slurm` quota provider: the limits of projects come from accounts and QOS of Slurm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from controller.plugins.quotas.from_engine import EngineQuotas

_NAME = re.compile(r"[\w.+@-]{1,100}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SlurmQuotas(EngineQuotas):
    """The account and the QOS of each project. A project may have either or both."""

    name: ClassVar[str] = "slurm"
    accounts: Mapping[str, str] = field(default_factory=dict)
    qos: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        EngineQuotas.__post_init__(self)
        for key, names in (("accounts", self.accounts), ("qos", self.qos)):
            for project, each in names.items():
                if _NAME.fullmatch(each) is None:
                    raise ValueError(f"{key}.{project}: {each!r} cannot be a name in Slurm")

    @property
    def foreign_names(self) -> Mapping[str, str]:
        """The names are such as `account=vision`, `qos=tight` or `account=vision,qos=tight`."""
        return {
            project: ",".join(
                f"{key}={names[project]}"
                for key, names in (("account", self.accounts), ("qos", self.qos))
                if project in names
            )
            for project in {**self.accounts, **self.qos}
        }
