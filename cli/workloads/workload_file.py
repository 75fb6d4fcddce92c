"""Converts a workload file to the request of a workload. All errors of a file are reported together."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cli.exit_codes import CommandError
from cli.registry import nearest
from cli.spec import job_script
from cli.spec.option_sources import Layer, OptionText, merged
from cli.spec.spec_builder import flag_of, spec_from
from cli.spec.submit_options.table import OPTIONS
from cli.spec.submitter_environment import Submitter
from cli.workloads.document import Document, Path, read
from cli.workloads.matrix import combinations, filled, matrix_problems, pairs, text_of
from wire.codec import encode
from wire.job.spec import JobSpec, spec_problems, with_values
from wire.job.start_conditions import Dependency, Until
from wire.workload.spec import (
    MAX_JOBS,
    OnFailure,
    TaskDependency,
    WorkloadSpec,
    WorkloadTask,
    workload_problems,
)

AFTER = {
    "after": Until.OK,
    "after_ok": Until.OK,
    "after_not_ok": Until.NOT_OK,
    "after_end": Until.ENDED,
    "after_started": Until.STARTED,
    "after_checkpoint": Until.CHECKPOINT,
}
"""The keys of a task that name other tasks or jobs, each with the condition that the named tasks or jobs must
meet. `after` means the same as `after_ok`.
"""
OWN = (
    *("command", "script", "args", "job_name", "after_same", "matrix", "include", "exclude", "count"),
    *("retries", "max_parallel"),
)
TOP = ("name", "max_parallel", "on_failure", "defaults", "tasks")
_NO_OPTIONS = {
    "array": "Use matrix or count.",
    "name": "Use job_name.",
    "wait": "Use 'corral workload wait'.",
}
_LABEL = re.compile(r"[1-9]\d{0,17}(_\d{1,9})?")
_LISTS = (list, tuple)


@dataclass
class _Task:
    """A task of the file that is being read: its name, its place in the file, its keys, the options of its
    jobs, and the variables of each job.
    """

    name: str
    place: Path
    keys: Mapping[str, Any]
    options: Layer = field(default_factory=dict)
    jobs: list[dict[str, str]] = field(default_factory=lambda: [{}])

    @property
    def varies(self) -> bool:
        """Return True if the task has the key matrix, include or count: it may become several jobs."""
        return any(key in self.keys for key in ("matrix", "include", "count"))


def workload_of(path: str, environment: Mapping[str, str], submitter: Submitter) -> WorkloadSpec:
    """Return the workload that the file describes. Raise CommandError with all errors of the file."""
    return _Reader(read(path), environment, submitter).workload()


class _Reader:
    """Converts the contents of one file.

    1. Read the keys of the file. Merge the keys of each task with `defaults`. Translate options of `corral
       submit` to texts, so that the functions of `corral submit` check and read these options.
    2. Compute the combinations of each task, and fill their values into the texts. Make the JobSpec of each
       job.
    3. Put the spec of the first job of each task into the request, and for each job the fields that differ
       from this spec.

    Errors are collected with their line numbers. After an error in a task, the other tasks are still read.
    """

    def __init__(self, document: Document, environment: Mapping[str, str], submitter: Submitter) -> None:
        self._document = document
        self._environment = environment
        self._submitter = submitter
        self._errors: dict[tuple[int, str], None] = {}

    def workload(self) -> WorkloadSpec:
        data = self._document.data
        for key in data:
            if key not in TOP:
                self._error((key,), f"unknown key {key!r}.{nearest(key, list(TOP))}")
        defaults = self._options(("defaults",), self._table(("defaults",), data.get("defaults", {})))
        tasks = list(self._tasks(data.get("tasks")))
        for task in tasks:
            own = self._options(task.place, task.keys)
            task.options = merged(own, defaults)
            task.jobs = self._combinations(task)
        by_name = {task.name: task for task in tasks}
        read_tasks = [self._task(task, by_name) for task in tasks]
        name = data.get("name", self._document.name.rpartition(".")[0])
        spec = WorkloadSpec(
            tuple(task for task in read_tasks if task is not None),
            text_of(name),
            self._number((), data, "max_parallel", None),
            self._on_failure(data.get("on_failure", "continue")),
        )
        if not self._errors:
            for where, sentence in workload_problems(spec):
                self._error(self._place_of(where, by_name), f"{where.rpartition('.')[2]} {sentence}")
        if self._errors:
            lines = [f"{self._document.name} line {line}: {text}" for line, text in sorted(self._errors)]
            raise CommandError("\n".join(lines), "docs/workloads.md describes all keys of a workload file.")
        return spec

    def _error(self, place: Path, text: str) -> None:
        self._errors[self._document.line(place), text] = None

    def _place_of(self, where: str, tasks: Mapping[str, _Task]) -> Path:
        """Return the place in the file that sets the field `where` of WorkloadSpec, such as
        tasks.train.after.
        """
        match = re.fullmatch(r"tasks\.(.*?)(?:\.(after|max_parallel))?", where)
        if match is None or match[1] not in tasks:
            return tuple(where.split("."))
        return (*tasks[match[1]].place, *([match[2]] if match[2] else []))

    def _table(self, place: Path, value: Any) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        self._error(place, f"{place[-1]} must be a table")
        return {}

    def _number(
        self, place: Path, keys: Mapping[str, Any], key: str, default: int | None, least: int = 1
    ) -> int | None:
        value = keys.get(key, default)
        if key in keys and (
            not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_JOBS
        ):
            self._error((*place, key), f"{key} must be a whole number from {least} to {MAX_JOBS}")
            return default
        return value if isinstance(value, int) else None

    def _on_failure(self, word: Any) -> OnFailure:
        if word in [each.value for each in OnFailure]:
            return OnFailure(word)
        self._error(("on_failure",), f"on_failure must be continue or stop, not {word!r}")
        return OnFailure.CONTINUE

    def _tasks(self, tasks: Any) -> Iterator[_Task]:
        """Yield the tasks of the file. They are tables by name, or a list of tables with the key `name`."""
        if isinstance(tasks, dict):
            for name, keys in tasks.items():
                yield _Task(name, ("tasks", name), self._table(("tasks", name), keys))
        elif isinstance(tasks, list):
            seen = set[str]()
            for number, each in enumerate(tasks):
                place = ("tasks", number)
                keys = dict(each) if isinstance(each, dict) else {}
                name = keys.pop("name", "")
                if not name or not isinstance(name, str) or name in seen:
                    text = f"there are two tasks {name!r}" if name in seen else "the task needs a name"
                    self._error(place, text)
                    continue
                seen.add(name)
                yield _Task(name, place, keys)
        if not tasks or not isinstance(tasks, dict | list):
            self._error(("tasks",), "there are no tasks: write [tasks.NAME] for each task")

    def _options(self, place: Path, keys: Mapping[str, Any]) -> Layer:
        """Return the options of `corral submit` among the keys of a task or of `defaults`, as texts."""
        found: dict[str, list[OptionText]] = {}
        for key, value in keys.items():
            name, where = key.replace("-", "_"), (*place, key)
            if name in AFTER or name in OWN:
                if place == ("defaults",) and name not in ("retries", "max_parallel", "job_name"):
                    self._error(where, f"{key} cannot be in defaults; write it in each task")
                continue
            option = OPTIONS.get(name)
            if option is None or name in _NO_OPTIONS:
                known = [*OWN, *AFTER, *OPTIONS]
                hint = f" {_NO_OPTIONS[name]}" if name in _NO_OPTIONS else nearest(name, known)
                self._error(where, f"unknown key {key!r}.{hint}")
                continue
            texts = _texts(value)
            if texts is None:
                self._error(where, f"{key} must be a text, a number, true or false, or a list of them")
                continue
            source = f"{self._document.name} line {self._document.line(where)}: {key}"
            texts = texts if option.repeats else [",".join(texts)]
            found[name] = [OptionText(text, source) for text in texts]
            try:
                for text in texts if name != "env" else ():
                    if "{" not in text:
                        option.read(text)
            except (ValueError, CommandError) as error:
                self._error(where, f"{key}: {error}")
                del found[name]
        self._number(place, keys, "max_parallel", None)
        retries = self._number(place, keys, "retries", None, least=0)
        if retries is not None:
            if "restart" in keys:
                self._error((*place, "retries"), "retries and restart cannot be combined")
            restart = f"on-failure:{retries}" if retries else "on-hardware"
            found["restart"] = [OptionText(restart, f"{self._document.name}: retries")]
        return found

    def _default(self, task: _Task, key: str) -> Any:
        """Return the value of a key of the task. If the task does not have the key, return the value in
        `defaults`.
        """
        defaults = self._document.data.get("defaults")
        return task.keys.get(key, defaults.get(key) if isinstance(defaults, dict) else None)

    def _combinations(self, task: _Task) -> list[dict[str, str]]:
        """Return the variables of each job of the task; an empty list if its matrix has an error."""
        matrix = self._table((*task.place, "matrix"), task.keys.get("matrix", {}))
        values = {name: each if isinstance(each, _LISTS) else [each] for name, each in matrix.items()}
        lists = {key: task.keys.get(key, []) for key in ("include", "exclude")}
        for key, each in lists.items():
            if not isinstance(each, list) or not all(isinstance(entry, dict) for entry in each):
                self._error((*task.place, key), f"{key} must be a list of tables, such as [{{lr = 0.1}}]")
                return []
        wrong = matrix_problems(values, lists["include"], lists["exclude"])
        for key, sentence in wrong:
            self._error((*task.place, key), sentence)
        count = self._number(task.place, task.keys, "count", 1) or 1
        if wrong:
            return []
        size = count
        for each in values.values():
            size *= len(each)
        if size > MAX_JOBS:
            self._error(
                (*task.place, "matrix"), f"these are {size:,} jobs; a workload has at most {MAX_JOBS:,}"
            )
            return []
        found = combinations(values, lists["include"], lists["exclude"]) if values else [{}]
        if not found:
            self._error((*task.place, "exclude"), "no combination is left")
            return []
        runs = [
            {**each, **({"run": str(run)} if "count" in task.keys else {})}
            for each in found
            for run in range(count)
        ]
        return [{**each, "index": str(index), "task": task.name} for index, each in enumerate(runs)]

    def _task(self, task: _Task, tasks: Mapping[str, _Task]) -> WorkloadTask | None:
        before, words = len(self._errors), self._command(task)
        after, outside = self._dependencies(task, tasks)
        max_parallel = self._number(
            task.place, task.keys, "max_parallel", self._default(task, "max_parallel")
        )
        specs = list(self._specs(task, *words)) if before == len(self._errors) else []
        if not specs or before < len(self._errors):
            return None
        first = with_values(specs[0], {"after": (*specs[0].after, *outside)})
        if not task.varies:
            return WorkloadTask(task.name, first, (), after)
        return WorkloadTask(
            task.name, first, tuple(_difference(first, each) for each in specs), after, max_parallel
        )

    def _dependencies(
        self, task: _Task, tasks: Mapping[str, _Task]
    ) -> tuple[tuple[TaskDependency, ...], tuple[Dependency, ...]]:
        """Return the dependencies of a task on other tasks, and its dependencies on jobs outside of the
        workload.
        """
        among: dict[TaskDependency, None] = {}
        outside: dict[Dependency, None] = {}
        for key in task.keys:
            until = AFTER.get(key.replace("-", "_"))
            for name in _texts(task.keys[key]) or () if until is not None else ():
                if name in tasks:
                    among[TaskDependency(name, until or Until.OK)] = None
                elif _LABEL.fullmatch(name):
                    outside[Dependency(until or Until.OK, name)] = None
                else:
                    self._error((*task.place, key), f"there is no task {name!r}.{nearest(name, list(tasks))}")
        for name in _texts(task.keys.get("after_same", [])) or ():
            place = (*task.place, "after_same")
            if name not in tasks:
                self._error(place, f"there is no task {name!r}.{nearest(name, list(tasks))}")
                continue
            if not task.jobs or not tasks[name].jobs:
                continue  # Skip this name, because the error in the matrix is recorded already.
            found = pairs(task.jobs, tasks[name].jobs) if task.varies else ()
            if not found:
                self._error(place, f"this task and {name!r} have no variable in common")
            elif alone := [job for job, places in zip(task.jobs, found, strict=True) if not places]:
                values = ", ".join(
                    f"{key}={value}" for key, value in alone[0].items() if key not in ("index", "task")
                )
                self._error(place, f"{name!r} has no job with the values of the job {values}")
            else:
                among[TaskDependency(name, Until.OK, found)] = None
        return tuple(among), tuple(outside)

    def _specs(self, task: _Task, words: list[str], options: Layer) -> Iterator[JobSpec]:
        """Yield the spec of each job of the task. Stop after an invalid option or placeholder. `words` is the
        command, and `options` are the options in the #CORRAL and #SBATCH lines of its script.
        """
        title = self._default(task, "job_name")
        for values in task.jobs:
            try:
                texts = {
                    name: [OptionText(self._fill(task, each.text, values), each.source) for each in texts]
                    for name, texts in merged(task.options, options).items()
                }
                command = tuple(self._fill(task, word, values) for word in words)
                own = [values[name] for name in task.keys.get("matrix", {})]
                name = self._fill(task, text_of(title), values) if title else "-".join([task.name, *own])
                spec = spec_from(command, name[:200], texts, self._environment, self._submitter)
            except CommandError as error:
                line, _, text = str(error).rpartition(f"{self._document.name} line ")[2].partition(": ")
                at = self._document.line(task.place)
                self._errors[int(line) if line.isdigit() else at, text if line.isdigit() else str(error)] = (
                    None
                )
                return
            except ValueError as error:
                self._error((*task.place, "command"), str(error))
                return
            for where, sentence in spec_problems(spec):
                key = flag_of(where, spec).removeprefix("--").replace("-", "_")
                place = next(
                    (each for each in ((*task.place, key), ("defaults", key)) if self._has(each)), task.place
                )
                self._error(place, f"{key or where}: {sentence}")
            yield spec

    def _has(self, place: Path) -> bool:
        return place in self._document.lines

    @staticmethod
    def _fill(task: _Task, text: str, values: Mapping[str, str]) -> str:
        return filled(text, values) if task.varies else text

    def _command(self, task: _Task) -> tuple[list[str], Layer]:
        """Return the words of the task's command, and the options in the #CORRAL and #SBATCH lines of its
        script.
        """
        command, script = task.keys.get("command"), task.keys.get("script")
        if (command is None) == (script is None):
            self._error(task.place, f"task {task.name!r} needs one of command and script")
            return [], {}
        if isinstance(script, str):
            arguments = _texts(task.keys.get("args", [])) or []
            try:
                found = job_script.read(script, arguments)
            except CommandError as error:
                self._error((*task.place, "script"), str(error))
                return [], {}
            return list(found.command), found.options
        if isinstance(command, str) and command.strip():
            # Run a plain command without a shell, so that signals reach the program itself.
            plain = re.fullmatch(r"\s*[\w./+-]+(\s+[\w./=:,+@%{}-]+)*\s*", command)
            return (shlex.split(command) if plain else ["/bin/sh", "-c", command]), {}
        words = _texts(command) if isinstance(command, list) else None
        if not words:
            self._error((*task.place, "command"), "command must be a text or a list of words")
            return [], {}
        return words, {}


def _texts(value: Any) -> list[str] | None:
    """Return the value of a key as texts of an option, such as ["8"] for 8; None if an option cannot have a
    value of this type.
    """
    if isinstance(value, dict):
        pairs_of = [(name, _texts(each)) for name, each in value.items()]
        if any(each is None or len(each) != 1 for _, each in pairs_of):
            return None
        return [f"{name}={each[0]}" for name, each in pairs_of if each]
    if isinstance(value, _LISTS):
        parts = [_texts(each) for each in value]
        return (
            None
            if any(part is None or len(part) != 1 for part in parts)
            else [part[0] for part in parts if part]
        )
    return None if value is None else [text_of(value)]


def _difference(first: JobSpec, spec: JobSpec) -> dict[str, Any]:
    """Return a dict from each field of `spec` that differs from `first`, apart from `after`, to its value as
    JSON data.
    """
    changed = [
        name for name, value in vars(spec).items() if name != "after" and value != getattr(first, name)
    ]
    if not changed:
        return {}
    values = encode(spec)
    return {name: values[name] for name in changed}
