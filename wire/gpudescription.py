"""Parses descriptions of a host's GPUs, such as `simulated:8xH100`. A description is the value of the setting
`gpus` of a node in scheduler.toml, or of the option `--gpus`.
"""

from __future__ import annotations

import re

from wire.cluster import mig
from wire.dataclass import dataclass

DETECTED = ("auto", "none", "nvml")
"""The descriptions of real GPUs: `auto` detects the GPUs in any way, `none` offers no GPU, and `nvml` detects
GPUs only with NVML.
"""
SIMULATED_MODELS = ("H200", "H100", "A100", "A100-40G", "V100", "L40S", "L4", "T4", "RTX4090")
"""The models that can be simulated. agent/gpus/simulated.py has the properties of each."""
_PREFIX = "simulated:"
_IDLE = "idle"
_GROUP = re.compile(r"([1-9]\d{0,2})x([A-Za-z0-9-]+)(?::(.+))?")


@dataclass(frozen=True)
class GpuGroup:
    """A group of equal simulated GPUs. `slices` are the MIG profiles into which each GPU is divided; empty if
    the GPUs are not divided. If `idle` is True, the GPUs never have load, even while jobs hold these GPUs.
    """

    count: int
    model: str
    slices: tuple[str, ...] = ()
    idle: bool = False


def checked_description(text: str) -> str:
    """Return the description unchanged. Raise ValueError if an agent could not parse the description."""
    if text not in DETECTED:
        parse_simulated(text)
    return text


def parse_simulated(text: str) -> tuple[GpuGroup, ...]:
    """Return the groups of equal GPUs in a description such as `simulated:8xH100,2xA100:1g.5gb*7`. Raise
    ValueError for any other description.
    """
    if not text.startswith(_PREFIX):
        raise ValueError(f'cannot read {text!r} as GPUs; write "auto", "none", "nvml" or "simulated:8xH100"')
    return tuple(_group(part.strip()) for part in text[len(_PREFIX) :].split(","))


def _group(part: str) -> GpuGroup:
    match = _GROUP.fullmatch(part)
    model = match[2].upper() if match else ""
    if match is None or model not in SIMULATED_MODELS:
        known = ", ".join(SIMULATED_MODELS)
        raise ValueError(f"cannot read {part!r}; write 8xH100 or 8xH100,8xL40S with one of {known}")
    profiles, _, last = (match[3] or "").rpartition(":")
    if last != _IDLE:
        profiles = match[3] or ""
    try:
        slices = mig.instances(profiles) if profiles else []
    except ValueError as error:
        raise ValueError(f"cannot read {part!r}: {error}") from None
    return GpuGroup(int(match[1]), model, tuple(slices), last == _IDLE)
