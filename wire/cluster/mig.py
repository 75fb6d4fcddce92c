"""MIG profiles. With MIG the driver divides a GPU into instances, and a MIG profile such as 1g.5gb names the
size of an instance.
"""

from __future__ import annotations

import re
from typing import Iterable

_PROFILE = re.compile(r"[1-7]g\.(\d{1,3})gb(\+me)?")
_SLICES = re.compile(r"(.+?)(?:\*([1-9]\d?))?")


def is_profile(text: str) -> bool:
    """Return whether the text is a MIG profile in NVIDIA's format: 1g.5gb, 3g.20gb, 1g.5gb+me."""
    return _PROFILE.fullmatch(text) is not None


def memory_mib(profile: str) -> int:
    """Return the memory of an instance with this MIG profile, in MiB. Raise ValueError for any other text."""
    match = _PROFILE.fullmatch(profile)
    if match is None:
        raise ValueError(f"{profile!r} is not a MIG profile; write 1g.5gb or 3g.20gb")
    return int(match[1]) * 1024


def instances(text: str) -> list[str]:
    """Return the MIG profiles of the instances of one GPU, from a text such as `1g.5gb*7` or
    `3g.20gb/1g.5gb*4`. Raise ValueError for any other text.
    """
    found: list[str] = []
    for part in text.split("/"):
        match = _SLICES.fullmatch(part)
        if match is None or not is_profile(match[1]):
            raise ValueError(f"{part!r} is not a MIG profile; write 1g.5gb*7 or 3g.20gb/1g.5gb*4")
        found += [match[1]] * int(match[2] or 1)
    if sum(int(profile[0]) for profile in found) > 7:
        raise ValueError(f"{text!r} needs more than the seven slices of a GPU")
    return found


def counted_models(gpus: Iterable[tuple[str, str]]) -> str:
    """Return the number of GPUs of each model as text, such as `4 × H100 (1 of them as 3 MIG instances)`.

    `gpus` has the number and the model of each GPU or MIG instance. The MIG instances of one GPU count
    as one GPU.
    """
    whole: dict[str, set[str]] = {}
    divided: dict[str, list[str]] = {}
    for number, model in gpus:
        gpu, colon, _ = number.partition(":")
        whole.setdefault(model, set()).add(gpu)
        if colon:
            divided.setdefault(model, []).append(gpu)
    texts = []
    for model in sorted(whole):
        parts = divided.get(model, [])
        more = f" ({len(set(parts))} of them as {len(parts)} MIG instances)" if parts else ""
        texts.append(f"{len(whole[model])} × {model}{more}")
    return ", ".join(texts)
