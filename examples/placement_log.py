"""A hook in a plain file: every placement as a line of JSON, for whatever reads it.

Name the file in scheduler.toml, and the hook beside it:

    [plugins]
    files = ["placement_log.py"]
    hooks = [{ name = "placement_log", path = "/var/log/corral/placements.jsonl" }]

`on_placed` is called once a placement is on disk, in a thread of its own: it may write, send and wait. A
scorer or any other plugin may have the method, too. What it was not told when the controller stopped is lost.
One that raises is named in `corral events`, and given up after three cycles.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from controller.core.pipeline.hooks import Placed


@dataclass(frozen=True, slots=True)
class PlacementLog:
    """Appends to a file."""

    name: ClassVar[str] = "placement_log"

    path: str = "placements.jsonl"

    def on_placed(self, placed: Placed) -> None:
        """One line."""
        told = {
            "job": placed.label,
            "user": placed.user,
            "project": placed.project,
            "at": placed.at,
            "waited_s": placed.waited_s,
            "nodes": {each.node: len(each.gpus) for each in placed.nodes},
        }
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")
