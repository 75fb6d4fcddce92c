"""Converts values of a JobSpec to the texts of the options that set them: 16G for `--memory 16G`.

Each function returns a list with one text for each time that the option must be written. The list is empty if
the value is the default, which needs no option.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from wire.job.placement.gpu_requirements import Topology
from wire.job.placement.job_affinity import JobTerm
from wire.job.start_conditions import DEFAULT_RESTART, Restart
from wire.names import ENGINE_LABEL

Texts = list[str]


def any_value(value: Any) -> Texts:
    """Return the texts that set an option to this value: one text for each entry of a list or mapping, and an
    empty list for an empty value.
    """
    if isinstance(value, Mapping):
        return [f"{key}={each}" for key, each in value.items()]
    if isinstance(value, tuple):
        return [str(each) for each in value]
    return [str(getattr(value, "value", value))] if value else []


def selected_labels(selector: Mapping[str, str]) -> Texts:
    """Return the texts of --select for a selector. The execution engine has a flag of its own."""
    return [f"{key}={each}" for key, each in selector.items() if key != ENGINE_LABEL]


def engine(selector: Mapping[str, str]) -> Texts:
    """Return the text of --engine for a selector."""
    return [selector[ENGINE_LABEL]] if ENGINE_LABEL in selector else []


def commas(values: tuple[str, ...]) -> Texts:
    return [",".join(values)] if values else []


def size(mib: int | None) -> Texts:
    return [] if not mib else [f"{mib}M" if mib % 1024 else f"{mib // 1024}G"]


def cores(milli: int | None) -> Texts:
    return [f"{milli / 1000:g}"] if milli else []


def span_text(seconds: float) -> str:
    whole = round(seconds)
    if whole % 60:
        return f"{whole}s"
    return f"{whole // 60}m" if whole % 3_600 else f"{whole // 3_600}h"


def time_span(seconds: float | None) -> Texts:
    return [span_text(seconds)] if seconds else []


def moment(at: float | None) -> Texts:
    return [f"{datetime.fromtimestamp(at, UTC).astimezone():%Y-%m-%dT%H:%M:%S%z}"] if at else []


def other_than(default: Any, show: Callable[[Any], Texts]) -> Callable[[Any], Texts]:
    """Return a function that converts a value to its texts. For the value `default`, that function returns an
    empty list.
    """
    return lambda value: [] if value == default else show(value)


def if_true(value: bool) -> Texts:
    return [""] if value else []


def if_false(value: bool) -> Texts:
    return [] if value else [""]


def command(command: tuple[str, ...]) -> Texts:
    import shlex

    return [shlex.join(command)] if command else []


def topology(kind: str) -> Callable[[Topology], Texts]:
    def show(topology: Topology) -> Texts:
        if {1: "same", None: "different"}.get(topology.domains, "domains") != kind:
            return []
        count = f"={topology.domains}" if kind == "domains" else ""
        return [f"{topology.label}{count}{':prefer' if topology.prefer else ''}"]

    return show


def job_terms(kind: str) -> Callable[[tuple[JobTerm, ...]], Texts]:
    def show(terms: tuple[JobTerm, ...]) -> Texts:
        return [
            f"{each.key}={each.value} on {each.topology}"
            + (f"={each.domains}" if kind == "over" else "")
            + (":prefer" if each.prefer else "")
            for each in terms
            if {1: "near", None: "apart"}.get(each.domains, "over") == kind
        ]

    return show


def restart_policy(restart: Restart) -> Texts:
    if restart == DEFAULT_RESTART:
        return []
    return [restart.when.value + (f":{restart.limit}" if restart.limit is not None else "")]


def restart_delay(restart: Restart) -> Texts:
    if (restart.delay_s, restart.delay_most_s) == (DEFAULT_RESTART.delay_s, DEFAULT_RESTART.delay_most_s):
        return []
    return [f"{span_text(restart.delay_s)}:{span_text(restart.delay_most_s)}"]
