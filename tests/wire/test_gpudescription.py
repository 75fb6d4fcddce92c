"""GPU descriptions: their meaning, and which are refused."""

from __future__ import annotations

import pytest

from agent.gpus.simulated import MODELS
from wire import gpudescription
from wire.gpudescription import SIMULATED_MODELS, GpuGroup

BAD = {
    "simulated:8xA100:zz": "cannot read '8xA100:zz': 'zz' is not a MIG profile",
    "simulated:1xA100:1g.5gb*8": "needs more than the seven slices of a GPU",
    "simulated:0xH100": "cannot read '0xH100'; write 8xH100",
    "simulated:8xH1000": "cannot read '8xH1000'; write 8xH100",
    "simulated:8xH100,": "cannot read ''; write 8xH100",
    "eight": "cannot read 'eight' as GPUs; write \"auto\"",
}


def test_groups() -> None:
    found = gpudescription.parse_simulated("simulated:8xH100, 2xa100-40g:3g.20gb/1g.5gb*2")
    assert found == (GpuGroup(8, "H100"), GpuGroup(2, "A100-40G", ("3g.20gb", "1g.5gb", "1g.5gb")))


def test_idle_groups() -> None:
    found = gpudescription.parse_simulated("simulated:6xH100,2xH100:idle,1xA100:1g.5gb*7:idle")
    assert [(each.count, len(each.slices), each.idle) for each in found] == [
        (6, 0, False),
        (2, 0, True),
        (1, 7, True),
    ]


@pytest.mark.parametrize("text", ["auto", "none", "nvml", "simulated:1xT4"])
def test_a_description_that_an_agent_can_read_is_returned_unchanged(text: str) -> None:
    assert gpudescription.checked_description(text) == text


def test_the_agent_simulates_every_model_that_a_description_may_name() -> None:
    assert tuple(MODELS) == SIMULATED_MODELS


@pytest.mark.parametrize("text", BAD)
def test_invalid_gpu_description_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read") as refused:
        gpudescription.checked_description(text)
    assert BAD[text] in str(refused.value)
