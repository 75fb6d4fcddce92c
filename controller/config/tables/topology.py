"""[topology] and [datasets]: the switches above the nodes, and how long data sets that jobs have read count
as cached on a node.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from controller.config.tables.fields import Name, Section
from wire.cluster.hostlist import expand_hostlist


def _hostlist(text: str) -> str:
    if text:
        expand_hostlist(text)
    return text


Hostlist = Annotated[str, AfterValidator(_hostlist)]


class DatasetsSection(Section):
    """[datasets]: sets for how long a node is preferred for jobs with a data set that another job has read on
    this node.
    """

    retention_s: float = Field(259_200.0, ge=0, le=31_536_000)
    least_run_s: float = Field(60.0, ge=0, le=86_400)
    nodes: int = Field(64, ge=1, le=10_000)


class SwitchSection(Section):
    """One network switch: the nodes at this switch, or the switches below this switch. A switch with nodes
    may be written as the host list of these nodes alone.
    """

    nodes: Hostlist = ""
    switches: Hostlist = ""

    @model_validator(mode="before")
    @classmethod
    def _from_nodes(cls, value: Any) -> Any:
        if isinstance(value, list):
            raise ValueError('must be one text, such as "gpu[01-16]" or "gpu01,gpu02"')
        return {"nodes": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.nodes) == bool(self.switches):
            raise ValueError('needs either nodes = "gpu[01-16]" or switches = "rack[1-4]"')
        return self


class TopologySection(Section):
    """The network of the cluster: its switches with their nodes, or the labels that name the switches of each
    node.
    """

    levels: list[Name] = []
    switches: dict[Name, SwitchSection] = {}
    weight: float = Field(100.0, ge=0, le=1_000_000)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.levels and self.switches:
            raise ValueError("has both levels and switches; leave one of them out")
        if len(set(self.levels)) < len(self.levels):
            raise ValueError("names a label twice in levels")
        return self
