"""The form that shows the effect of more nodes on the plan. The form adds no nodes: operators add nodes with
`corral nodes add`.
"""

from __future__ import annotations

from tui.forms.form import Field, Form, FormContents, Typed, filled, read_fields
from wire import amounts
from wire.api.forecasts import MoreNodes, WhatIf
from wire.text import printable

COUNT, LIKE = "nodes", "like"


def more_nodes(like: str) -> Form[MoreNodes, None]:
    """Return the form that shows the effect of more nodes with the GPUs of the node `like`."""
    fields = (
        Field(COUNT, "count", "--add", "how many more nodes", amounts.count, "1"),
        Field(LIKE, "like", "--like", "a node with the same GPUs", str, like, picks="node"),
    )

    def read(typed: Typed) -> FormContents[MoreNodes]:
        values, wrong = read_fields(filled(fields, typed))
        ready = {"count", "like"} <= values.keys()
        return FormContents(MoreNodes(**values) if ready else None, wrong)

    def command(typed: Typed) -> str:
        texts = {field.name: text for field, text in filled(fields, typed).items()}
        like_node, count = (printable(texts.get(name, "…")) for name in (LIKE, COUNT))
        return f"corral what-if nodes --like {like_node} --add {count}"

    return Form(
        "More nodes",
        "Close",
        fields,
        read,
        command,
        lambda _client, _wanted: None,
        lambda wanted: WhatIf(nodes=(wanted,)),
    )
