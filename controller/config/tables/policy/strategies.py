"""Named placement strategies: each is a short name for a set of weighted scorers and a picker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Strategy = Literal[
    "thrift",
    "best-fit",
    "least-loaded",
    "balanced",
    "round-robin",
    "pack",
    "spread",
    "fragmentation",
    "weighted",
]

PREFERENCE_WEIGHTS = {"affinity": 100, "taints": 100, "wiring": 100, "company": 100, "data": 50}
"""The scorers for preferences of jobs and nodes, with their weights. Every strategy has these scorers; the
strategy `weighted` gives them other weights. Without preferences, they give all nodes the same score.
"""

STRATEGIES: Mapping[Strategy, tuple[Mapping[str, int], str]] = {
    "thrift": ({"thrift": 100, **PREFERENCE_WEIGHTS}, "thrift"),
    "best-fit": ({"fit": 100, **PREFERENCE_WEIGHTS}, "tightest"),
    "least-loaded": ({"load": 100, **PREFERENCE_WEIGHTS}, "spread"),
    "balanced": ({"balanced": 100, **PREFERENCE_WEIGHTS}, "tightest"),
    "round-robin": ({"round-robin": 100, **PREFERENCE_WEIGHTS}, "spread"),
    "pack": ({"pack": 100, **PREFERENCE_WEIGHTS}, "tightest"),
    "spread": ({"spread": 100, **PREFERENCE_WEIGHTS}, "spread"),
    "fragmentation": ({"fragmentation": 100, **PREFERENCE_WEIGHTS}, "tightest"),
    "weighted": (
        {
            "fit": 30,
            "affinity": 20,
            "load": 20,
            "data": 20,
            "cost": 10,
            "taints": 20,
            "wiring": 20,
            "company": 20,
        },
        "tightest",
    ),
}


def with_strategy(section: Any) -> Any:
    """Return the [scheduler] table with the scorers and the picker of its placement strategy added. Scorers
    or a picker that the table already contains are not replaced.
    """
    if not isinstance(section, Mapping):
        return section
    scorers, picker = STRATEGIES.get(section.get("strategy", "thrift"), STRATEGIES["thrift"])
    return {"scorers": dict(scorers), "picker": picker, **section}
