from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.controller.api.house import House, living


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """A controller without nodes; the tests let them join."""
    async with living() as made:
        yield made
