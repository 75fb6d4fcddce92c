"""Translates #SBATCH lines to options of Corral. A line that Corral cannot translate is an error."""

from __future__ import annotations

import re
from collections.abc import Callable

from cli.slurm.arguments import parse
from cli.spec.option_sources import OptionText
from cli.spec.sbatch.constraint import gpu_models
from cli.spec.sbatch.options import BATCH_OPTIONS, SWITCHES
from cli.spec.sbatch.resources import Option, Sizes, Translation
from wire.cluster.hostlist import expand_hostlist

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_FROM_NOW = re.compile(r"now\+(\d{1,9})(?:(second|minute|hour|day|week)s?)?")
_TIMES_OF_DAY = {
    "midnight": "00:00",
    "tomorrow": "00:00",
    "noon": "12:00",
    "fika": "15:00",
    "teatime": "16:00",
}
_SIGNAL = re.compile(r"(?:[RB]{1,2}:)?(\w+)(?:@(\d+))?")
Pairs = list[tuple[str, str]]


def options(words: list[str], where: str) -> list[Option]:
    """Return the options of an #SBATCH line. Return a word that is no option of sbatch as an option without a
    value, so that `translate` reports the error.
    """
    found = parse(BATCH_OPTIONS, words, go_on=True)
    return [
        *(Option(f"--{name}", None if name in SWITCHES else value, where) for name, value in found.options),
        *(Option(_long_name(word.partition("=")[0]), None, where) for word in (*found.wrong, *found.words)),
    ]


def _long_name(word: str) -> str:
    return next((f"--{each.name}" for each in BATCH_OPTIONS if word == f"-{each.letter}"), word)


def translate(found: list[Option]) -> Translation:
    """Translate all #SBATCH options of a script together, because tasks, CPUs, GPUs and memory depend on each
    other.

    1. If an option is written twice, use the last value, as in Slurm.
    2. Give a warning for an option that makes no difference in Corral. An option that Corral does not have is
       an error.
    3. Translate each option that does not depend on other options.
    4. Compute nodes, tasks, CPUs, GPUs and memory together, because Slurm counts per task and Corral per
       node.

    Example: `--nodes=2 --ntasks-per-node=4 --cpus-per-task=4 --mem-per-cpu=2G` becomes 16 CPUs and 32 GiB on
    each of 2 nodes. The script runs once, on the first node.
    """
    translation = Translation()
    if not found:
        return translation
    # A later value of an option replaces an earlier one, but the option stays at its first place.
    last = {option.flag: option for option in found}
    sizes: dict[str, Option] = {}
    for option in last.values():
        if option.flag == "--wait":
            translation.wait = True
        elif option.flag == "--input" and option.value in ("/dev/null", "none"):
            pass  # Ignore the option, because the stdin of a job is always /dev/null.
        elif option.flag in _IGNORED:
            translation.warnings.append(
                f"{option.where}: {option.flag} has no effect: {_IGNORED[option.flag]}"
            )
        elif option.flag in _TOGETHER or option.flag in _MEANING:
            if option.value == "" and option.flag in _MAY_BE_EMPTY:
                pass  # Use the default, as if the option was not written.
            elif not option.value and option.flag not in _BARE:
                translation.problems.append(
                    f"{option.where}: {option.flag}: a value is missing: write {option.flag}=…"
                )
            elif option.flag in _TOGETHER:
                sizes[option.flag] = option
            else:
                _one(option, translation, last)
        else:
            instead = _REFUSED.get(
                option.flag, "Remove the line, or use a #CORRAL line with an option of 'corral submit'."
            )
            translation.problems.append(
                f"{option.where}: Corral has no counterpart for #SBATCH {option.flag}. {instead}"
            )
    Sizes(sizes, translation).add()
    _keep_typed_gpus(translation)
    translation.pairs.append(("batch", OptionText("true", found[0].where)))
    return translation


def _one(option: Option, translation: Translation, others: dict[str, Option]) -> None:
    try:
        pairs = _MEANING[option.flag](option.value or "true")
    except ValueError as error:
        translation.problems.append(f"{option.where}: {option.flag}: {error}")
        return
    except _Harmless as harmless:
        translation.warnings.append(f"{option.where}: {option.flag}: {harmless}")
        pairs = harmless.pairs
    if option.flag == "--nodelist" and "--nodes" not in others:
        pairs = [*pairs, ("nodes", str(len(expand_hostlist(option.value or ""))))]
    translation.pairs += [(name, OptionText(text, f"{option.where}: {option.flag}")) for name, text in pairs]


def _keep_typed_gpus(translation: Translation) -> None:
    """Remove the GPU models of --constraint if --gres or another option requests GPUs of one type. In Slurm a
    node must meet both options, but Corral takes a list of models as alternatives. It is an error if
    --constraint excludes the requested type.
    """
    models = [(text.source, text.text) for name, text in translation.pairs if name == "gpu_model"]
    allowed = {model.lower() for source, model in models if source.endswith(": --constraint")}
    typed = [(source, model) for source, model in models if not source.endswith(": --constraint")]
    if not allowed or not typed:
        return
    for source, model in typed:
        if model.lower() not in allowed:
            translation.problems.append(f"{source}: --constraint excludes GPUs of type {model}")
    translation.pairs = [
        (name, text)
        for name, text in translation.pairs
        if name != "gpu_model" or not text.source.endswith(": --constraint")
    ]


class _Harmless(Exception):
    """Raised by a function of `_MEANING` that ignores an option or a part of its value with a warning.
    `pairs` has the Corral options of the part that can be translated.
    """

    def __init__(self, warning: str, pairs: Pairs) -> None:
        super().__init__(warning)
        self.pairs = pairs


def _as(name: str) -> Callable[[str], Pairs]:
    return lambda text: [(name, text)]


def _time(text: str) -> Pairs:
    """Convert the value of --time. In Slurm, a number without a unit is minutes, and 10:30 is minutes and
    seconds. UNLIMITED and 0 mean no limit.
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "0"):
        return []
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time Corral can read")
    days, first, second, third = match.groups()
    if days is None and third is None:
        return [("time", f"{int(first) * 60 + int(second or 0)}s")]
    return [("time", f"{days or 0}-{first}:{second or '00'}:{third or '00'}")]


def _export(text: str) -> Pairs:
    """Convert the value of --export. With NONE, as in NONE,HOME, the job gets only the variables that are
    named in the same list.
    """
    names = [name for name in text.split(",") if name not in ("", "NIL")]
    if "NONE" in names:
        return [("env", "none"), *(("env", name) for name in names if name not in ("NONE", "ALL"))]
    return [("env", "all" if name == "ALL" else name) for name in names]


def _begin(text: str) -> Pairs:
    """Convert the value of --begin. In now+N, a number without a unit is seconds; units are words such as
    hours. A word such as noon means the next noon.
    """
    match = _FROM_NOW.fullmatch(text)
    if match is None:
        return [] if text in ("now", "today") else [("begin", _TIMES_OF_DAY.get(text.lower(), text))]
    number, unit = match.groups()
    weeks = 7 if unit == "week" else 1
    return [("begin", f"+{int(number) * weeks}{'d' if unit == 'week' else (unit or 'second')[0]}")]


_AFTER = {"after": "after", "afterok": "after_ok", "afternotok": "after_not_ok", "afterany": "after_end"}


def _dependency(text: str) -> Pairs:
    if "," in text and "?" in text:
        raise ValueError(f"{text!r} mixes ',' (all) and '?' (any); write only one of them")
    found: Pairs = []
    for part in re.split("[,?]", text):
        kind, _, labels = part.partition(":")
        if kind == "aftercorr" and labels:
            raise ValueError(f"{part!r} pairs the elements of two arrays; write a workload with after_same")
        if kind not in _AFTER or not labels:
            raise ValueError(f"{part!r} is not a dependency; write {', '.join(_AFTER)}, with job ids")
        if "+" in labels:
            raise ValueError(f"{part!r} requests a delay after a start, which Corral does not support")
        found += [(_AFTER[kind], label) for label in labels.split(":")]
    return [*found, ("after_count", "1")] if "?" in text else found


def _licences(text: str) -> Pairs:
    if "|" in text:
        raise ValueError(
            f"{text!r} means one of several licences; a Corral job holds all licences that it names"
        )
    return [("licence", part) for part in text.split(",")]


def _signal(text: str) -> Pairs:
    """Convert the value of --signal: `B:USR1@120` means USR1, 120 s before the time limit; without a number,
    60 s. Unlike Slurm, Corral sends the signal to all processes of the job with a handler for this signal.
    """
    match = _SIGNAL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a signal; write USR1@120")
    name = match[1]
    if name.isdigit():
        import signal

        # Import the module signal only here, because few scripts write a signal as a number.
        name = next((each.name for each in signal.Signals if each.value == int(name)), name)
    return [("warn_signal", name), ("warn_time", f"{match[2] or 60}s")]


def _kill_on_invalid_dep(text: str) -> Pairs:
    """Raise _Harmless with a warning for any value of --kill-on-invalid-dep, because in Corral the
    configuration decides whether jobs that can never start are cancelled.
    """
    if text == "yes":
        raise _Harmless(
            'Corral cancels such jobs in any case, unless [scheduler.waiting] hopeless is "hold"', []
        )
    raise _Harmless('Corral cancels such jobs, unless [scheduler.waiting] hopeless is "hold"', [])


def _partition(text: str) -> Pairs:
    first, comma, _ = text.partition(",")
    if comma:
        raise _Harmless(f"a job waits in one queue only; Corral uses {first}", [("queue", first)])
    return [("queue", text)]


def _nice(text: str) -> Pairs:
    if text.startswith("-"):
        raise _Harmless("to request a higher priority, write #CORRAL --priority HIGH", [])
    return [("priority", "LOW")]


def _constraint(text: str) -> Pairs:
    """Convert the value of --constraint, an expression of GPU models, to --gpu-model. Any other feature is an
    error, because Corral has node labels instead, whose names differ from site to site.
    """
    return [("gpu_model", model) for model in gpu_models(text)]


def _image(text: str) -> Pairs:
    return [("image", text.replace("#", "/", 1))]


_MEANING: dict[str, Callable[[str], Pairs]] = {
    "--account": _as("project"),
    "--array": _as("array"),
    "--begin": _begin,
    "--chdir": _as("workdir"),
    "--comment": _as("comment"),
    "--constraint": _constraint,
    "--container-image": _image,
    "--container-mounts": lambda text: [("mount", part) for part in text.split(",")],
    "--container-workdir": _as("workdir"),
    "--deadline": lambda text: [("deadline", value) for _, value in _begin(text)],
    "--dependency": _dependency,
    "--error": _as("error"),
    "--exclude": lambda text: [("affinity", f"node not in {','.join(expand_hostlist(text))}")],
    "--export": _export,
    "--hold": _as("hold"),
    "--job-name": _as("name"),
    "--kill-on-invalid-dep": _kill_on_invalid_dep,
    "--licenses": _licences,
    "--mail-type": _as("mail_type"),
    "--mail-user": _as("mail_user"),
    "--nice": _nice,
    "--no-requeue": lambda _: [("on_node_lost", "wait")],
    "--nodelist": lambda text: [("affinity", f"node in {','.join(expand_hostlist(text))}")],
    "--open-mode": _as("open_mode"),
    "--output": _as("output"),
    "--partition": _partition,
    "--reservation": lambda text: [("reservation", text.partition(",")[0])],
    "--requeue": lambda _: [("on_node_lost", "requeue-after-lease")],
    "--signal": _signal,
    "--time": _time,
    "--time-min": lambda text: [("time_min", value) for _, value in _time(text)],
    "--tmp": lambda text: [("scratch", text + "M" if text.isdigit() else text)],
}
_TOGETHER = {
    *("--cpus-per-gpu", "--cpus-per-task", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gres"),
    *("--mem", "--mem-per-cpu", "--mem-per-gpu", "--nodes", "--ntasks", "--ntasks-per-gpu"),
    "--ntasks-per-node",
}
_BARE = frozenset(("--hold", "--nice", "--requeue", "--no-requeue", "--wait"))
"""Options of sbatch that need no value. Only --nice may have a value, after '='."""
_MAY_BE_EMPTY = frozenset(
    (
        *(
            "--array",
            "--chdir",
            "--comment",
            "--constraint",
            "--dependency",
            "--error",
            "--exclude",
            "--export",
        ),
        *("--gpus", "--gpus-per-node", "--gpus-per-task", "--job-name", "--licenses", "--mail-user"),
        *("--nodelist", "--output", "--reservation"),
    )
)
"""Options that mean their default if their value is empty, as in Slurm: `--dependency=$AFTER` with an empty
variable means no dependency.
"""
_BIND = "a job gets its own CPUs, near its GPUs ([jobs] bind)"
_TASKS = "the program that starts the tasks places them on the CPUs of a node"
_IGNORED = {
    "--acctg-freq": "Corral always measures the use of resources",
    "--contiguous": "--same LABEL takes only nodes with the same value of a node label",
    "--cores-per-socket": _TASKS,
    "--core-spec": "a job gets whole CPUs, and the system keeps its own",
    "--cpu-bind": _BIND,
    "--cpu-freq": "Corral does not change the frequency of CPUs",
    "--delay-boot": "Corral does not boot nodes",
    "--distribution": _TASKS,
    "--exclusive": "no other job uses the job's CPUs, memory and GPUs, but others may run on the same node",
    "--extra-node-info": _TASKS,
    "--get-user-env": "write --export=ALL to pass on your variables",
    "--gpu-bind": _BIND,
    "--gpu-freq": "Corral does not change the frequency of GPUs",
    "--gres-flags": "GPUs near each other and near the job's CPUs are preferred anyway",
    "--hint": _TASKS,
    "--ignore-pbs": "Corral reads no #PBS lines",
    "--mem-bind": _BIND,
    "--mincpus": "--cpus-per-task sets the number of CPUs",
    "--network": "Corral does not configure networks",
    "--no-kill": "--on-member-failure sets what happens on the other nodes",
    "--ntasks-per-core": _TASKS,
    "--ntasks-per-socket": _TASKS,
    "--overcommit": _TASKS,
    "--oversubscribe": "jobs share nodes, and each gets the resources that it requests",
    "--parsable": "'corral submit' prints only the id of the job",
    "--power": "Corral does not limit the power of nodes",
    "--prefer": "#CORRAL --prefer names node labels that the job prefers",
    "--profile": "Corral always measures the use of resources",
    "--propagate": "each node sets the ulimits of its jobs",
    "--qos": "Corral has queues and priorities: #CORRAL --queue NAME, --priority CLASS",
    "--quiet": "'corral submit' prints only the id of the job",
    "--share": "jobs share nodes, and each gets the resources that it requests",
    "--sockets-per-node": _TASKS,
    "--spread-job": "#CORRAL --different LABEL spreads a job over nodes",
    "--switches": "--same LABEL takes only nodes with the same value of a node label",
    "--thread-spec": "a job gets whole CPUs, and the system keeps its own",
    "--threads-per-core": _TASKS,
    "--wait-all-nodes": "a job starts when all of its nodes are ready",
    "--use-min-nodes": "a job gets as many of its nodes as are free",
    "--verbose": "'corral explain' shows why a job waits",
    "--wckey": "use --label to mark the job",
}
_REFUSED = {
    "--bb": "Write #CORRAL --scratch SIZE; $CORRAL_SCRATCH is then a directory on the local disk.",
    "--bbf": "Write #CORRAL --scratch SIZE; $CORRAL_SCRATCH is then a directory on the local disk.",
    "--cluster-constraint": "Choose the controller with --url or CORRAL_URL.",
    "--clusters": "Choose the controller with --url or CORRAL_URL.",
    "--container": "Write #CORRAL --image IMAGE.",
    "--export-file": "Write --export=NAME=VALUE, or source the file in the script.",
    "--gid": "The job gets the groups of its user.",
    "--gpus-per-socket": "Write --gpus-per-node and #CORRAL --numa require.",
    "--input": "Redirect it in the script: program < FILE.",
    "--mcs-label": "Write #CORRAL --label mcs=NAME.",
    "--nodefile": "Write #CORRAL --affinity 'node in A,B'.",
    "--priority": "Write #CORRAL --priority HIGH.",
    "--reboot": "Ask an operator to reboot the node.",
    "--tres-per-task": "Write --gpus-per-task and --cpus-per-task.",
    "--uid": "An operator submits for others with 'corral submit --as-user USER'.",
    "hetjob": "Submit a job for each kind of node; with --after, a job starts when another has started.",
    "packjob": "Submit a job for each kind of node; with --after, a job starts when another has started.",
}
