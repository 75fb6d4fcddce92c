"""The output files of a job (--output and --error) and the Slurm patterns in their names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, Mapping

if TYPE_CHECKING:
    from wire.job.spec import JobSpec

PATTERNS = {
    "j": "job id",
    "J": "job id",
    "A": "array id",
    "a": "array index",
    "x": "job name",
    "N": "node",
    "n": "node's number in the job",
    "u": "user",
    "t": "task, always 0",
    "s": "step, always batch",
    "%": "a percent sign",
}
OPEN_MODES = ("append", "truncate")
_PATTERN = re.compile(r"%(\d{0,2})(.?)", re.DOTALL)
_LONGEST = 4_096


def output_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Validate the output files of a JobSpec. Yield each mistake as (field name, sentence for users)."""
    for where, text in (("output", spec.output), ("error", spec.error)):
        if len(text) > _LONGEST:
            yield where, f"must be at most {_LONGEST:,} characters"
        wrong = next((each[0] for each in _PATTERN.finditer(text) if each[2] not in PATTERNS), None)
        if wrong is not None:
            known = ", ".join(f"%{letter} ({meaning})" for letter, meaning in PATTERNS.items())
            yield where, f"{wrong!r} is not a pattern; valid patterns are {known}"
    if spec.open_mode and spec.open_mode not in OPEN_MODES:
        yield "open_mode", f"must be one of {', '.join(OPEN_MODES)}"
    if spec.umask is not None and not 0 <= spec.umask <= 0o777:
        yield "umask", "must lie between 0 and 777 (octal)"


def expand_patterns(text: str, values: Mapping[str, str]) -> str:
    """Replace the patterns in a path by their values. For instance, `%4j` is the job id with at least four
    digits.

    In each value a slash becomes an underscore, so that the name of a job cannot select another
    directory.
    """

    def value(match: re.Match[str]) -> str:
        width, letter = match.groups()
        found = "%" if letter == "%" else values[letter].replace("/", "_")
        return found.zfill(int(width or 0)) if found.isdigit() else found

    return _PATTERN.sub(value, text)


def is_per_task(text: str) -> bool:
    """Return whether each task of a job step writes to a file of its own, because the path has the pattern
    `%t`.
    """
    return any(match[2] == "t" for match in _PATTERN.finditer(text))


def is_per_node(text: str) -> bool:
    """Return whether each node of a job writes to a file of its own, because the path has the pattern `%N` or
    `%n`.
    """
    return any(match[2] in ("N", "n") for match in _PATTERN.finditer(text))
