"""Converts a command of a story to inputs of the engine. The parser of the command line parses the command.

A corral command has the same effect on the simulated cluster as on a real cluster. Four more commands stand
for events for which corral has no command: `crash`, `disconnect`, `connect` and `restart`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.main import get_command

from cli.commands.nodes.host_list import requests
from cli.commands.nodes.labels_and_taints import label_changes, taint_changes
from cli.commands.nodes.nodes import NamesOrNone, Select, node_and_gpu
from cli.commands.policy.quota import quota_of, scope_of
from cli.commands.policy.reserve import ReservationFlags
from cli.commands.policy.shares import ShareFlags
from cli.commands.sim.policy_options import MEMORY_MIB
from cli.exit_codes import CommandError
from cli.flag_values import use_fast_readers
from cli.registry import application, examples
from cli.spec.edit_fields import changes_of
from cli.spec.submit_options.flag_groups import SubmitOptions
from cli.spec.submit_options.table import OPTIONS
from wire.api.jobs import JobsOrder
from wire.cluster.hosts import HostSpec

# Import these modules only for type checks, because numpy and pydantic are slow to import.
if TYPE_CHECKING:
    from controller.sim.story.commands import NodeChoice, StoryCommand
    from wire.agent.reports import NodeFacts

CPUS = 64
"""The CPUs of an added node if --cpus is missing, as in `corral sim run`."""
Params = Mapping[str, Any]

Named = tuple[str, str]
"""The kind (NODE, SERVICE or RESERVATION) and the name of an object."""
NODE, SERVICE, RESERVATION = "node", "service", "reservation"

events = application("Events that happen to a simulated cluster.")


@dataclass(frozen=True)
class ReadCommand:
    """A parsed command of a story, with the names of nodes, services, reservations and jobs in it."""

    command: StoryCommand
    named: tuple[Named, ...] = ()
    """Nodes, services and reservations that must exist before the command."""
    added: frozenset[Named] = frozenset()
    """Nodes, services and reservations that the command adds."""
    jobs: tuple[str, ...] = ()
    """Job selections in the command, such as 12, 12_3 or user:ada."""


@events.command(epilog=examples("day 4 11:30  crash gpu03", "day 4 11:30  crash --select rack=r2"))
def crash(names: NamesOrNone = [], select: Select = []) -> int:  # noqa: B006 - never changed
    """Let the hosts of these nodes lose power: all processes on the hosts end, and the agents no longer
    report.
    """
    # This function is never called: the parser uses only its signature.
    raise AssertionError((names, select))


@events.command(epilog=examples("day 4 11:30  disconnect gpu03"))
def disconnect(names: NamesOrNone = [], select: Select = []) -> int:  # noqa: B006 - never changed
    """Let the agents of these nodes lose the connection to the controller. Processes on the nodes continue to
    run.
    """
    raise AssertionError((names, select))


@events.command(epilog=examples("day 4 14:00  connect gpu03"))
def connect(names: NamesOrNone = [], select: Select = []) -> int:  # noqa: B006 - never changed
    """Let the agents of these nodes connect to the controller again, after `crash` or `disconnect`."""
    raise AssertionError((names, select))


@events.command(epilog=examples("day 5 09:00  restart"))
def restart() -> int:
    """Restart the controller, as for an upgrade. The restart takes no simulated time. Plans and backfill
    reservations are lost.
    """
    raise AssertionError


def command_of(words: list[str], *, configured: bool) -> ReadCommand:
    """Parse the words of a command, such as `nodes drain gpu01`.

    `configured` is True if the simulated nodes come from a scheduler.toml. Raise CommandError, or a
    TyperException of the parser, if the words are wrong.
    """
    path, params = _parsed(words)
    read = _COMMANDS.get(path)
    if read is None:
        names = ", ".join(" ".join(each) for each in _COMMANDS)
        submits = " The jobs of a simulation are in the log." if path[0] in ("submit", "run") else ""
        raise CommandError(
            f"'{' '.join(path)}' is not a command of stories.{submits}", f"There are: {names}."
        )
    if params.get("dry_run"):
        raise CommandError("--dry-run changes nothing", "Leave it out.")
    if params.get("mine"):
        raise CommandError("an operator of a story has no jobs", "Write user:NAME instead of --mine.")
    if path == ("config", "apply"):
        return _apply_config(params, configured=configured)
    return read(params)


def _parsed(words: list[str]) -> tuple[tuple[str, ...], Params]:
    """Return the names of the command and its subcommand, and the parameter values of the subcommand."""
    from cli.main import app

    own = get_command(events)
    command = use_fast_readers(own if words[0] in own.commands else get_command(app))  # type: ignore[attr-defined]
    path: list[str] = []
    context, rest = None, words
    name = "corral"
    try:
        while True:
            context = command.make_context(name, list(rest), parent=context)
            rest = [*getattr(context, "_protected_args", ()), *context.args]
            if not hasattr(command, "resolve_command") or not rest:
                return tuple(path), context.params
            found, command, rest = command.resolve_command(context, rest)
            name = found or ""
            path.append(name)
    except typer.Exit:
        raise CommandError(
            "--help is not allowed in a story", f"Run 'corral {' '.join(words)}' instead."
        ) from None


def _choice(params: Params) -> NodeChoice:
    from controller.sim.story.commands import NodeChoice

    if not params["names"] and not params.get("select"):
        raise CommandError("no node is named", "Name nodes, or choose them by --select KEY=VALUE.")
    return NodeChoice(tuple(params["names"]), dict(params.get("select", ())))


def _drain(params: Params) -> ReadCommand:
    from controller.core.model.inputs import node_inputs

    return _on_nodes(node_inputs.Drain, _choice(params), why=params["why"], empty_by=params["by"])


def _resume(params: Params) -> ReadCommand:
    from controller.core.model.inputs import node_inputs

    of_gpu = next((name for name in params["names"] if node_and_gpu(name)[1] is not None), None)
    if of_gpu is not None:
        raise CommandError(f"{of_gpu} is a GPU, and a story has only whole nodes", "Name the node.")
    return _on_nodes(node_inputs.Resume, _choice(params))


def _remove(params: Params) -> ReadCommand:
    from controller.core.model.inputs import node_inputs

    return _on_nodes(node_inputs.RemoveNode, _choice(params))


def _lost(params: Params) -> ReadCommand:
    from controller.core.model.inputs import node_inputs

    return _on_nodes(node_inputs.DeclareLost, _choice(params))


def _label(params: Params) -> ReadCommand:
    return _mark(*label_changes(params["words"]))


def _taint(params: Params) -> ReadCommand:
    return _mark(*taint_changes(params["words"]))


def _mark(names: Iterable[str], marks: Any) -> ReadCommand:
    from controller.core.model.inputs import node_inputs
    from controller.sim.story.commands import NodeChoice

    choice = NodeChoice(tuple(dict.fromkeys(names)))
    return _on_nodes(node_inputs.MarkNode, choice, labels=marks.labels, taints=marks.taints)


def _on_nodes(kind: Callable[..., Any], choice: NodeChoice, **values: Any) -> ReadCommand:
    from controller.sim.story.commands import OnNodes

    return ReadCommand(OnNodes(choice, kind, values), _each_of(NODE, choice.names))


def _each_of(kind: str, names: Iterable[str]) -> tuple[Named, ...]:
    return tuple((kind, name) for name in names)


def _add(params: Params) -> ReadCommand:
    from controller.sim.story.commands import AddNodes

    wanted = requests(params["hosts"], params["hosts_file"], _host(params))
    nodes = {each.name: _facts(each.name, each.host) for each in wanted if each.host is not None}
    return ReadCommand(AddNodes(nodes), added=frozenset(_each_of(NODE, nodes)))


def _host(params: Params) -> HostSpec:
    labels = dict(text.partition("=")[::2] for text in params["label"])
    return HostSpec("", gpus=params["gpus"], cpus=params["cpus"], memory=params["memory"], labels=labels)


def _facts(name: str, host: HostSpec) -> NodeFacts:
    from controller.sim.cluster import memory_mib, node_facts
    from wire.gpudescription import parse_simulated

    if host.gpus in ("auto", "nvml"):
        raise CommandError(
            f"{name}: a simulated host has no GPUs that an agent could detect",
            "Add --gpus simulated:8xH100, or --gpus none.",
        )
    groups = () if host.gpus == "none" else parse_simulated(host.gpus)
    memory = memory_mib(host.memory) if host.memory else MEMORY_MIB
    return node_facts(name, host.cpus or CPUS, memory, groups, host.labels)


def _crash(params: Params) -> ReadCommand:
    return _lose(params, crash=True)


def _disconnect(params: Params) -> ReadCommand:
    return _lose(params, crash=False)


def _lose(params: Params, *, crash: bool) -> ReadCommand:
    from controller.sim.story.commands import LoseNodes

    choice = _choice(params)
    return ReadCommand(LoseNodes(choice, crash), _each_of(NODE, choice.names))


def _connect(params: Params) -> ReadCommand:
    from controller.sim.story.commands import ReturnNodes

    choice = _choice(params)
    return ReadCommand(ReturnNodes(choice), _each_of(NODE, choice.names))


def _restart(_params: Params) -> ReadCommand:
    from controller.sim.story.commands import RestartController

    return ReadCommand(RestartController())


def _reserve(params: Params) -> ReadCommand:
    from controller.sim.story.commands import MakeReservation

    spec = _group(ReservationFlags, params).spec()
    added = frozenset({(RESERVATION, spec.name)})
    return ReadCommand(MakeReservation(spec, params["anyway"]), _each_of(NODE, spec.nodes), added)


def _cancel_reservation(params: Params) -> ReadCommand:
    from controller.core.model.inputs import policy_inputs

    return _give(policy_inputs.CancelReservation, params["name"], named=RESERVATION)


def _share(params: Params) -> ReadCommand:
    from controller.core.model.inputs import policy_inputs
    from controller.sim.story.commands import ADMIN, Give

    change = _group(ShareFlags, params).change()
    given = policy_inputs.SetShare(change.share, change.weight, ADMIN, change.soft, change.hard)
    return ReadCommand(Give(given))


def _set_quota(params: Params) -> ReadCommand:
    from controller.core.model.inputs import policy_inputs

    return _give(policy_inputs.SetQuota, scope_of(params["scope"]), params["name"], quota_of(params["words"]))


def _unset_quota(params: Params) -> ReadCommand:
    from controller.core.model.inputs import policy_inputs

    return _give(policy_inputs.UnsetQuota, scope_of(params["scope"]), params["name"])


def _restart_service(params: Params) -> ReadCommand:
    from controller.core.model.inputs import policy_inputs

    return _give(policy_inputs.RestartService, params["name"], named=SERVICE)


def _scale_service(params: Params) -> ReadCommand:
    from controller.core.model.inputs import policy_inputs

    return _give(policy_inputs.ScaleService, params["name"], params["replicas"], named=SERVICE)


def _give(kind: Callable[..., Any], *values: Any, named: str = "") -> ReadCommand:
    """Return a command with the engine input `kind(*values, ADMIN)`. `named` is NODE, SERVICE or RESERVATION
    if the first of `values` is the name of such an object, which must exist.
    """
    from controller.sim.story.commands import ADMIN, Give

    return ReadCommand(Give(kind(*values, ADMIN)), _each_of(named, values[:1]) if named else ())


def _group(kind: type[Any], params: Params) -> Any:
    """Return an object of the flag group `kind`, such as ShareFlags, with the values in `params`."""
    return kind(**{each.name: params[each.name] for each in fields(kind)})


def _order(action: str) -> Callable[[Params], ReadCommand]:
    def read(params: Params) -> ReadCommand:
        from controller.sim.story.commands import OnJobs

        changes = {}
        if not params["jobs"]:
            raise CommandError(
                "no job is named", "Write a number of the log, user:ada, name:'sweep-*' or all."
            )
        if action == "set":
            options = SubmitOptions({name: params[name] for name in OPTIONS})
            changes = changes_of(options, params["clear"])
        jobs = tuple(params["jobs"])
        order = JobsOrder(action, jobs, changes=changes, stay_held=action == "preempt" and params["hold"])
        return ReadCommand(OnJobs(order), jobs=jobs)

    return read


def _apply_config(params: Params, *, configured: bool = True) -> ReadCommand:
    from controller.registry import check_config
    from controller.sim.cluster import cluster_of_config
    from controller.sim.story.commands import ApplyConfig

    file: Path | None = params["file"]
    if file is None:
        raise CommandError("no file is named", "Write: config apply new.toml")
    if not file.is_file():
        hint = f"Write a path from the present directory, {Path.cwd()}, or an absolute path."
        raise CommandError(f"{file}: there is no such file", hint)
    config = check_config(file)
    nodes = cluster_of_config(config).nodes if configured else None
    added = (*_each_of(NODE, nodes or ()), *_each_of(SERVICE, config.services))
    return ReadCommand(ApplyConfig(config, nodes), added=frozenset(added))


_COMMANDS: Mapping[tuple[str, ...], Callable[[Params], ReadCommand]] = {
    ("nodes", "drain"): _drain,
    ("nodes", "resume"): _resume,
    ("nodes", "add"): _add,
    ("nodes", "remove"): _remove,
    ("nodes", "lost"): _lost,
    ("nodes", "label"): _label,
    ("nodes", "taint"): _taint,
    ("reserve", "create"): _reserve,
    ("reserve", "cancel"): _cancel_reservation,
    ("shares", "set"): _share,
    ("quota", "set"): _set_quota,
    ("quota", "unset"): _unset_quota,
    ("service", "restart"): _restart_service,
    ("service", "scale"): _scale_service,
    ("cancel",): _order("cancel"),
    **{("job", each): _order(each) for each in ("cancel", "hold", "release", "requeue", "preempt", "set")},
    ("config", "apply"): _apply_config,
    ("crash",): _crash,
    ("disconnect",): _disconnect,
    ("connect",): _connect,
    ("restart",): _restart,
}
"""The commands that a story may contain, by their words, each with the function that makes a ReadCommand from
the parameters of the command.
"""
