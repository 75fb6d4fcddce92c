"""Prints partitions and nodes as sinfo does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence

from cli.slurm.arguments import COMMON, Arguments, Option, parse, prints_only_help, switch
from cli.slurm.formats.output_formats import Format, named_format, percent_format, print_lines
from cli.slurm.formats.resources import natural
from cli.slurm.nodes.partitions import Node, Partition, nodes, partitions
from cli.slurm.nodes.sinfo_fields import FIELDS, Row, groups
from cli.slurm.openapi.documents import OPENAPI, print_document, wanted
from cli.slurm.programs import SlurmError
from cli.slurm.selections import hosts, pause_s, require_own_cluster
from cli.slurm.show.controller import cluster_name, controller

OPTIONS = (
    switch("all", "a"),
    switch("dead", "d", "Only nodes that do not answer."),
    switch("exact", "e", "Group only nodes that are equal in all printed values."),
    switch("federation"),
    switch("noheader", "h", "Print no header."),
    switch("hide"),
    switch("json", "", "Print JSON."),
    switch("yaml", "", "Print YAML."),
    Option("iterate", "i", help="Print the list again every VALUE seconds."),
    switch("local"),
    switch("long", "l", "Print more fields."),
    Option("clusters", "M"),
    Option("cluster"),
    Option("nodes", "n", help="Only these nodes, such as n[1-4]."),
    switch("noconvert"),
    switch("Node", "N", "Print a line for each node."),
    Option("format", "o", help="The fields to print, by letter, such as '%P %D %t'."),
    Option("Format", "O", help="The fields to print, by name, such as Partition:10,Gres. Default width: 20."),
    Option("partition", "p", help="Only these partitions (queues)."),
    switch("responding", "r", "Only nodes that answer."),
    switch("list-reasons", "R", "Print why nodes are down or drained."),
    switch("summarize", "s", "Print one line for each partition, with the numbers of its nodes by state."),
    Option(
        "sort",
        "S",
        help="Sort the lines by these fields (letters of --format), such as '-t,N'. '-' reverses.",
    ),
    Option("states", "t", help="Only nodes in these states, such as idle,mix."),
    switch("reservation", "T", "Print reservations."),
    switch("verbose", "v"),
    switch("help", "", "Show this help and exit."),
    *COMMON[1:],
)
USAGE = "sinfo [OPTIONS]"
DEFAULT = "%9P %.5a %.10l %.6D %.6t %N"
LONG = "%9P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
BY_NODE = "%{}N %.5D %.9P %6t"
BY_NODE_LONG = "%{}N %.5D %.9P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
SUMMARY = "%9P %.5a %.10l %.16F %N"
REASONS = "%20E %9u %19H %N"

_ALIASES = {
    "alloc": ("allocated",),
    "allocated": ("allocated",),
    "mix": ("mixed",),
    "mixed": ("mixed",),
    "idle": ("idle",),
    "down": ("down",),
    "drain": ("drained", "draining"),
    "drained": ("drained",),
    "draining": ("draining",),
    "drng": ("draining",),
    "no_respond": ("down",),
    **dict.fromkeys(
        ("unknown", "future", "reserved", "resv", "perfctrs", "cloud", "comp", "completing", "fail", "maint"),
        (),
    ),
    **dict.fromkeys(("powering_down", "powered_down", "power_down", "powering_up", "reboot", "planned"), ()),
}
"""The words of --states, each with the node states that the word selects. A word selects no node if its state
does not exist in Corral.
"""


def main(words: list[str]) -> int:
    """Print the partitions and nodes once, or with --iterate again and again. Return exit code 0."""
    arguments = parse(OPTIONS, words)
    if prints_only_help(arguments, USAGE, OPTIONS):
        return 0
    every = pause_s(arguments, "Error: invalid entry for ")
    _once(arguments)
    while every:
        sys.stdout.flush()
        time.sleep(every)
        print()
        _once(arguments)
    return 0


def _once(arguments: Arguments) -> None:
    states = _states(arguments.last("states"))
    with controller() as transport:
        require_own_cluster(arguments, lambda: cluster_name(transport))
        if arguments.has("reservation"):
            from cli.slurm.nodes.reservations import print_reservation_table

            return print_reservation_table(transport, header=not arguments.has("noheader"))
        known = nodes(transport)
        found = partitions(transport, known)
    if wanted(arguments):
        from cli.slurm.openapi.nodes import node_object

        chosen = _filter(arguments, states, known)
        objects = [node_object(node, found) for node in known if node.name in chosen]
        print_document("nodes", objects, OPENAPI, arguments)
        return None
    form = _format(arguments, known)
    if arguments.has("partition"):
        named = arguments.last("partition").split(",")
        found = [each for each in found if each.name in named]
    lines = _lines(arguments, form, found, _filter(arguments, states, known))
    if not arguments.has("noheader"):
        if arguments.has("long"):
            print(time.strftime("%a %b %d %H:%M:%S %Y"))
        print(form.header())
    print_lines(lines)
    return None


def _filter(arguments: Arguments, states: frozenset[str] | None, known: Iterable[Node]) -> frozenset[str]:
    """Return the names of the nodes that options such as --nodes, --states and --dead select."""
    names = set(hosts(arguments.last("nodes"))) if arguments.last("nodes") else None
    reasons = arguments.has("list-reasons")
    return frozenset(
        node.name
        for node in known
        if (names is None or node.name in names)
        and (states is None or node.state.rstrip("*") in states)
        and (not reasons or (node.why and not node.usable))
        and (not arguments.has("dead") or node.state.endswith("*"))
        and (not arguments.has("responding") or not node.state.endswith("*"))
    )


def _lines(
    arguments: Arguments, form: Format, found: Sequence[Partition], chosen: frozenset[str]
) -> list[str]:
    """Return the printed lines about the nodes in `chosen`, sorted as --sort demands: one line for each group
    of nodes (`groups`), and without the name of the partition each text only once.
    """
    single = arguments.has("Node")
    rows: list[Row] = []
    for partition in found:
        members = [node for node in partition.nodes if node.name in chosen]
        rows += groups(partition, members, form, exact=arguments.has("exact"), single=single)
    if arguments.has("list-reasons"):
        rows = [row for row in rows if row.nodes]
    if single:
        rows.sort(key=lambda row: natural(row.nodes[0].name) if row.nodes else ())
    for word in reversed(arguments.last("sort").split(",")):
        letter = word.strip().lstrip("+-#")[:1]
        value = next((field.value for field in FIELDS if letter and field.letter == letter), None)
        if value is not None:
            key = value
            rows.sort(key=lambda row: natural(key(row.as_row())), reverse=word.strip().startswith("-"))
    lines = [form.line(row.as_row()) for row in rows]
    # If the name of the partition is not printed, partitions with the same nodes give equal lines. Print
    # equal lines once, as Slurm does.
    shown = any(part.field and part.field.letter in ("P", "R") for part in form.parts)
    return lines if shown else list(dict.fromkeys(lines))


def _format(arguments: Arguments, known: Sequence[Node]) -> Format:
    if arguments.has("Format"):
        form = named_format(arguments.last("Format"), FIELDS)
    else:
        own = any(arguments.has(name) for name in ("format", "long", "Node", "summarize", "list-reasons"))
        chosen = arguments.last("format") or ("" if own else os.environ.get("SINFO_FORMAT", ""))
        form = percent_format(chosen or _default(arguments, known), FIELDS)
    for name in form.unknown:
        print(f"Invalid node format specification: {name}", file=sys.stderr)
    return form


def _default(arguments: Arguments, known: Sequence[Node]) -> str:
    if arguments.has("list-reasons"):
        return REASONS
    if arguments.has("summarize"):
        return SUMMARY
    if arguments.has("Node"):
        width = max([10, *(len(node.name) for node in known)])
        return (BY_NODE_LONG if arguments.has("long") else BY_NODE).format(width)
    return LONG if arguments.has("long") else DEFAULT


def _states(text: str) -> frozenset[str] | None:
    if not text or text.lower() == "all":
        return None
    found: set[str] = set()
    for word in text.lower().split(","):
        if word not in _ALIASES:
            raise SlurmError(f'Bad state string: "{word}"', f"valid states: {','.join(_ALIASES)}")
        found |= set(_ALIASES[word])
    return frozenset(found)
