"""Converts the node, task, CPU, GPU (--gres, --gpus) and memory options of #SBATCH lines. Slurm counts per
task, and Corral counts per node.
"""

from __future__ import annotations

import re
from dataclasses import field

from cli.spec.option_sources import OptionText
from wire.dataclass import dataclass

_GPUS = re.compile(r"(?:([^:=]+):)?(\d+)")
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_VARIABLES = {
    "--cpus-per-gpu": "SLURM_CPUS_PER_GPU",
    "--gpus": "SLURM_GPUS",
    "--gpus-per-node": "SLURM_GPUS_PER_NODE",
    "--gpus-per-task": "SLURM_GPUS_PER_TASK",
}
_MEMORY_VARIABLES = {"--mem-per-cpu": "SLURM_MEM_PER_CPU", "--mem-per-gpu": "SLURM_MEM_PER_GPU"}
_MEMORY_INPUTS = ("_MEM_PER_NODE", "_MEM_PER_CPU", "_MEM_PER_GPU")
"""The ends of the names of environment variables that set an amount of memory, such as SBATCH_MEM_PER_CPU."""
_MIB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}


@dataclass(frozen=True)
class Option:
    """One option of sbatch: its long name with dashes, its value (None if it has none), and the place where
    the user wrote the option, such as train.sh line 3, for error messages.
    """

    flag: str
    value: str | None
    where: str


@dataclass
class Translation:
    """The translation of all #SBATCH lines of a script: the Corral options as (name, text) in `pairs`, the
    errors, and the warnings about options without effect.
    """

    pairs: list[tuple[str, OptionText]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    wait: bool = False
    """True if `corral submit` must wait for the end of the job."""


class Sizes:
    """Converts node, task, CPU, GPU and memory options from Slurm's counts per task to Corral's counts per
    node.
    """

    def __init__(self, options: dict[str, Option], translation: Translation) -> None:
        self._options = options
        self._translation = translation

    def add(self) -> None:
        """Add the Corral options, or the errors, to `translation`."""
        nodes, least = self._nodes()
        tasks = self._number("--ntasks")
        each = self._number("--ntasks-per-node")
        if nodes is None and tasks and each:
            nodes = -(-tasks // each)
        elif nodes and tasks and each and tasks > nodes * each:
            self._wrong(
                self._options["--ntasks"],
                f"{nodes} nodes with --ntasks-per-node={each} hold {nodes * each} of the {tasks} tasks; "
                f"write --nodes={-(-tasks // each)}",
            )
        per_node = each or (-(-tasks // (nodes or 1)) if tasks else 1)
        gpus = self._gpus(nodes or 1, per_node)
        of_gpu = self._number("--ntasks-per-gpu")
        if of_gpu and not tasks and not each:
            each = per_node = max(1, of_gpu * gpus)
        if nodes is None and per_node > 1:
            nodes = 1
        self._add_option("nodes", nodes, "--nodes", "--ntasks", "--ntasks-per-node")
        self._add_option("min_nodes", least, "--nodes")
        if per_node > 1:
            self._add_option("tasks_per_node", per_node, "--ntasks-per-node", "--ntasks", "--ntasks-per-gpu")
        cpus = self._cpus(per_node, gpus)
        self._memory(cpus or per_node, gpus)
        self._variables(tasks, each, nodes or 1)

    def _variables(self, tasks: int | None, each: int | None, nodes: int) -> None:
        """Add environment variables that Slurm sets only for options that the user has written, such as
        SLURM_GPUS for --gpus.
        """
        total = tasks or (each * nodes if each else None)
        given: dict[str, object] = {"SLURM_NTASKS": total, "SLURM_NPROCS": total}
        if each:
            given["SLURM_NTASKS_PER_NODE"] = each
        elif tasks and tasks % nodes:
            # If the tasks cannot be divided evenly, each of the first nodes gets one task more, as in Slurm.
            low, more = divmod(tasks, nodes)
            parts = [part for part in ((low + 1, more), (low, nodes - more)) if part[0]]
            given["SLURM_TASKS_PER_NODE"] = ",".join(
                f"{count}(x{times})" if times > 1 else str(count) for count, times in parts
            )
        for flag, name in _VARIABLES.items():
            given[name] = self._options[flag].value if flag in self._options else None
        for name, value in given.items():
            if value is not None:
                self._translation.pairs.append(("env", OptionText(f"{name}={value}", name)))

    def _nodes(self) -> tuple[int | None, int | None]:
        """Return the number of nodes (for --nodes=MIN-MAX, this is MAX), and the least number of nodes (MIN).
        A number that the script does not set is None.
        """
        option = self._options.get("--nodes")
        if option is None:
            return None, None
        low, dash, high = (option.value or "").partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            self._wrong(option, f"{option.value!r} is not a number of nodes")
            return None, None
        if high and int(low) > int(high):
            self._wrong(option, f"{option.value!r} has a minimum number of nodes above its maximum")
            return None, None
        return int(high or low), int(low) if dash and int(low) < int(high) else None

    def _cpus(self, tasks: int, gpus: int) -> int | None:
        each, of_gpu = self._number("--cpus-per-task"), self._number("--cpus-per-gpu")
        if of_gpu and gpus and not each:
            self._add_option("cpus", of_gpu * gpus, "--cpus-per-gpu")
            return of_gpu * gpus
        if each or tasks > 1:
            self._add_option("cpus", tasks * (each or 1), "--cpus-per-task", "--ntasks-per-node", "--ntasks")
            return tasks * (each or 1)
        return None

    def _gpus(self, nodes: int, tasks: int) -> int:
        """Add the GPU options to the translation, and return the number of GPUs per node. `tasks` is the
        number of tasks per node.
        """
        for flag in ("--gpus-per-node", "--gres", "--gpus-per-task", "--gpus"):
            option = self._options.get(flag)
            if option is None:
                continue
            text = option.value or ""
            if flag == "--gres":
                if text.lower() in ("none", "gpu:0"):
                    return 0
                kind, _, text = text.removeprefix("gres/").partition(":")
                if kind != "gpu" or "," in text:
                    self._wrong(option, f"{option.value!r} requests something other than GPUs")
                    return 0
                text = text or "1"
            match = _GPUS.fullmatch(text)
            if match is None:
                self._wrong(option, f"{text!r} is not a number of GPUs; write 2 or h100:2")
                return 0
            model, number = match[1], int(match[2])
            if model:
                self._add_option("gpu_model", model, flag)
            if flag == "--gpus":
                self._add_option("gpus", number, flag)
                return max(1, number // nodes) if number else 0
            number *= tasks if flag == "--gpus-per-task" else 1
            self._add_option("gpus_per_node", number, flag)
            return number
        return 0

    def _memory(self, cpus: int, gpus: int) -> None:
        flags = ("--mem", "--mem-per-cpu", "--mem-per-gpu")
        given = [self._options[flag] for flag in flags if flag in self._options]
        # An option of the script or of the command line overrides a variable such as SBATCH_MEM_PER_CPU.
        strong = [option for option in given if not option.where.endswith(_MEMORY_INPUTS)] or given
        if len(strong) > 1:
            names = " and ".join(option.flag for option in strong)
            self._wrong(strong[-1], f"{names} exclude each other; remove all but one of them")
            return
        for flag, times in (("--mem", 1), ("--mem-per-cpu", cpus), ("--mem-per-gpu", gpus)):
            option = self._options.get(flag)
            if option is None or option not in strong:
                continue
            match = _MEMORY.fullmatch(option.value or "")
            if match is None:
                self._wrong(option, f"{option.value!r} is not an amount of memory; write 16G")
                continue
            mib = int(match[1]) * _MIB[match[2].upper()] * times
            if not int(match[1]):
                self._translation.warnings.append(
                    f"{option.where}: {flag}=0 (all memory of a node) is not supported; "
                    "the job gets memory in proportion to its GPUs or CPUs"
                )
            elif not times:
                self._wrong(option, "the job requests no GPUs")
            else:
                self._add_option("memory", f"{max(1, round(mib))}M", flag)
                if name := _MEMORY_VARIABLES.get(flag):
                    self._translation.pairs.append(
                        ("env", OptionText(f"{name}={max(1, round(mib / times))}", name))
                    )

    def _number(self, flag: str) -> int | None:
        option = self._options.get(flag)
        if option is None:
            return None
        text = option.value or ""
        if not text.isdigit() or not int(text):
            self._wrong(option, f"{text!r} is not a number")
            return None
        return int(text)

    def _add_option(self, name: str, value: object, *flags: str) -> None:
        if value is not None:
            option = next(self._options[flag] for flag in flags if flag in self._options)
            self._translation.pairs.append((name, OptionText(str(value), f"{option.where}: {option.flag}")))

    def _wrong(self, option: Option, problem: str) -> None:
        self._translation.problems.append(f"{option.where}: {option.flag}: {problem}")
