"""corral nodes taint and corral nodes label: set taints and labels that override the configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from cli import completion
from cli.exit_codes import CommandError
from cli.flags import argument
from cli.jobs.for_each import for_each
from cli.output import what_if_table
from cli.output.formats import Format, Output
from cli.output.stderr import print_note
from cli.output.table_columns import node_table
from cli.output.what_if_table import DryRun
from cli.registry import examples
from wire.api.forecasts import MarkEdit, WhatIf
from wire.api.nodes import NodeMarks, NodeView
from wire.http.client import Client
from wire.job.placement.affinity import Effect, parse_taint
from wire.text import printable

TAINT_EXAMPLES = examples(
    "corral nodes taint gpu01 reserved=ml:NoSchedule",
    "corral nodes taint gpu01 gpu02 broken:NoExecute",
    "corral nodes taint gpu01 broken:NoExecute-",
    "corral nodes taint gpu01 broken-",
)
Taints = Annotated[
    list[str],
    argument(
        "NODE... CHANGE...",
        "Names of nodes, then the changes: KEY=VALUE:EFFECT or KEY:EFFECT sets a taint, KEY:EFFECT-"
        " removes the taint, and KEY- removes all taints with this key.",
        autocompletion=completion.nodes,
    ),
]
Labels = Annotated[
    list[str],
    argument(
        "NODE... CHANGE...",
        "Names of nodes, then the changes: KEY=VALUE sets a label, and KEY- removes the label.",
        autocompletion=completion.nodes,
    ),
]


def taint(words: Taints, dry_run: DryRun = False, output: Output = Format.TABLE) -> int:
    """Set taints of the form KEY=VALUE:EFFECT on nodes, or remove them: a '-' at the end removes a taint.

    The effect NoSchedule keeps new jobs off the node. PreferNoSchedule keeps a new job off the node only if
    another node can run the job. NoExecute also stops running jobs and queues these jobs again.
    """
    nodes, marks = taint_changes(words)
    return _marked(nodes, marks, output, dry_run=dry_run)


def taint_changes(words: list[str]) -> tuple[list[str], NodeMarks]:
    """Return the names of the nodes, and the changes of taints, from `words`, the arguments of `corral nodes
    taint`. For a taint to remove, the new value is None.
    """
    nodes, marks = _split(words, lambda word: ":" in word or word.endswith("-"))
    changes: dict[str, str | None] = {}
    for word in marks:
        # A key without an effect, such as `broken-`, stands for all effects, as in kubectl.
        if ":" not in word:
            changes.update({f"{word[:-1]}:{effect.value}": None for effect in Effect})
            continue
        try:
            found = parse_taint(word.removesuffix("-"))
        except ValueError as error:
            raise CommandError(str(error), "'corral nodes taint --help' shows how to write it.") from None
        changes[f"{found.key}:{found.effect.value}"] = None if word.endswith("-") else found.value
    return nodes, NodeMarks(taints=changes)


def label(words: Labels, dry_run: DryRun = False, output: Output = Format.TABLE) -> int:
    """Set labels of the form KEY=VALUE on nodes, or remove them: a '-' at the end removes a label.

    The first word is the name of a node. A later word is the name of a node if the word has no '=' and no '-'
    at the end. A label that this command sets overrides the configuration, also after a restart of the
    controller.
    """
    nodes, marks = label_changes(words)
    return _marked(nodes, marks, output, dry_run=dry_run)


def label_changes(words: list[str]) -> tuple[list[str], NodeMarks]:
    """Return the names of the nodes, and the changes of labels, from `words`, the arguments of `corral nodes
    label`. For a label to remove, the new value is None.
    """
    nodes, marks = _split(words, lambda word: "=" in word or word.endswith("-"))
    changes: dict[str, str | None] = {}
    for word in marks:
        key, equals, value = word.partition("=")
        changes[key if equals else key.removesuffix("-")] = value if equals else None
    return nodes, NodeMarks(labels=changes)


def _split(words: list[str], is_mark: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    marks = [word for word in words[1:] if is_mark(word)]
    if not marks:
        raise CommandError(
            "there is nothing to change", "Write taints or labels after the node; --help shows how."
        )
    return [words[0], *(word for word in words[1:] if not is_mark(word))], marks


def _marked(names: list[str], marks: NodeMarks, output: Format, *, dry_run: bool) -> int:
    client = Client()
    if dry_run:
        edits = tuple(MarkEdit(name, marks.labels, marks.taints) for name in dict.fromkeys(names))
        return what_if_table.show(client.what_if(WhatIf(marks=edits)), output)
    done, refusals = for_each(dict.fromkeys(names), lambda name: client.mark(name, marks))
    if output != Format.TABLE:
        node_table().show(output, done)
    else:
        for node in done:
            print_note(f"node {node.name}: {_marks_text(node, marks)}")
    return refusals[0] if refusals else 0


def _marks_text(node: NodeView, marks: NodeMarks) -> str:
    if marks.taints:
        return f"taints {', '.join(map(printable, node.taints))}" if node.taints else "no taints"
    return "labels " + ", ".join(printable(f"{key}={value}") for key, value in sorted(node.labels.items()))
