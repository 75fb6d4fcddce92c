"""Reads Slurm's texts for run times (D-HH:MM:SS), memory, GRES and lists of host names, and writes time
limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)(?:i?B)?[nc]?\??", re.IGNORECASE)
_KIB = {"K": 1, "": 1024, "M": 1024, "G": 1024**2, "T": 1024**3, "P": 1024**4}
_GRES = re.compile(
    r"(?:gres[:/])?(?P<name>[A-Za-z_]+)(?:[:=](?P<type>[^:=,()\d][^:=,()]*))?(?:[:=](?P<count>\d+)(?P<unit>[KMG]?))?"
)
_THOUSANDS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def time_text(seconds: float) -> str:
    """Return a time limit as D-HH:MM:SS, such as 1-02:03:04. Slurm rounds it up to whole minutes."""
    whole = max(1, round(seconds))
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, last = divmod(rest, 60)
    return f"{days}-{hours:02}:{minutes:02}:{last:02}"


def seconds_of(text: str) -> float | None:
    """Return the seconds of a run time such as 5 (minutes), 5:30, 1:02:03, 1-02 or 1-02:03:04; None for
    UNLIMITED and for a time that Slurm does not know.
    """
    text = text.strip()
    if text.upper() in ("", "UNLIMITED", "INFINITE", "NOT_SET", "INVALID", "N/A", "PARTITION_LIMIT"):
        return None
    days, dash, clock = text.rpartition("-")
    parts = [float(part) for part in clock.split(":")]
    if dash:
        hours, minutes, seconds = [*parts, 0.0, 0.0][:3]
        return int(days) * 86_400 + hours * 3_600 + minutes * 60 + seconds
    if len(parts) == 1:
        return parts[0] * 60
    if len(parts) == 2:
        return parts[0] * 60 + parts[1]
    return parts[0] * 3_600 + parts[1] * 60 + parts[2]


def memory_mib(text: str) -> int:
    """Return the MiB of an amount such as 512 (MiB), 512M, 16Gn or 1.50T, rounded down."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"cannot read {text!r} as an amount of memory of Slurm")
    return int(float(match[1]) * _KIB[match[2].upper()] // 1024)


def gpus_of(gres: str) -> tuple[int, str]:
    """Return the number of GPUs in a GRES text, and their type; the type is empty if there are several types.

    Example: `gpu:a100:4(S:0-1),tmpdisk:200G` is (4, "a100"); `gpu:2` is (2, "").
    """
    count, types = 0, set()
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        match = _GRES.fullmatch(part.strip())
        if match is not None and match["name"] == "gpu":
            count += int(match["count"] or 1) * _THOUSANDS[match["unit"] or ""]
            types.add(match["type"] or "")
    return count, types.pop() if len(types) == 1 else ""


def host_names(text: str) -> Iterator[str]:
    """Yield the names in a list of hosts of Slurm. `n[1-2,07],login` is n1, n2, n07, login."""
    for item in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        head, bracket, rest = item.partition("[")
        if not bracket:
            yield item
            continue
        inside, _, tail = rest.partition("]")
        for span in inside.split(","):
            first, dash, last = span.partition("-")
            for number in range(int(first), int(last if dash else first) + 1):
                yield from host_names(f"{head}{number:0{len(first)}}{tail}")
