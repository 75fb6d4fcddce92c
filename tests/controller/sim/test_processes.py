"""Simulations in separate processes that end before they begin their work."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import active_children
from typing import Any

import pytest

from controller.sim.parallel import RunFailed, run_in_processes


class Deadly:
    """Kills the process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (3,)


def nothing(_task: Any, _progress: Callable[[int], None]) -> None:
    """Never called, because its argument ends the process."""


def test_process_that_dies_while_it_receives_its_task_is_named() -> None:
    # More than a pipe holds, so that the parent is still sending.
    with pytest.raises(RunFailed, match="the run of it ended with code 3"):
        run_in_processes(nothing, {"it": (Deadly(), bytes(1 << 22))})
    assert active_children() == []
