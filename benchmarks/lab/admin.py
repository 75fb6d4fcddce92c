"""The admin's week in the lab: a rack is drained for 12 hours, and two nodes are reserved for maintenance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC

from benchmarks.lab.workload import START_S
from cli.commands.sim.story.story_commands import NODE
from cli.commands.sim.story.story_file import StoryFacts, story_of
from controller.sim.story.story import StoryStep


def admin_story(nodes: Sequence[str], days: float) -> tuple[StoryStep, ...]:
    """Return the commands of the admin in each whole week: the third and the fourth node are drained, and the
    first and the second are reserved. For a cluster of fewer than four nodes, there are no commands.
    """
    facts = StoryFacts(START_S, UTC, {(NODE, name) for name in nodes}, configured=True)
    return story_of(_lines(nodes, days), "the admin's week", facts)


def _lines(nodes: Sequence[str], days: float) -> Iterator[str]:
    if len(nodes) < 4:
        return
    first, second, third, fourth = nodes[:4]
    for week in range(int(days // 7)):
        monday = 1 + 7 * week
        yield f"day {monday + 2} 02:00 nodes drain {third} {fourth} --why 'rack power'"
        yield f"day {monday + 2} 14:00 nodes resume {third} {fourth}"
        yield (
            f"day {monday + 4} 16:00 reserve create maintenance-{week} --node {first} --node {second} "
            "--start +24h --for 4h --anyway"
        )
