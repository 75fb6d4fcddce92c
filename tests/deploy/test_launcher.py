"""The script at the head of a program in one file unpacks it once, and refuses planted directories."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deploy.binary.build import pack

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
PROGRAM = """#!/bin/sh
echo "$1 from $CORRAL_PROGRAM"
[ "$1" != sleep ] || exec sleep 60
"""


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A program in one file, which prints its argument."""
    folder = tmp_path / "parts" / "corral"
    (folder / "_internal").mkdir(parents=True)
    (folder / "corral").write_text(PROGRAM)
    (folder / "corral").chmod(0o755)
    (folder / "_internal" / "library.so").write_bytes(os.urandom(1 << 16))
    pack(folder, tmp_path / "corral")
    return tmp_path / "corral"


def start(
    program: Path, *words: str, place: Path | None = None, home: Path | None = None, user: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Start it with a cache of its own."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home or "/nonexistent")}
    if place is not None:
        environment["CORRAL_UNPACK_DIR"] = str(place)
    return subprocess.run(
        [str(program), *words], env=environment, capture_output=True, text=True, user=user, check=False
    )


def test_first_start_unpacks_to_a_private_directory(packed: Path, tmp_path: Path) -> None:
    done = start(packed, "hello", place=tmp_path / "cache")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"hello from {packed}\n", "")
    [unpacked] = (tmp_path / "cache").iterdir()
    assert oct(unpacked.stat().st_mode & 0o777) == oct((tmp_path / "cache").stat().st_mode & 0o777) == "0o700"
    library = unpacked / "_internal" / "library.so"
    assert library.read_bytes() == (tmp_path / "parts" / "corral" / "_internal" / "library.so").read_bytes()


def test_later_starts_unpack_nothing(packed: Path, tmp_path: Path) -> None:
    start(packed, "hello", place=tmp_path / "cache")
    [unpacked] = (tmp_path / "cache").iterdir()
    (unpacked / "_internal" / "library.so").unlink()
    assert start(packed, "again", place=tmp_path / "cache").stdout == f"again from {packed}\n"
    assert not (unpacked / "_internal" / "library.so").exists()


def test_damaged_file_is_refused_and_leaves_nothing(packed: Path, tmp_path: Path) -> None:
    data = packed.read_bytes()
    for damaged in (data[:-9], data[:-9] + b"\0" * 9):
        packed.write_bytes(damaged)
        done = start(packed, "hello", place=tmp_path / "cache")
        assert (done.returncode, done.stdout) == (126, "")
        assert "is damaged or incomplete\n  Copy or download it again." in done.stderr
        assert list((tmp_path / "cache").iterdir()) == []


def test_ten_first_starts_at_the_same_time_all_run(packed: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(lambda each: start(packed, str(each), place=tmp_path / "cache"), range(10)))
    assert [each.stdout for each in done] == [f"{each} from {packed}\n" for each in range(10)]
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize(
    ("folder", "mode"), [("", 0o777), ("", 0o775), ("cache", 0o777), ("cache", 0o1777), ("cache/*", 0o1777)]
)
def test_directory_that_others_may_write_to_is_refused(
    packed: Path, tmp_path: Path, folder: str, mode: int
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    assert start(packed, "hello", place=top / "cache").returncode == 0
    [open_to_all] = top.glob(folder) if folder else [top]
    open_to_all.chmod(mode)
    done = start(packed, "hello", place=top / "cache")
    if (folder, mode) == ("cache", 0o1777):
        # because nobody can rename the program's own directory in it
        assert done.returncode == 0
        return
    assert (done.returncode, done.stdout) == (126, "")
    assert f"other users may write to {open_to_all}" in done.stderr
    assert "CORRAL_UNPACK_DIR" in done.stderr


@AS_ROOT
def test_program_that_another_user_has_put_there_is_not_run(packed: Path, tmp_path: Path) -> None:
    start(packed, "hello", place=tmp_path / "cache")
    [unpacked] = (tmp_path / "cache").iterdir()
    os.chown(unpacked, 65_534, 65_534)
    done = start(packed, "hello", place=tmp_path / "cache")
    assert (done.returncode, done.stdout) == (126, "")
    assert f"{unpacked} belongs to the user with id 65534" in done.stderr


@AS_ROOT
def test_user_has_a_cache_of_their_own_and_a_symlink_is_followed(packed: Path) -> None:
    with TemporaryDirectory(dir="/var/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        shutil.copy(packed, place / "corral")
        for folder in (place / "home", place / "disk"):
            folder.mkdir()
            os.chown(folder, 65_534, 65_534)
        (place / "home" / ".cache").symlink_to(place / "disk")
        done = start(place / "corral", "hello", home=place / "home", user=65_534)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"hello from {place}/corral\n", "")
        assert len(list((place / "disk" / "corral").iterdir())) == 1


def test_old_versions_are_deleted_but_not_those_that_run(packed: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    for name in ("unused", "in-use", "new"):
        (cache / name).mkdir(mode=0o700)
    shutil.copy("/bin/sleep", cache / "in-use" / "corral")
    for name in ("unused", "in-use"):
        os.utime(cache / name, (0, 0))
    runs = subprocess.Popen([str(cache / "in-use" / "corral"), "60"])
    try:
        assert start(packed, "hello", place=cache).returncode == 0
    finally:
        runs.kill()
        runs.wait()
    assert {each.name for each in cache.iterdir() if len(each.name) < 64} == {"in-use", "new"}


def test_place_that_cannot_be_used_is_named(packed: Path) -> None:
    done = start(packed, "hello", place=Path("/proc/none"))
    assert done.returncode == 126
    assert done.stderr.startswith(
        "corral: /proc/none: cannot be created\n  To use another place, set CORRAL_UNPACK_DIR"
    )
