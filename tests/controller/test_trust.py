"""A root controller does not use files that users can change: real users, real controllers."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import users
from tests.limits import PATIENCE_S
from tests.programs import Program

ROOT = Path(__file__).parents[2]
PLUGIN = """
import dataclasses, pathlib
pathlib.Path({marker!r}).touch()

@dataclasses.dataclass(frozen=True)
class Mine:
    name = "mine"

    def on_placed(self, placed):
        pass
"""


@pytest.fixture(scope="module")
def bob() -> Iterator[pwd.struct_passwd]:
    """A user who prepares files for root."""
    with users.made("bob") as [made]:
        yield made


@pytest.fixture
def shared(bob: pwd.struct_passwd) -> Iterator[Path]:
    """A directory that is open to all, as /tmp is."""
    made = Path(tempfile.mkdtemp(prefix="corral-trust-", dir="/tmp"))
    made.chmod(0o1777)
    yield made
    shutil.rmtree(made)


def refusal(config: Path, code: int = 1) -> str:
    """Return the error of a root controller that refuses to start."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        assert Program(["controller", "--config", str(config)], log).wait(PATIENCE_S) == code
        printed = log.read_text()
    assert "Traceback" not in printed
    return printed


def as_user(user: pwd.struct_passwd, *command: str) -> None:
    subprocess.run(command, check=True, user=user.pw_uid, group=user.pw_gid, extra_groups=(), cwd="/")


def written(place: Path, **keys: str) -> Path:
    """Write a configuration that belongs to root, in a separate directory. `keys` is for [controller]."""
    own = place / "etc"
    own.mkdir(exist_ok=True)
    keys = {"state_dir": str(place / "state"), "socket": str(own / "c.sock"), **keys}
    config = own / "scheduler.toml"
    config.write_text("[controller]\n" + "".join(f'{key} = "{value}"\n' for key, value in keys.items()))
    return config


Prepare = Callable[[pwd.struct_passwd, Path], None]


def own(user: pwd.struct_passwd, file: Path) -> None:
    os.chown(file, user.pw_uid, user.pw_gid)


def open_to_all(_: pwd.struct_passwd, file: Path) -> None:
    file.chmod(0o666)


def below(user: pwd.struct_passwd, file: Path) -> None:
    os.chown(file.parent, user.pw_uid, user.pw_gid)


@pytest.mark.parametrize("prepare", [own, open_to_all, below])
def test_a_configuration_that_a_user_can_change_is_not_used(
    bob: pwd.struct_passwd, shared: Path, prepare: Prepare
) -> None:
    config = written(shared)
    prepare(bob, config)
    said = refusal(config, 2)
    assert "scheduler.toml" in said
    assert f"belongs to {bob.pw_name}" in said or "can be written to by others (mode 0666)" in said
    assert not (shared / "state").exists()


@pytest.mark.parametrize("prepare", [own, open_to_all, below])
def test_a_plugin_file_that_a_user_can_change_is_not_run(
    bob: pwd.struct_passwd, shared: Path, prepare: Prepare
) -> None:
    config, marker = written(shared), shared / "ran"
    (shared / "plugins").mkdir()
    plugin = shared / "plugins" / "mine.py"
    plugin.write_text(PLUGIN.format(marker=str(marker)))
    prepare(bob, plugin)
    with config.open("a") as file:
        file.write(f'[plugins]\nfiles = ["{plugin}"]\n')
    assert f"{plugin} is not loaded: " in refusal(config, 2)
    assert not marker.exists()


def test_a_state_directory_that_a_user_prepared_is_not_used(bob: pwd.struct_passwd, shared: Path) -> None:
    """With such a directory, jobs could run as root, and its token would have the rights of an admin."""
    config, state = written(shared), shared / "state"
    as_user(bob, "mkdir", "-m", "777", str(state))
    as_user(bob, "touch", str(state / "corral.db"))
    assert f"{state} belongs to {bob.pw_name}" in refusal(config)
    # Only half of the advice is followed, step by step.
    os.chown(state, 0, 0)
    assert f"{state} can be written to by others (mode 0777)" in refusal(config)
    state.chmod(0o700)
    assert f"{state}/corral.db belongs to {bob.pw_name}" in refusal(config)
    assert (state / "corral.db").stat().st_size == 0


def test_a_link_to_another_state_directory_is_not_followed(bob: pwd.struct_passwd, shared: Path) -> None:
    as_user(bob, "mkdir", str(shared / "bobs"))
    as_user(bob, "ln", "-s", str(shared / "bobs"), str(shared / "state"))
    assert f"is a symbolic link that {bob.pw_name} " in refusal(written(shared))
    assert list((shared / "bobs").iterdir()) == []


def test_a_token_that_a_user_knows_is_not_used(bob: pwd.struct_passwd, shared: Path) -> None:
    config, token = written(shared), shared / "state" / "token"
    token.parent.mkdir(mode=0o700)
    token.write_text("0123456789abcdef0123456789abcdef")
    token.chmod(0o600)
    own(bob, token)
    with config.open("a") as file:
        file.write('[api]\nlisten = "127.0.0.1:0"\n')
    assert f"{token} belongs to {bob.pw_name}" in refusal(config)


def test_a_socket_that_a_user_could_replace_is_not_opened(bob: pwd.struct_passwd, shared: Path) -> None:
    """Requests of other users would go to a controller of this user."""
    as_user(bob, "mkdir", str(shared / "run"))
    said = refusal(written(shared, socket=str(shared / "run" / "c.sock")))
    assert f"{shared}/run belongs to {bob.pw_name}" in said
    assert list((shared / "run").iterdir()) == []
