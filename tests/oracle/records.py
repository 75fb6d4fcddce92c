"""The records that jobs write about their own runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Life:
    """One process of one attempt. Times are monotonic; `outcome` is None if the process was killed first."""

    job: int
    attempt: int
    rank: int
    pid: int
    node: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[str, ...]
    began: float
    last: float
    outcome: int | None = None

    def __str__(self) -> str:
        return f"job {self.job} attempt {self.attempt} rank {self.rank} (pid {self.pid} on {self.node})"


def read(folder: Path) -> list[Life]:
    """All recorded runs, oldest first. A process killed before its first record has none."""
    lives = (_life(path.name, path.read_text()) for path in folder.iterdir() if path.stat().st_size)
    return sorted(lives, key=lambda life: life.began)


def _life(name: str, text: str) -> Life:
    job, attempt, rank, _ = name.split(".", 3)
    first, *more = (line.split() for line in text.splitlines())
    _, began, pid, node, cpu, memory, gpus = first
    said = [float(time) for _, time, *_ in (first, *more)]
    outcome = next((int(words[2]) for words in more if words[0] == "E"), None)
    return Life(
        int(job),
        int(attempt),
        int(rank),
        int(pid),
        node,
        int(cpu),
        int(memory),
        () if gpus == "-" else tuple(gpus.split(",")),
        float(began),
        max(said),
        outcome,
    )
