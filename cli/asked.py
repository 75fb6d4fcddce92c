"""What can be asked of a job: one table for flags, the environment and the lines of a script."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

ENVIRONMENT = "CORRAL_SUBMIT_"


def _option(flag: str, metavar: str, help_text: str) -> Any:
    return typer.Option(flag, metavar=metavar, help=help_text, show_default=False)


@dataclass
class Asked:
    """Every wish as written; `None`, empty or False where nothing was said."""

    name: Annotated[str | None, _option("--name", "NAME", "Name of the job.")] = None
    project: Annotated[str | None, _option("--project", "NAME", "Project it counts towards.")] = None
    queue: Annotated[str | None, _option("--queue", "NAME", "Queue it waits in.")] = None
    profile: Annotated[
        str | None, _option("--profile", "NAME", "Scheduler it waits for, where there are several.")
    ] = None
    priority: Annotated[
        str | None,
        _option("--priority", "CLASS", "CRITICAL, HIGH, NORMAL, LOW, BATCH, SCAVENGER, or 0 to 100."),
    ] = None
    cpus: Annotated[str | None, _option("--cpus", "CORES", "CPU cores per node: 4, 0.5.")] = None
    memory: Annotated[str | None, _option("--memory", "SIZE", "Memory per node: 512M, 16G.")] = None
    scratch: Annotated[
        str | None, _option("--scratch", "SIZE", "Local disk per node, in $CORRAL_SCRATCH: 100G.")
    ] = None
    gpus: Annotated[
        str | None, _option("--gpus", "N", "GPUs over all nodes: 8, or a share of one such as 0.25.")
    ] = None
    gpus_per_node: Annotated[str | None, _option("--gpus-per-node", "N", "GPUs on each node.")] = None
    nodes: Annotated[str | None, _option("--nodes", "N", "Nodes; otherwise as few as the GPUs need.")] = None
    tasks_per_node: Annotated[
        str | None,
        _option("--tasks-per-node", "N", "Start the command N times on each node; otherwise once."),
    ] = None
    min_nodes: Annotated[
        str | None, _option("--min-nodes", "N", "Start on fewer nodes, but not on fewer than these.")
    ] = None
    assembly_time: Annotated[
        str | None, _option("--assembly-time", "TIME", "Wait so long for all of them first.")
    ] = None
    on_member_failure: Annotated[
        str | None,
        _option("--on-member-failure", "POLICY", "When one node's part fails: fail, continue or restart."),
    ] = None
    elastic: Annotated[
        bool, typer.Option("--elastic", help="Lose and gain nodes while it runs, down to --min-nodes.")
    ] = False
    gpu_model: Annotated[
        list[str], _option("--gpu-model", "MODEL", "Only GPUs of this model; may be repeated.")
    ] = field(default_factory=list)
    gpu_memory: Annotated[
        str | None, _option("--gpu-memory", "SIZE", "A share of one GPU, by its memory: 20G.")
    ] = None
    min_gpu_memory: Annotated[
        str | None, _option("--min-gpu-memory", "SIZE", "Only GPUs with at least so much memory: 40G.")
    ] = None
    compute: Annotated[
        str | None, _option("--compute", "X.Y", "Only GPUs of this compute capability or newer: 8.0.")
    ] = None
    mig: Annotated[
        str | None, _option("--mig", "PROFILE", "MIG instances of this profile instead of GPUs: 1g.5gb.")
    ] = None
    numa: Annotated[
        str | None, _option("--numa", "HOW", "GPUs of a node at one NUMA node: require or prefer.")
    ] = None
    nvlink: Annotated[
        str | None, _option("--nvlink", "HOW", "GPUs of a node all linked by NVLink: require or prefer.")
    ] = None
    data: Annotated[
        list[str], _option("--data", "NAME", "Rather nodes with the label data/NAME; may be repeated.")
    ] = field(default_factory=list)
    licence: Annotated[
        list[str],
        _option("--licence", "NAME[:N]", "Hold so many of this licence; may be repeated."),
    ] = field(default_factory=list)
    label: Annotated[
        list[str], _option("--label", "KEY=VALUE", "A label of the job, for --near and --apart of others.")
    ] = field(default_factory=list)
    near: Annotated[
        list[str],
        _option("--near", "TERM", "Where a job with that label runs: 'app=ps on rack', '… on rack:prefer'."),
    ] = field(default_factory=list)
    apart: Annotated[
        list[str], _option("--apart", "TERM", "Where no job with that label runs: 'app=db on node'.")
    ] = field(default_factory=list)
    over: Annotated[
        list[str],
        _option("--over", "TERM", "Together with those over exactly N domains: 'app=db on rack=2'."),
    ] = field(default_factory=list)
    same: Annotated[
        str | None, _option("--same", "LABEL", "All nodes with one value of it: rack, or rack:prefer.")
    ] = None
    different: Annotated[
        str | None, _option("--different", "LABEL", "Each node with a value of its own: rack, rack:prefer.")
    ] = None
    domains: Annotated[
        str | None, _option("--domains", "LABEL=N", "The nodes evenly over N values of it: rack=2.")
    ] = None
    select: Annotated[
        list[str], _option("--select", "KEY=VALUE", "Only nodes with this label; may be repeated.")
    ] = field(default_factory=list)
    affinity: Annotated[
        list[str],
        _option(
            "--affinity",
            "TERM",
            "Only nodes whose labels meet it: 'zone in a,b', 'zone not in a', 'disk exists', 'disk missing', "
            "'cores > 64'; may be repeated.",
        ),
    ] = field(default_factory=list)
    prefer: Annotated[
        list[str],
        _option("--prefer", "TERM", "Rather nodes that meet it: 'zone in a', or 'zone in a weight 80'."),
    ] = field(default_factory=list)
    tolerate: Annotated[
        list[str],
        _option("--tolerate", "TAINT", "Bear a taint: gpu=big:NoSchedule, gpu=big, gpu, or '*' for all."),
    ] = field(default_factory=list)
    env: Annotated[
        list[str], _option("--env", "KEY[=VALUE]", "Set a variable, or pass one on; may be repeated.")
    ] = field(default_factory=list)
    workdir: Annotated[
        str | None, _option("--workdir", "DIR", "Where to run it; otherwise the current directory.")
    ] = None
    image: Annotated[
        str | None,
        _option("--image", "IMAGE", "Run it in this container image: nvcr.io/nvidia/pytorch:24.01."),
    ] = None
    mount: Annotated[
        list[str],
        _option(
            "--mount", "DIR[:DIR][:ro]", "What of the host the image sees besides --workdir; may be repeated."
        ),
    ] = field(default_factory=list)
    time: Annotated[
        str | None, _option("--time", "TIME", "End it after this long: 2h30m, 90s, 01:30:00, 1-12:00:00.")
    ] = None
    grace: Annotated[
        str | None, _option("--grace", "TIME", "Between SIGTERM and SIGKILL; otherwise 10s.")
    ] = None
    checkpoint_command: Annotated[
        str | None, _option("--checkpoint-command", "COMMAND", "Run this to save the state before a stop.")
    ] = None
    checkpoint_signal: Annotated[
        str | None, _option("--checkpoint-signal", "SIGNAL", "Or send this, such as USR1.")
    ] = None
    checkpoint_dir: Annotated[
        str | None,
        _option(
            "--checkpoint-dir", "DIR", "Each job saves in DIR/<job>; otherwise in corral-checkpoints here."
        ),
    ] = None
    checkpoint_time: Annotated[
        str | None, _option("--checkpoint-time", "TIME", "How long saving may take; otherwise 60s.")
    ] = None
    checkpoint_keep: Annotated[
        str | None, _option("--checkpoint-keep", "N", "Delete all but the newest N; otherwise none.")
    ] = None
    warn_signal: Annotated[
        str | None, _option("--warn-signal", "SIGNAL", "Send this before the time limit.")
    ] = None
    warn_time: Annotated[str | None, _option("--warn-time", "TIME", "How long before it; otherwise 60s.")] = (
        None
    )
    not_preemptible: Annotated[
        bool, typer.Option("--not-preemptible", help="Nobody may have it ended to make room.")
    ] = False
    min_runtime: Annotated[
        str | None, _option("--min-runtime", "TIME", "Nor before an attempt has run for so long.")
    ] = None
    array: Annotated[
        str | None,
        _option("--array", "INDICES", "One job per index: 0-9, 1,3,7, 0-20:5; 0-99%8: 8 at once."),
    ] = None
    begin: Annotated[
        str | None,
        _option("--begin", "WHEN", "Do not start before then: 18:30, 2030-05-01, 2030-05-01T08:00, +2h."),
    ] = None
    deadline: Annotated[
        str | None, _option("--deadline", "WHEN", "Give up when it can no longer have ended by then.")
    ] = None
    timeout: Annotated[
        str | None, _option("--timeout", "TIME", "Give up if it could start and finds no place for so long.")
    ] = None
    restart: Annotated[
        str | None,
        _option("--restart", "POLICY[:N]", "Run again by itself, N times: on-failure:3, always, never."),
    ] = None
    restart_delay: Annotated[
        str | None,
        _option(
            "--restart-delay", "TIME[:TIME]", "Wait before a restart; it doubles up to the second: 10s:10m."
        ),
    ] = None
    restart_codes: Annotated[
        str | None, _option("--restart-codes", "CODES", "Only after these exit codes: 75,130-137.")
    ] = None
    on_node_lost: Annotated[
        str | None,
        _option(
            "--on-node-lost", "POLICY", "If its node is not heard of: wait, requeue-after-lease, manual."
        ),
    ] = None
    after: Annotated[
        list[str],
        _option("--after", "JOBS", "Start after these have started: 12,12_3; 12 may be an array."),
    ] = field(default_factory=list)
    after_ok: Annotated[
        list[str], _option("--after-ok", "JOBS", "After these have completed; without hope, cancelled.")
    ] = field(default_factory=list)
    after_not_ok: Annotated[
        list[str], _option("--after-not-ok", "JOBS", "After these have failed or been cancelled.")
    ] = field(default_factory=list)
    after_end: Annotated[
        list[str], _option("--after-end", "JOBS", "After these have ended in whatever way.")
    ] = field(default_factory=list)
    after_checkpoint: Annotated[
        list[str], _option("--after-checkpoint", "JOBS", "After these have saved a checkpoint.")
    ] = field(default_factory=list)
    after_data: Annotated[
        list[str], _option("--after-data", "PATH", "After this path is there; may be repeated.")
    ] = field(default_factory=list)
    after_count: Annotated[
        str | None, _option("--after-count", "N", "So many of all these are enough; otherwise all.")
    ] = None
    after_timeout: Annotated[
        str | None, _option("--after-timeout", "TIME", "Cancel it if it has waited for them so long.")
    ] = None
    relax: Annotated[
        list[str],
        _option("--relax", "OPTION", "Do without this after a while: select, gpu-model, affinity, nodes."),
    ] = field(default_factory=list)
    relax_after: Annotated[
        str | None, _option("--relax-after", "TIME", "When to do without; otherwise after 30m in the queue.")
    ] = None
    cpu_limit: Annotated[
        str | None, _option("--cpu-limit", "CORES", "CPU cores it may use while they are idle; else --cpus.")
    ] = None
    memory_limit: Annotated[
        str | None, _option("--memory-limit", "SIZE", "Memory it may use while there is some; else --memory.")
    ] = None
    best_effort: Annotated[
        bool,
        typer.Option("--best-effort", help="Asks for next to nothing and gets what others leave: no limits."),
    ] = False
    hold: Annotated[bool, typer.Option("--hold", help="Do not start it before it is released.")] = False


@dataclass(frozen=True)
class Given:
    """A value and where it was written, for complaints."""

    text: str
    source: str


Layer = Mapping[str, list[Given]]


@dataclass(frozen=True)
class Wish:
    """One line of the table."""

    name: str
    flag: str
    is_flag: bool
    repeats: bool


def _table() -> dict[str, Wish]:
    hints = typing.get_type_hints(Asked)
    return {
        name: Wish(name, "--" + name.replace("_", "-"), hint is bool, typing.get_origin(hint) is list)
        for name, hint in hints.items()
    }


_TERMS = ("affinity", "prefer", "near", "apart", "over")
_ADD_UP = ("data", "licence", "label", "mount", "select", "env", "tolerate", *_TERMS)
WISHES = _table()
BY_FLAG = {wish.flag: wish for wish in WISHES.values()}


def from_flags(asked: Asked) -> Layer:
    """What stands on the command line."""
    found: dict[str, list[Given]] = {}
    for wish in WISHES.values():
        value = getattr(asked, wish.name)
        if value not in (None, False, []):
            texts = value if wish.repeats else ["true" if wish.is_flag else value]
            found[wish.name] = [Given(text, wish.flag) for text in texts]
    return found


def from_environment(environment: Mapping[str, str]) -> Layer:
    """What stands in CORRAL_SUBMIT_… variables; spaces separate what a flag repeats, semicolons terms."""
    found: dict[str, list[Given]] = {}
    for wish in WISHES.values():
        variable = ENVIRONMENT + wish.name.upper()
        value = environment.get(variable, "")
        if value:
            texts = value.split(";" if wish.name in _TERMS else None) if wish.repeats else [value]
            found[wish.name] = [Given(text, variable) for text in texts]
    return found


def merged(strongest: Layer, *weaker: Layer) -> Layer:
    """The strongest word on everything; what adds up stands together, the strongest last."""
    found = {name: list(given) for name, given in strongest.items()}
    for layer in weaker:
        for name, given in layer.items():
            if name in _ADD_UP:
                found[name] = [*given, *found.get(name, [])]
            else:
                found.setdefault(name, list(given))
    return found


def asking(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command that takes `asked` all the options of the table."""
    hints = typing.get_type_hints(Asked, include_extras=True)
    options = [
        inspect.Parameter(
            part.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[part.name],
            default=[] if WISHES[part.name].repeats else part.default,
        )
        for part in dataclasses.fields(Asked)
    ]
    own = inspect.signature(command, eval_str=True).parameters

    def wrapper(**given: Any) -> int:
        asked = Asked(**{name: given.pop(name) for name in WISHES})
        return command(asked=asked, **given)

    wrapper.__doc__ = command.__doc__
    others = [
        part.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, part in own.items() if name != "asked"
    ]
    wrapper.__signature__ = inspect.Signature([*options, *others])  # type: ignore[attr-defined]
    return wrapper
