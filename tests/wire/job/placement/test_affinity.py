"""Affinity terms, taints and tolerations as users write them."""

from __future__ import annotations

import pytest

from wire.job.placement.affinity import (
    affinity_problems,
    parse_preference,
    parse_taint,
    parse_term,
    parse_toleration,
)


@pytest.mark.parametrize(
    "text", ["zone in a,b", "zone not in a,b", "disk exists", "disk missing", "cores > 64", "cores < -1.5"]
)
def test_affinity_term_is_printed_as_parsed(text: str) -> None:
    assert str(parse_term(text)) == text
    assert not list(affinity_problems((parse_term(text),), (), ()))


def test_a_preference_has_a_weight() -> None:
    assert parse_preference("zone in a").weight == 50
    assert str(parse_preference("zone in a weight 80")) == "zone in a weight 80"


@pytest.mark.parametrize("text", ["gpu=big:NoSchedule", "old:PreferNoSchedule", "broken:NoExecute"])
def test_taint_is_printed_as_parsed(text: str) -> None:
    assert str(parse_taint(text)) == text
    assert parse_toleration(text).tolerates(parse_taint(text))


@pytest.mark.parametrize("text", ["*", "gpu", "gpu=big", "gpu:NoExecute", "gpu=:NoSchedule"])
def test_toleration_is_printed_as_parsed(text: str) -> None:
    assert str(parse_toleration(text)) == text


@pytest.mark.parametrize("text", ["", "zone", "zone in", "zone is a", "cores >", "> 3"])
def test_invalid_affinity_term_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write 'zone in a,b'"):
        parse_term(text)


@pytest.mark.parametrize("text", ["", "gpu", "gpu=big", ":NoSchedule", "gpu:Sometimes"])
def test_invalid_taint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"NoSchedule, PreferNoSchedule, NoExecute"):
        parse_taint(text)


@pytest.mark.parametrize("text", ["zone in ,", "cores > many", "a b in c"])
def test_parsed_term_can_still_be_invalid(text: str) -> None:
    try:
        term = parse_term(text)
    except ValueError:
        return
    assert list(affinity_problems((term,), (), ()))
