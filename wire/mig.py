"""MIG profiles: slices of a GPU that the driver hands out as devices of their own."""

from __future__ import annotations

import re

_PROFILE = re.compile(r"[1-7]g\.(\d{1,3})gb(\+me)?")
_SLICES = re.compile(r"(.+?)(?:\*([1-9]\d?))?")


def is_profile(text: str) -> bool:
    """Is it written as NVIDIA writes profiles: 1g.5gb, 3g.20gb, 1g.5gb+me?"""
    return _PROFILE.fullmatch(text) is not None


def memory_mib(profile: str) -> int:
    """The memory that a profile names."""
    match = _PROFILE.fullmatch(profile)
    if match is None:
        raise ValueError(f"{profile!r} is not a MIG profile; write 1g.5gb or 3g.20gb")
    return int(match[1]) * 1024


def instances(text: str) -> list[str]:
    """The profiles of one divided GPU: `1g.5gb*7`, or `3g.20gb/1g.5gb*4`."""
    found: list[str] = []
    for part in text.split("/"):
        match = _SLICES.fullmatch(part)
        if match is None or not is_profile(match[1]):
            raise ValueError(f"{part!r} is not a MIG profile; write 1g.5gb*7 or 3g.20gb/1g.5gb*4")
        found += [match[1]] * int(match[2] or 1)
    if sum(int(profile[0]) for profile in found) > 7:
        raise ValueError(f"{text!r} asks for more than the seven slices of a GPU")
    return found
