"""Work in processes of its own that ends before it has begun; tests of compare() see the rest."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import active_children
from typing import Any

import pytest

from controller.sim.parallel import RunFailed, run_in_processes


class Deadly:
    """Ends the process that unpacks it at once."""

    def __reduce__(self) -> Any:
        return os._exit, (3,)


def nothing(_task: Any, _progress: Callable[[int], None]) -> None:
    """What would be done."""


def test_who_dies_while_being_told_what_to_do_is_named() -> None:
    # More than a pipe holds, so that we are still telling.
    with pytest.raises(RunFailed, match="the run of it ended with code 3"):
        run_in_processes(nothing, {"it": (Deadly(), bytes(1 << 22))})
    assert active_children() == []
