"""The fields of sinfo. Each line is a group of nodes of one partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cli.slurm.formats.output_formats import Field, Format
from cli.slurm.formats.output_formats import Row as Values
from cli.slurm.formats.states import compact_node_state
from cli.slurm.formats.times import moment, span
from cli.slurm.nodes.partitions import Node, Partition
from wire.cluster.hostlist import fold_hostlist


@dataclass(frozen=True)
class Row:
    """One line of sinfo: a group of nodes of one partition."""

    partition: Partition
    nodes: tuple[Node, ...]

    def as_row(self) -> Values:
        """Return this line in the form that the `value` functions of the fields accept."""
        return {"row": self}


_STATE_ORDER = ("draining", "drained", "down", "mixed", "allocated", "idle")


def groups(
    partition: Partition, nodes: Sequence[Node], form: Format, *, exact: bool, single: bool
) -> list[Row]:
    """Return the lines of one partition for these nodes.

    1. If `single` is true, each node has a line.
    2. If `single` is false, nodes share a line if they are equal in all printed fields of `_DISTINCT`, such
       as state, GRES and reason. With `exact` (--exact), they must also be equal in the printed fields of
       `_NUMBERS`, such as CPUs and memory.
    3. If `single` is false, and `nodes` is empty, the partition has one line without nodes.
    """
    if single:
        return [Row(partition, (node,)) for node in nodes]
    printed = [part.field for part in form.parts if part.field is not None]
    names = {field.name for field in printed} & (_DISTINCT | (_NUMBERS if exact else frozenset()))
    keys = [field for field in printed if field.name in names]
    found: dict[tuple[str, ...], list[Node]] = {}
    for node in nodes:
        values = Row(partition, (node,)).as_row()
        found.setdefault(tuple(field.value(values) for field in keys), []).append(node)
    rows = [Row(partition, tuple(members)) for members in found.values()]
    rows.sort(key=lambda row: _place(row.nodes[0].state))
    return rows or [Row(partition, ())]


def _place(state: str) -> int:
    base = state.rstrip("*")
    return _STATE_ORDER.index(base) if base in _STATE_ORDER else 0


def _first(value: Callable[[Node], str], none: str = "n/a") -> Callable[[Values], str]:
    return lambda values: value(values["row"].nodes[0]) if values["row"].nodes else none


def _least(value: Callable[[Node], int]) -> Callable[[Values], str]:
    """Return a function that returns, as text, the smallest number that `value` has among the nodes of a
    line. The text ends with a plus sign if another node has a larger number.
    """

    def text(values: Values) -> str:
        numbers = {value(node) for node in values["row"].nodes} or {0}
        return f"{min(numbers)}{'+' if len(numbers) > 1 else ''}"

    return text


def _of_partition(value: Callable[[Partition], str]) -> Callable[[Values], str]:
    return lambda values: value(values["row"].partition)


def _cpu_states(values: Values) -> str:
    found = values["row"].nodes
    used = sum(node.cpus_used for node in found)
    total = sum(node.cpus for node in found)
    idle = sum(node.cpus - node.cpus_used for node in found if node.usable)
    return f"{used}/{idle}/{total - used - idle}/{total}"


def _node_states(values: Values) -> tuple[int, int, int, int]:
    found = values["row"].nodes
    used = sum(node.busy for node in found)
    idle = sum(node.state == "idle" for node in found)
    return used, idle, len(found) - used - idle, len(found)


def _node_list(values: Values) -> str:
    return fold_hostlist(node.name for node in values["row"].nodes)


def _same(text: str) -> Callable[[Values], str]:
    return lambda _: text


def time_limit(partition: Partition) -> str:
    return "infinite" if partition.max_time_s is None else span(partition.max_time_s)


def _sct(node: Node) -> str:
    return f"{node.sockets}:{cores(node)}:1"


def cores(node: Node) -> int:
    return max(1, node.cpus // node.sockets)


def _reason(node: Node) -> str:
    return node.why if node.why and not node.usable else "none"


def _reason_time(node: Node) -> str:
    return moment(node.since, "Unknown") if node.why and not node.usable else "Unknown"


def _field(letter: str, name: str, heading: str, value: Any) -> Field:
    return Field(letter, name, heading, (), value)


FIELDS = (
    _field("a", "Available", "AVAIL", _same("up")),
    _field("A", "NodeAI", "NODES(A/I)", lambda values: "{}/{}".format(*_node_states(values))),
    _field("b", "features_act", "ACTIVE_FEATURES", _first(lambda node: node.features)),
    _field("B", "MaxCPUsPerNode", "MAX_CPUS_PER_NODE", _same("UNLIMITED")),
    _field("c", "CPUs", "CPUS", _least(lambda node: node.cpus)),
    _field("C", "CPUsState", "CPUS(A/I/O/T)", _cpu_states),
    _field("d", "Disk", "TMP_DISK", _same("0")),
    _field("D", "Nodes", "NODES", lambda values: str(len(values["row"].nodes))),
    _field("e", "FreeMem", "FREE_MEM", _same("N/A")),
    _field("E", "Reason", "REASON", _first(_reason, "none")),
    _field("f", "Features", "AVAIL_FEATURES", _first(lambda node: node.features)),
    _field("F", "NodeAIOT", "NODES(A/I/O/T)", lambda values: "{}/{}/{}/{}".format(*_node_states(values))),
    _field("g", "Groups", "GROUPS", _same("all")),
    _field("G", "Gres", "GRES", _first(lambda node: node.gres, "(null)")),
    _field("", "GresUsed", "GRES_USED", _first(lambda node: node.gres_used, "(null)")),
    _field("h", "OverSubscribe", "OVERSUBSCRIBE", _same("NO")),
    _field("H", "TimeStamp", "TIMESTAMP", _first(_reason_time, "Unknown")),
    _field("I", "PriorityJobFactor", "PRIO_JOB_FACTOR", _of_partition(lambda each: str(each.priority))),
    _field("l", "Time", "TIMELIMIT", _of_partition(time_limit)),
    _field(
        "L",
        "DefaultTime",
        "DEFAULTTIME",
        _of_partition(lambda each: "n/a" if each.default_time_s is None else span(each.default_time_s)),
    ),
    _field("m", "Memory", "MEMORY", _least(lambda node: node.memory_mib)),
    _field("M", "PreemptMode", "PREEMPT_MODE", _same("REQUEUE")),
    _field("n", "NodeHost", "HOSTNAMES", _first(lambda node: node.name)),
    _field(
        "N", "NodeList", "NODELIST", lambda values: fold_hostlist(node.name for node in values["row"].nodes)
    ),
    _field("o", "NodeAddr", "NODE_ADDR", _first(lambda node: node.name)),
    _field("O", "CPUsLoad", "CPU_LOAD", _same("N/A")),
    _field("p", "PriorityTier", "PRIO_TIER", _of_partition(lambda each: str(each.priority))),
    _field(
        "P", "Partition", "PARTITION", _of_partition(lambda each: each.name + ("*" if each.default else ""))
    ),
    _field("R", "PartitionName", "PARTITION", _of_partition(lambda each: each.name)),
    _field("r", "Root", "ROOT", _same("no")),
    _field("s", "Size", "JOB_SIZE", _same("1-infinite")),
    _field("S", "AllocNodes", "ALLOCNODES", _same("all")),
    _field("t", "StateCompact", "STATE", _first(lambda node: compact_node_state(node.state))),
    _field("T", "StateLong", "STATE", _first(lambda node: node.state)),
    _field("", "StateComplete", "STATECOMPLETE", _first(lambda node: node.state)),
    _field("u", "User", "USER", _same("Unknown")),
    _field("U", "UserLong", "USER", _same("Unknown")),
    _field("v", "Version", "VERSION", _same("22.05.8")),
    _field("V", "Cluster", "CLUSTER", _same("N/A")),
    _field("w", "Weight", "WEIGHT", _same("1")),
    _field("X", "Sockets", "SOCKETS", _least(lambda node: node.sockets)),
    _field("Y", "Cores", "CORES", _least(cores)),
    _field("z", "SocketCoreThread", "S:C:T", _first(_sct)),
    _field("Z", "Threads", "THREADS", _same("1")),
    _field(
        "",
        "AllocMem",
        "ALLOCMEM",
        lambda values: str(sum(node.memory_used_mib for node in values["row"].nodes)),
    ),
    _field("", "Comment", "COMMENT", _same("(null)")),
    _field("", "Extra", "EXTRA", _same("(null)")),
    _field("", "Port", "PORT", _same("0")),
)
"""All fields of sinfo. Fields without a counterpart in Corral have the value that Slurm prints by default."""

_NUMBERS = frozenset({"CPUs", "Memory", "Sockets", "Cores", "SocketCoreThread"})
_DISTINCT = frozenset(
    {
        *("StateCompact", "StateLong", "StateComplete", "Reason", "TimeStamp", "Gres", "GresUsed"),
        *("Features", "features_act", "NodeHost", "NodeAddr"),
    }
)
