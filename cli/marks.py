"""corral nodes taint and label: marks on nodes that stand over their configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from cli import complete
from cli.bulk import each
from cli.commands import examples
from cli.exits import Mistake
from cli.messages import note
from cli.output import Format, Output
from cli.tables import node_table
from wire.affinity import taint_of
from wire.api.nodes import NodeMarks, NodeView
from wire.client import Client
from wire.text import plain

TAINT_EXAMPLES = examples(
    "corral nodes taint gpu01 reserved=ml:NoSchedule",
    "corral nodes taint gpu01 gpu02 broken:NoExecute",
    "corral nodes taint gpu01 broken:NoExecute-",
)
Words = Annotated[
    list[str],
    typer.Argument(metavar="NODE... MARK...", autocompletion=complete.nodes, show_default=False),
]


def taint(words: Words, output: Output = Format.TABLE) -> int:
    """Set taints, key=value:Effect, or take them away with a '-' behind.

    The words with a ':' are taints, the others nodes. NoSchedule keeps new jobs away, PreferNoSchedule where
    there is another place, NoExecute also makes those leave that run there: they are queued again.
    """
    nodes, given = _split(words, lambda word: ":" in word)
    changes: dict[str, str | None] = {}
    for word in given:
        try:
            found = taint_of(word.removesuffix("-"))
        except ValueError as error:
            raise Mistake(str(error), "'corral nodes taint --help' shows how to write it.") from None
        changes[f"{found.key}:{found.effect.value}"] = None if word.endswith("-") else found.value
    return _marked(nodes, NodeMarks(taints=changes), output)


def label(words: Words, output: Output = Format.TABLE) -> int:
    """Set labels, key=value, or take them away with a '-' behind.

    The first word is a node, and so are those after it that have no '=' and no '-' at their end. What is set
    here stands over the configuration, and stays when the controller starts again.
    """
    nodes, given = _split(words, lambda word: "=" in word or word.endswith("-"))
    changes: dict[str, str | None] = {}
    for word in given:
        key, equals, value = word.partition("=")
        changes[key if equals else key.removesuffix("-")] = value if equals else None
    return _marked(nodes, NodeMarks(labels=changes), output)


def _split(words: list[str], is_mark: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    marks = [word for word in words[1:] if is_mark(word)]
    if not marks:
        raise Mistake("there is nothing to change", "Write it behind the node; --help shows how.")
    return [words[0], *(word for word in words[1:] if not is_mark(word))], marks


def _marked(names: list[str], marks: NodeMarks, output: Format) -> int:
    client = Client()
    done, refusals = each(dict.fromkeys(names), lambda name: client.mark(name, marks))
    if output is not Format.TABLE:
        node_table().show(output, done)
    else:
        for node in done:
            note(f"node {node.name}: {_told(node, marks)}")
    return refusals[0] if refusals else 0


def _told(node: NodeView, marks: NodeMarks) -> str:
    if marks.taints:
        return f"taints {', '.join(map(plain, node.taints))}" if node.taints else "no taints"
    return "labels " + ", ".join(plain(f"{key}={value}") for key, value in sorted(node.labels.items()))
