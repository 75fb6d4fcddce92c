"""Choices of a node by name: which scorers with which weights, and which GPU of the node gives a share."""

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

WISHES = {"affinity": 100, "taints": 100, "wiring": 100, "company": 100}
"""What jobs and nodes say themselves weighs in each of them, and nothing where nobody says anything."""

STRATEGIES: Mapping[Strategy, tuple[Mapping[str, int], str]] = {
    "thrift": ({"thrift": 100, **WISHES}, "thrift"),
    "best-fit": ({"fit": 100, **WISHES}, "tightest"),
    "least-loaded": ({"load": 100, **WISHES}, "spread"),
    "balanced": ({"balanced": 100, **WISHES}, "tightest"),
    "round-robin": ({"round-robin": 100, **WISHES}, "spread"),
    "pack": ({"pack": 100, **WISHES}, "tightest"),
    "spread": ({"spread": 100, **WISHES}, "spread"),
    "fragmentation": ({"fragmentation": 100, **WISHES}, "tightest"),
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


def filled(section: Any) -> Any:
    """The section with what its strategy means; what is written beside it stands."""
    if not isinstance(section, Mapping):
        return section
    scorers, picker = STRATEGIES.get(section.get("strategy", "thrift"), STRATEGIES["thrift"])
    return {"scorers": dict(scorers), "picker": picker, **section}
