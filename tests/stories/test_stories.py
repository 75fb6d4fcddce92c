"""Scheduling stories: each text file is run on the real engine and must read exactly as written.

`pytest tests/stories --rewrite` writes the outcomes that the engine gives now; read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stories.engine_story import EngineStory, clock, lines_of, seconds

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text()
    outcome = EngineStory().run(written)
    if request.config.getoption("--rewrite"):
        path.write_text(outcome)
    else:
        assert outcome.splitlines() == written.splitlines()


def test_wrong_outcome_in_a_story_is_replaced() -> None:
    written = "cluster  n1: 8 GPUs each\nsubmit   a gpus=8 time=1h -> a runs on n2\n"
    outcome = EngineStory().run(written)
    assert [line.outcome for line in lines_of(outcome)] == ["", "a runs on n1"]


def test_unknown_story_command_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"there is no command 'submitt'; known are .*submit"):
        EngineStory().run("submitt  a gpus=8\n")


def test_story_times() -> None:
    assert [seconds("90s"), seconds("1h30m"), seconds("2d")] == [90.0, 5_400.0, 172_800.0]
    assert [clock(5_400.0), clock(59.0), clock(90_000.0)] == ["01:30", "00:00:59", "25:00"]
    with pytest.raises(ValueError, match="'soon' is not a duration"):
        seconds("soon")
