"""Lists all details of a node, and the jobs that a timed drain ends or moves."""

from __future__ import annotations

from cli.output.details.facts import Facts, pairs_text, text_lines
from cli.output.table_columns import clock, cores
from wire.agent.reports import NumaFacts
from wire.api.nodes import NodeView, TimedDrainView
from wire.text import memory, printable


def of_node(node: NodeView) -> Facts:
    """Return the details of a node, without its GPUs."""
    return [
        ("node", node.name),
        ("state", node.state_word + (f" ({node.why})" if node.why else "")),
        ("since", clock(node.since) if node.since else ""),
        ("drain", "" if node.drain is None else "\n".join(drain_lines(node.drain))),
        ("cpus", f"{cores(node.cpu_free_milli)} of {cores(node.cpu_milli)} free"),
        ("memory", f"{memory(node.memory_free_mib)} of {memory(node.memory_mib)} free"),
        ("scratch", f"{memory(node.scratch_free_mib)} of {memory(node.scratch_mib)} free"),
        ("numa nodes", "\n".join(map(_numa, node.numa)) or str(node.numa_nodes)),
        ("driver", node.driver + (f", CUDA {node.cuda}" if node.cuda else "")),
        ("switches", " > ".join(map(printable, node.switches))),
        ("labels", pairs_text(node.labels)),
        ("datasets", text_lines(*(f"{each.name}: read until {clock(each.at)}" for each in node.datasets))),
        ("taints", text_lines(*node.taints)),
        ("jobs", ", ".join(node.job_labels or map(str, node.jobs))),
        ("agent", node.version),
        *((f"jobs: {topic}", printable(text)) for topic, text in node.handling.items()),
    ]


def drain_lines(drain: TimedDrainView) -> list[str]:
    """Return lines about a timed drain: the time by which the node is to be empty, and one line for each job
    on the node.
    """
    lines = [f"to be empty by {clock(drain.empty_by)}{f' ({printable(drain.why)})' if drain.why else ''}"]
    for each in drain.jobs:
        job = f"job {each.label} ({printable(each.name, 40)}, {printable(each.user, 40)})"
        then = {
            "ends": "ends before, at its time limit",
            "moved": "is moved to other nodes; it is told to stop",
            "ended": "is ended; it is told to stop",
        }.get(each.how, each.how)
        lines.append(f"{job} {then} at {clock(each.at)}" if each.how != "ends" else f"{job} {then}")
    if any(each.how == "moved" for each in drain.jobs):
        lines.append(
            "moved jobs continue from their checkpoints; those without a checkpoint start from the beginning"
        )
    return lines


def _numa(numa: NumaFacts) -> str:
    parts = [f"{numa.node}: CPUs {numa.cpus}"]
    if numa.memory_mib:
        parts.append(memory(numa.memory_mib))
    if numa.distances:
        parts.append(f"distances {' '.join(map(str, numa.distances))}")
    return ", ".join(parts)
