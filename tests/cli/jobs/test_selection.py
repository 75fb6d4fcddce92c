"""The jobs that 7, 7_3, 7_[0-9], 1-3, last, all and --mine select."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from cli.exit_codes import NOT_FOUND, USAGE, CommandError
from cli.jobs import selection
from cli.jobs.selection import newest, select, select_one
from tests.cli.fake_controller import FakeController, array, job
from wire.http.client import Client, Refused
from wire.names import JobState

DONE = JobState.COMPLETED


@pytest.fixture
def client(fake: FakeController, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of a fake controller with short pages and a few jobs of this user and of other users."""
    monkeypatch.setattr(selection, "PAGE", 2)
    fake.put(
        job(1, state=DONE),
        job(2),
        job(3, user="bo"),
        job(4),
        *array(7, 5),
        *array(12, 2, user="bo"),
        job(20, user="bo"),
    )
    with Client(fake.url) as made:
        yield made


@pytest.mark.parametrize(
    ("words", "mine", "labels"),
    [
        ("2", False, "2"),
        ("2 4 2", False, "2 4"),
        ("1", False, "1"),
        ("7_3", False, "7_3"),
        ("7", False, "7_0 7_1 7_2 7_3 7_4"),
        ("8", False, "7_1"),
        ("7_[1-3]", False, "7_1 7_2 7_3"),
        ("7_[4,0]", False, "7_0 7_4"),
        ("1-4", False, "2 3 4"),
        ("1-4", True, "2 4"),
        ("3-3", False, "3"),
        ("0-2", False, "2"),
        ("all", False, "2 3 4 7_0 7_1 7_2 7_3 7_4 12_0 12_1 20"),
        ("all", True, "2 4 7_0 7_1 7_2 7_3 7_4"),
        ("", True, "2 4 7_0 7_1 7_2 7_3 7_4"),
        ("last", False, "7_4"),
        ("last 2", False, "7_4 2"),
        ("100-200", False, ""),
        ("20", True, ""),
    ],
)
def test_jobs_matched_by_each_selection(client: Client, words: str, mine: bool, labels: str) -> None:
    assert [found.label for found in select(client, words.split(), mine)] == labels.split()


def test_range_includes_ended_jobs_where_useful(client: Client) -> None:
    assert [found.id for found in select(client, ["1-3"], False, ended=True)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("", USAGE, "no job is named"),
        ("seven", USAGE, "'seven' is not a job"),
        ("-1", USAGE, "'-1' is not a job"),
        ("..", USAGE, "'..' is not a job"),
        ("7_", USAGE, "'7_' is not a job"),
        ("7_[", USAGE, "is not a job"),
        ("7_[3-1]", USAGE, "counts backwards"),
        ("7_[3-9]", NOT_FOUND, "there is no job 7_5"),
        ("4-2", USAGE, "counts backwards"),
        ("²", USAGE, "is not a job"),
    ],
)
def test_invalid_selection_is_refused(client: Client, words: str, code: int, told: str) -> None:
    with pytest.raises(CommandError, match=told.replace("[", r"\[")) as caught:
        select(client, words.split(), False)
    assert caught.value.code == code


def test_an_unknown_job_is_refused_by_the_controller(client: Client) -> None:
    with pytest.raises(Refused, match="there is no job 99"):
        select(client, ["99"], False)


@pytest.mark.parametrize("mine", [[5], [1], [1, 2, 3], [1, 1000], [3, 500, 501, 777], list(range(1, 40))])
def test_last_job_is_found_with_few_requests(fake: FakeController, mine: list[int]) -> None:
    fake.put(*(job(number, user="ada" if number in mine else "bo") for number in range(1, 1_001)))
    with Client(fake.url) as client:
        assert select_one(client, "last").id == max(mine)
    assert len(fake.asked("GET")) <= 25


def test_last_is_refused_without_jobs(fake: FakeController) -> None:
    fake.put(job(1, user="bo"))
    with Client(fake.url) as client, pytest.raises(CommandError, match="you have no job yet"):
        select_one(client, "last")


@pytest.mark.parametrize(
    "ids", [[], [1], [7], [1, 2, 3, 9, 10, 11, 64], [3, 1_000_000], list(range(1, 200, 7))]
)
def test_newest_is_found_with_few_requests(ids: list[int]) -> None:
    asked: list[int] = []

    def first_after(place: int) -> Numbered | None:
        asked.append(place)
        return next((Numbered(each) for each in ids if each > place), None)

    found = newest(first_after)
    assert (found.id if found else None) == max(ids, default=None)
    assert len(asked) <= 45


class Numbered(NamedTuple):
    """An object with an id, such as a job or a workload."""

    id: int
