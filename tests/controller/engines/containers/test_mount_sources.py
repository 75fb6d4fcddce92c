"""The paths that the container of a user may mount."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.engines.containers.container_request import RequestProblem
from controller.engines.containers.mount_sources import reachable_source

ADA = 54_321
"""A uid that owns nothing here."""


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that all users can enter, which tmp_path is not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        os.chmod(made, 0o755)
        for name in ("bob/data", "ada"):
            (Path(made) / name).mkdir(parents=True)
        (Path(made) / "bob").chmod(0o700)
        yield Path(made)


def source(path: Path, root: Path, uid: int = ADA, groups: tuple[int, ...] = ()) -> str:
    return reachable_source(str(path), (str(root),), uid, groups)


def test_a_directory_below_a_private_one_cannot_be_mounted(home: Path) -> None:
    with pytest.raises(RequestProblem, match=r"may not enter .*/bob$"):
        source(home / "bob" / "data", home)
    assert source(home / "bob" / "data", home, os.getuid()) == str(home / "bob" / "data")
    assert source(home / "ada", home) == str(home / "ada")


def test_a_symbolic_link_is_followed_before_the_check(home: Path) -> None:
    (home / "ada" / "link").symlink_to(home / "bob" / "data")
    (home / "ada" / "out").symlink_to("/etc")
    with pytest.raises(RequestProblem, match="may not enter"):
        source(home / "ada" / "link", home)
    with pytest.raises(RequestProblem, match="points to /etc, outside of the mount roots"):
        source(home / "ada" / "out", home)
    assert source(home / "ada" / "link", home, os.getuid()) == str(home / "bob" / "data")


def test_a_group_may_enter_with_the_bit_of_the_group_alone(home: Path) -> None:
    bob = home / "bob"
    bob.chmod(0o710)
    group = bob.stat().st_gid
    assert source(bob / "data", home, ADA, (group,)) == str(bob / "data")
    bob.chmod(0o701)
    with pytest.raises(RequestProblem, match="may not enter"):
        source(bob / "data", home, ADA, (group,))
