"""Slurm's amounts are read and written in the units of its documentation."""

from __future__ import annotations

import pytest

from controller.engines.batch_systems.slurm.units import (
    gpus_of,
    host_names,
    memory_mib,
    seconds_of,
    time_text,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 300),
        ("5:30", 330),
        ("1:02:03", 3_723),
        ("1-02", 93_600),
        ("1-02:03", 93_780),
        ("1-02:03:04", 93_784),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
    ],
)
def test_run_times(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("seconds", [1, 59, 60, 3_600, 86_399, 86_400, 93_784, 31 * 86_400])
def test_a_time_limit_is_read_as_it_was_written(seconds: int) -> None:
    assert seconds_of(time_text(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "mib"),
    [("512", 512), ("100M", 100), ("16Gn", 16_384), ("4Gc", 4_096), ("1.50T", 1_572_864), ("2048K", 2)],
)
def test_memory_without_a_unit_is_in_mib(text: str, mib: int) -> None:
    assert memory_mib(text) == mib


def test_memory_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ValueError, match="'lots'"):
        memory_mib("lots")


@pytest.mark.parametrize(
    ("gres", "found"),
    [
        ("gpu:a100:4(S:0-1)", (4, "a100")),
        ("gpu:2", (2, "")),
        ("gpu", (1, "")),
        ("gres:gpu:h100:8,tmpdisk:200G", (8, "h100")),
        ("gpu:a100:4,gpu:t4:2", (6, "")),
        ("shard:40,license:1", (0, "")),
        ("gres/gpu=3", (3, "")),
        ("(null)", (0, "")),
    ],
)
def test_gpus_of_a_gres(gres: str, found: tuple[int, str]) -> None:
    assert gpus_of(gres) == found


def test_lists_of_hosts() -> None:
    assert list(host_names("n[1-2,07],login,r[1-2]c[09-10]")) == [
        *("n1", "n2", "n07", "login"),
        *("r1c09", "r1c10", "r2c09", "r2c10"),
    ]
