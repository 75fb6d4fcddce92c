"""#SBATCH lines in Corral's words; what has no counterpart is an error, never ignored."""

from __future__ import annotations

import re
from collections.abc import Callable

from cli.asked import Given
from cli.exits import Mistake

_SHORT = {
    "-A": "--account",
    "-a": "--array",
    "-b": "--begin",
    "-c": "--cpus-per-task",
    "-D": "--chdir",
    "-d": "--dependency",
    "-e": "--error",
    "-G": "--gpus",
    "-H": "--hold",
    "-J": "--job-name",
    "-L": "--licenses",
    "-N": "--nodes",
    "-n": "--ntasks",
    "-o": "--output",
    "-p": "--partition",
    "-t": "--time",
}
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_FROM_NOW = re.compile(r"now\+(\d{1,9})(?:(second|minute|hour|day|week)s?)?")
_GPUS = re.compile(r"(?:([^:=]+):)?(\d+)")
Pairs = list[tuple[str, str]]


def directive(words: list[str], where: str) -> list[tuple[str, Given]]:
    """The options of one #SBATCH line."""
    found = []
    left = list(words)
    while left:
        flag, value = _split(left.pop(0))
        flag = _SHORT.get(flag, flag)
        meaning = _MEANING.get(flag)
        if meaning is None:
            hint = _INSTEAD.get(flag, "Remove the line, or write the wish as a #CORRAL line.")
            raise Mistake(f"{where}: Corral has no counterpart for #SBATCH {flag}", hint)
        if value is None and flag != "--hold":
            if not left:
                raise Mistake(f"{where}: {flag} needs a value", f"Write #SBATCH {flag}=…")
            value = left.pop(0)
        try:
            pairs = meaning(value or "true")
        except ValueError as error:
            raise Mistake(f"{where}: {flag}: {error}", "Write the wish as a #CORRAL line.") from None
        found += [(name, Given(text, f"{where}: {flag}")) for name, text in pairs]
    return found


def _split(word: str) -> tuple[str, str | None]:
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        return flag, value if equals else None
    # Short ones carry their value in the same word: -c4.
    return word[:2], word[2:] or None


def _as(name: str) -> Callable[[str], Pairs]:
    return lambda text: [(name, text)]


def _memory(text: str) -> Pairs:
    if text == "0":
        raise ValueError("0 means all memory of a node; Corral wants an amount")
    return [("memory", text + "M" if text.isdigit() else text)]


def _time(text: str) -> Pairs:
    """Slurm reads a bare number as minutes, and m:s without days."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time Corral can read")
    days, first, second, third = match.groups()
    if days is None and third is None:
        return [("time", f"{int(first) * 60 + int(second or 0)}s")]
    return [("time", f"{days or 0}-{first}:{second or '00'}:{third or '00'}")]


def _nodes(text: str) -> Pairs:
    low, _, high = text.partition("-")
    if high and high != low:
        raise ValueError(f"{text!r} is a range; Corral wants one number of nodes")
    return [("nodes", low)]


def _tasks(text: str) -> Pairs:
    if text != "1":
        raise ValueError("Corral starts as many on each node; ask for --nodes and --ntasks-per-node")
    return []


def _gpus(name: str) -> Callable[[str], Pairs]:
    def read(text: str) -> Pairs:
        match = _GPUS.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a number of GPUs; write 2 or h100:2")
        model, number = match.groups()
        return [(name, number), *([("gpu_model", model)] if model else [])]

    return read


def _generic(text: str) -> Pairs:
    """--gres=gpu:2 or gpu:h100:2 is per node; other resources are not known."""
    kind, _, rest = text.partition(":")
    if kind != "gpu":
        raise ValueError(f"{text!r} asks for something other than GPUs")
    return _gpus("gpus_per_node")(rest or "1")


def _export(text: str) -> Pairs:
    if text == "NONE":
        return []
    names = text.split(",")
    if "ALL" in names:
        raise ValueError("Corral passes on only the variables that are named: --export=HOME,PATH")
    return [("env", name) for name in names]


def _begin(text: str) -> Pairs:
    """Slurm counts in seconds where no unit stands, and spells units out."""
    match = _FROM_NOW.fullmatch(text)
    if match is None:
        return [("begin", text)]
    number, unit = match.groups()
    weeks = 7 if unit == "week" else 1
    return [("begin", f"+{int(number) * weeks}{'d' if unit == 'week' else (unit or 'second')[0]}")]


_AFTER = {"after": "after", "afterok": "after_ok", "afternotok": "after_not_ok", "afterany": "after_end"}


def _dependency(text: str) -> Pairs:
    if "," in text and "?" in text:
        raise ValueError(f"{text!r} means all and any at once; write ',' or '?'")
    found: Pairs = []
    for part in re.split("[,?]", text):
        kind, _, labels = part.partition(":")
        if kind not in _AFTER or not labels:
            raise ValueError(f"{part!r} has no counterpart; Corral knows {', '.join(_AFTER)}, each with jobs")
        if "+" in labels:
            raise ValueError(f"{part!r} asks for a delay after a start, which Corral does not know")
        found += [(_AFTER[kind], label) for label in labels.split(":")]
    return [*found, ("after_count", "1")] if "?" in text else found


def _licences(text: str) -> Pairs:
    if "|" in text:
        raise ValueError(f"{text!r} means any of several; Corral holds all that are named")
    return [("licence", part) for part in text.split(",")]


_MEANING: dict[str, Callable[[str], Pairs]] = {
    "--account": _as("project"),
    "--array": _as("array"),
    "--begin": _begin,
    "--chdir": _as("workdir"),
    "--cpus-per-task": _as("cpus"),
    "--deadline": _as("deadline"),
    "--dependency": _dependency,
    "--export": _export,
    "--gpus": _gpus("gpus"),
    "--gpus-per-node": _gpus("gpus_per_node"),
    "--gres": _generic,
    "--hold": _as("hold"),
    "--job-name": _as("name"),
    "--licenses": _licences,
    "--mem": _memory,
    "--nodes": _nodes,
    "--ntasks": _tasks,
    "--ntasks-per-node": _as("tasks_per_node"),
    "--partition": _as("queue"),
    "--time": _time,
    "--tmp": lambda text: [("scratch", text + "M" if text.isdigit() else text)],
}
_LOGS = "Remove the line: Corral keeps the output itself, 'corral job logs' shows it."
_INSTEAD = {
    "--constraint": "Write #CORRAL --select KEY=VALUE for a label of the nodes.",
    "--error": _LOGS,
    "--nodelist": "Write #CORRAL --select KEY=VALUE for a label of the nodes.",
    "--output": _LOGS,
    "--priority": "Write #CORRAL --priority HIGH.",
}
