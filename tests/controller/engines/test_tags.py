"""Tags of foreign jobs."""

from __future__ import annotations

import re

import pytest

from controller.engines.tags import Tag, parse_tag, prefix_of

STORE = "0f3a9c112233445566778899aabbccdd"


def test_a_tag_is_read_back() -> None:
    tag = Tag(STORE[:12], 42, 3, 1)
    assert str(tag) == "corral-0f3a9c112233-42-3-1"
    assert parse_tag(str(tag), prefix_of(STORE)) == tag


def test_the_longest_tag_is_a_name_for_kubernetes_and_docker() -> None:
    text = str(Tag(STORE[:12], (1 << 53) - 1, 999_999_999, 999_999))
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text)
    assert parse_tag(text, prefix_of(STORE)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "corral-0f3a9c112233-42-1",
        "corral-0f3a9c112233-42-1-0-x",
        "corral-0f3a9c112233-42-1-0\n",
        "corral-ffffffffffff-42-1-0",
        "xcorral-0f3a9c112233-42-1-0",
        "corral-0f3a9c112233--1-0",
    ],
)
def test_other_texts_are_no_tags_of_this_cluster(text: str) -> None:
    assert parse_tag(text, prefix_of(STORE)) is None
