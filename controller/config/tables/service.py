"""Tables for the service: cluster, controller, store, retention, API, access, questions (explain, what-if)
and plugins.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from controller.config.tables.fields import AbsolutePath, Name, PlainPath, Plugin, Section

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):(\d{1,5})")


def _address(text: str) -> str:
    match = _ADDRESS.fullmatch(text)
    if text and (match is None or int(match[2]) > 65_535):
        raise ValueError(f'cannot read {text!r} as an address; write "127.0.0.1:7070", or "" for none')
    return text


def _url(text: str) -> str:
    if text and not (text.startswith(("http://", "https://", "ssh://", "unix:///")) and text.isprintable()):
        raise ValueError(f'cannot read {text!r} as a URL; write "https://head1:7070", or "" for none')
    return text


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # A host name counts as no loopback address, because its address can change.


class ClusterSection(Section):
    """The name of the cluster, and the directories that all its hosts share (network file systems)."""

    name: Name = "corral"
    shared: list[PlainPath] = []


class ControllerSection(Section):
    """The paths and limits of the controller process."""

    state_dir: AbsolutePath = ""
    socket: AbsolutePath = ""
    keep_ended: int = Field(10_000, ge=0, le=1_000_000)
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class StoreSection(Section):
    """The database that holds the journal (all events) and the present state of jobs, nodes and
    reservations.
    """

    url: str = ""


class RetentionSection(Section):
    """Sets how long the store keeps ended jobs and journal entries; 0 means no limit."""

    jobs_days: float = Field(365.0, ge=0, le=36_500)
    jobs: int = Field(500_000, ge=0, le=1_000_000_000)
    journal_days: float = Field(365.0, ge=0, le=36_500)
    journal_entries: int = Field(2_000_000, ge=0, le=1_000_000_000)


class ApiSection(Section):
    """The address and the limits of the HTTP API."""

    listen: Annotated[str, AfterValidator(_address)] = ""
    url: Annotated[str, AfterValidator(_url)] = ""
    tls: Literal["", "auto"] = ""
    certificate: AbsolutePath = ""
    key: AbsolutePath = ""
    max_body: int = Field(1 << 20, ge=1 << 10, le=1 << 28)
    max_connections: int = Field(1_000, ge=1, le=100_000)
    max_per_address: int = Field(250, ge=1, le=100_000)

    @model_validator(mode="after")
    def _plain_tcp_is_local(self) -> Self:
        host = self.listen.rpartition(":")[0].strip("[]")
        if self.listen and not (self.tls or self.certificate) and not _is_loopback(host):
            raise ValueError(
                f"{self.listen} can be reached from other hosts, and tokens must not be sent without TLS: "
                'set tls = "auto" or certificate, or listen on 127.0.0.1'
            )
        if self.tls and self.certificate:
            raise ValueError("set tls or certificate, not both")
        return self


class QuestionsSection(Section):
    """Limits for `corral explain`, `corral what-if` and previews of submits."""

    at_once: int = Field(0, ge=0, le=64)
    budget_s: float = Field(2.0, ge=0.1, le=60)
    longest_s: float = Field(10.0, ge=0.1, le=600)
    memory_mib: int = Field(1_024, ge=64, le=1 << 20)


class PluginsSection(Section):
    """The plugin files to load, and the hook and metrics plugins to use."""

    files: list[Name] = []
    hooks: list[Plugin] = []
    metrics: list[Plugin] = []
