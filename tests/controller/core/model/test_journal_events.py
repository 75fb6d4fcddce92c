"""Journals of earlier versions stay readable: kinds and fields of events only ever grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.core.model.events.kinds import JOURNAL_NAMES, KINDS, body_of, event_of, kind_of

FROZEN: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "frozen_events.json").read_text())
"""One entry of each kind, written before classes were renamed. Add new kinds; never change an entry."""


def test_every_kind_has_a_frozen_entry() -> None:
    assert set(FROZEN) == set(KINDS)


@pytest.mark.parametrize("kind", sorted(FROZEN))
def test_an_old_entry_loads_and_is_written_as_before(kind: str) -> None:
    event = event_of(kind, json.dumps(FROZEN[kind]))
    assert kind_of(event) == kind
    assert _holds(json.loads(body_of(event)), FROZEN[kind])


def _holds(written: object, frozen: object) -> bool:
    """Whether the written entry has all fields of the frozen one with the same values; it may have more."""
    if isinstance(written, dict) and isinstance(frozen, dict):
        return all(name in written and _holds(written[name], value) for name, value in frozen.items())
    if isinstance(written, list) and isinstance(frozen, list):
        return len(written) == len(frozen) and all(map(_holds, written, frozen))
    return written == frozen


def test_a_renamed_class_keeps_its_kind() -> None:
    for name, kind in JOURNAL_NAMES.items():
        assert KINDS[kind].__name__ == name
        assert name not in KINDS
