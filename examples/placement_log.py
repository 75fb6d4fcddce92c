"""A hook in a plain file: writes each placement as a line of JSON to a file.

Name the file in scheduler.toml, and the hook beside it:

    [plugins]
    files = ["placement_log.py"]
    hooks = [{ name = "placement_log", path = "/var/log/corral/placements.jsonl" }]

`on_placed` is called when a placement is on disk, in a separate thread, so it may write files, send messages
and wait. A scorer or any other plugin may have the method, too. Placements that the hook has not received
when the controller stops are lost. If a hook raises an exception, `corral events` names the hook. After three
cycles with an exception, the hook is disabled.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from controller.core.pipeline.hooks import Placed


@dataclass(frozen=True, slots=True)
class PlacementLog:
    """Appends a line for each placement to a file."""

    name: ClassVar[str] = "placement_log"

    path: str = "placements.jsonl"

    def on_placed(self, placed: Placed) -> None:
        """Write one line about the placement."""
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
