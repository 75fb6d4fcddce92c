"""What the landing promises to those who only look."""

from __future__ import annotations

import asyncio

from controller.core import inputs
from controller.core.check import check
from tests.controller.api.house import living
from wire.spec import JobSpec

PATIENCE_S = 60.0


async def test_who_reads_gets_his_turn_though_there_is_always_more_to_decide() -> None:
    async with living() as house:
        daemon, held = house.daemon, JobSpec(command=("true",), hold=True)

        async def flood() -> None:
            while True:
                daemon.tell(inputs.Submit(held, "ada", ""))
                await asyncio.sleep(0)

        flooding = asyncio.create_task(flood())
        try:
            while daemon.seq < 100:
                async with asyncio.timeout(PATIENCE_S):
                    await daemon.settled()
                assert daemon.seq == len(daemon.state.jobs), "nothing is shown that is not on disk"
                await asyncio.sleep(0)
        finally:
            flooding.cancel()
        assert check(daemon.state) == []
