from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.controller.api.running_controller import RunningController, start_controller


@pytest.fixture
async def api() -> AsyncIterator[RunningController]:
    """A controller without nodes; the tests let them join."""
    async with start_controller() as made:
        yield made
