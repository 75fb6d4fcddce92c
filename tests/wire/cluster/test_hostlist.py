"""Host lists in the notation of Slurm."""

from __future__ import annotations

import pytest

from wire.cluster.hostlist import MOST, expand_hostlist, fold_hostlist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[01-03]", ["gpu01", "gpu02", "gpu03"]),
        ("gpu[8-10]", ["gpu8", "gpu9", "gpu10"]),
        ("gpu[1,3,5-6],login1", ["gpu1", "gpu3", "gpu5", "gpu6", "login1"]),
        ("a, b c", ["a", "b", "c"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("n[1-2].example.org", ["n1.example.org", "n2.example.org"]),
        ("n[7]", ["n7"]),
    ],
)
def test_host_lists(text: str, names: list[str]) -> None:
    assert expand_hostlist(text) == names


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not a list of hosts"),
        ("gpu[01-", "is not a list of hosts"),
        ("gpu]", "is not a list of hosts"),
        ("gpu[[1-2]]", "is not a list of hosts"),
        ("a,,", "is not a list of hosts"),
        ("gpu[]", "cannot read []"),
        ("gpu[a-b]", "cannot read [a-b]"),
        ("gpu[3-1]", "is not a range"),
        ("gpu[0-999999999]", "is not a range"),
        ("a[1-1000]b[1-1000]", f"more than {MOST} hosts"),
    ],
)
def test_other_texts_are_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=r"hosts|range|cannot read") as refused:
        expand_hostlist(text)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1", "n2", "n5"], "n[1-2,5]"),
        (["gpu01", "gpu02", "gpu03"], "gpu[01-03]"),
        (["n09", "n10", "login"], "n[09-10],login"),
        (["n9", "n10"], "n[9-10]"),
        (["n2", "n1"], "n2,n1"),
        (["n1", "n02"], "n1,n02"),
        (["r1n1-ib", "r1n2-ib", "r2n1-ib"], "r1n[1-2]-ib,r2n1-ib"),
        (["solo"], "solo"),
    ],
)
def test_folded_names_expand_to_the_same_names_in_the_same_order(names: list[str], text: str) -> None:
    assert fold_hostlist(names) == text
    assert expand_hostlist(text) == names
