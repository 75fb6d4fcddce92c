"""The code blocks of README.md and docs/*.md: commands of a shell, tables of TOML, and other text.

A block of commands that a test cannot run has a comment in front of it: `<!-- not run: it needs systemd -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).parents[1]
GENERATED = ("api-reference.md", "access.md")
DOCUMENTS = (
    HOME / "README.md",
    *sorted(path for path in HOME.glob("docs/*.md") if path.name not in GENERATED),
)
PROGRAMS = frozenset(
    [
        "apt",
        "corral",
        "cp",
        "curl",
        "dpkg",
        "echo",
        "export",
        "git",
        "install",
        "kubectl",
        "make",
        "mv",
        "pip",
        "pipx",
        "printf",
        "python",
        "sacct",
        "sbatch",
        "scancel",
        "scontrol",
        "setpriv",
        "sh",
        "sinfo",
        "squeue",
        "ssh",
        "ssh-copy-id",
        "srun",
        "systemctl",
        "uv",
    ]
)
"""The programs with which a line of a shell block begins."""
_BLOCK = re.compile(r"(?:<!-- not run: (?P<mark>[^\n]*?) -->\n+)?(?P<text>(?:^ {4}.*\n)+)", re.M)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```\n", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """One block. `kind` is shell, toml or text; `mark` is the reason why a shell block is not run."""

    document: str
    line: int
    kind: str
    mark: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block. Text after two spaces explains a command. In a block with `$ ` all
        other lines are output.
        """
        lines = [line for line in self.lines if line]
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        joined = re.sub(r"\\\n *", "", "\n".join(lines)).splitlines()
        return [command for line in joined if (command := re.split(r" {2,}|\s#", line)[0].strip())]


def blocks() -> list[Block]:
    """All blocks of all documents, in their order."""
    return [block for path in DOCUMENTS for block in _blocks_of(path)]


def _blocks_of(path: Path) -> Iterator[Block]:
    text, name = path.read_text(), str(path.relative_to(HOME))
    for found in _FENCED.finditer(text):
        if found[1] == "toml":
            yield Block(name, _line(text, found.start()), "toml", "", tuple(found[2].splitlines()))
    # Keep the numbers of the lines.
    rest = _FENCED.sub(lambda found: "\n" * found[0].count("\n"), text)
    for found in _BLOCK.finditer(rest):
        lines = tuple(line[4:] for line in found["text"].rstrip("\n").split("\n"))
        yield Block(name, _line(rest, found.start("text")), _kind(lines), found["mark"] or "", lines)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _kind(lines: tuple[str, ...]) -> str:
    first = lines[0].removeprefix("$ ").split()[0]
    if first in PROGRAMS or re.match(r"[A-Z_]+=\S+ |\./", lines[0]):
        return "shell"
    return "toml" if re.match(r"\[[a-z]", first) else "text"
