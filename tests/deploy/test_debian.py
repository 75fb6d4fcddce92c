"""From an empty Debian: install the package, run a job, upgrade meanwhile, back up, restore, remove, purge.

There is no systemd in the root. The test starts what the unit starts, as the unit's user.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.debian.build import build
from tests.deploy import bare_root
from tests.deploy.bare_root import BareRoot
from tests.deploy.built import PROGRAM, outdated
from tests.limits import PATIENCE_S
from wire import VERSION

WHY_NOT = (
    outdated() or bare_root.lacking() or ("" if shutil.which("dpkg-deb") else "there is no dpkg-deb here")
)
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "everything is there"), pytest.mark.slow]
BEFORE = "0.0.1"
UNIT = "lib/systemd/system/corral-controller.service"
NODE = """
[nodes.gpu01]
link = "local"
gpus = "simulated:8xH100"
run_as_self = true
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The package twice, under the number of this version and of one before."""
    folder = tmp_path_factory.mktemp("packages")
    return {version: build(folder, PROGRAM, version) for version in (BEFORE, VERSION)}


@pytest.fixture
def root() -> Iterator[BareRoot]:
    with bare_root.bare_root() as made:
        yield made


class Service:
    """The unit, started as systemd would."""

    def __init__(self, root: BareRoot) -> None:
        self.root = root
        text = (root.path / UNIT).read_text()
        lines = [line.partition("=") for line in text.splitlines() if "=" in line and line[0] != "#"]
        self.keys = {key: value for key, _, value in lines}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert self.keys["RuntimeDirectory"] == "corral"
        self.root.run("install", "-d", "-m", "0755", "-o", "corral", "-g", "corral", "/run/corral")
        words = ["env", self.keys["Environment"], *self.keys["ExecStart"].split()]
        self._process = self.root.start(
            *words, log="var/log/corral", user=f"{self.keys['User']}:{self.keys['Group']}"
        )
        self.until(lambda: " up " in corral(self.root, "nodes", check=False))

    def stop(self) -> None:
        """End the main process only, as KillMode=process does."""
        assert self.keys["KillMode"] == "process"
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE_S) == 0

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 3 * PATIENCE_S
        while not true():
            assert time.monotonic() < deadline, (self.root.path / "var/log/corral").read_text()
            time.sleep(0.2)


def corral(root: BareRoot, *words: str, check: bool = True, user: str = "root") -> str:
    return root.run("corral", *words, check=check, user=user).stdout


def install(root: BareRoot, package: Path) -> None:
    shutil.copy(package, root.path / "tmp")
    root.run("dpkg", "-i", f"/tmp/{package.name}")


def test_install_job_upgrade_backup_restore_remove_purge(root: BareRoot, packages: dict[str, Path]) -> None:
    install(root, packages[BEFORE])
    state, config = root.path / "var/lib/corral", root.path / "etc/corral/scheduler.toml"
    assert (state.stat().st_mode & 0o777, state.stat().st_uid != 0) == (0o700, True)
    assert "corral 0" in corral(root, "--version")
    with config.open("a") as file:
        file.write(NODE)
    assert corral(root, "config", "check", "/etc/corral/scheduler.toml", check=False) is not None
    service = Service(root)
    service.start()

    # a job, and an upgrade while it runs
    go = root.path / "tmp/go"
    wait = "echo began; while ! test -e /tmp/go; do sleep 0.1; done; echo survived"
    job = corral(root, "submit", "--gpus", "1", "--workdir", "/", "--", "sh", "-c", wait).strip()
    service.until(lambda: "began" in corral(root, "job", "logs", job, check=False))
    [old] = (root.path / "usr/lib/corral").iterdir()
    install(root, packages[VERSION])
    kept = {each.name for each in (root.path / "usr/lib/corral").iterdir()}
    assert len(kept) == 2, "the job's supervisor still runs the version before"
    assert old.name in kept
    assert NODE in config.read_text()
    service.stop()
    service.start()
    assert "RUNNING" in corral(root, "job", "show", job)
    go.touch()
    service.until(lambda: "COMPLETED" in corral(root, "job", "show", job))
    assert corral(root, "job", "logs", job) == "began\nsurvived\n"

    # a backup, the loss of the store, and the backup again
    copy = "/var/lib/corral/copy.db"
    corral(root, "admin", "backup", copy, "--config", "/etc/corral/scheduler.toml", user="corral:corral")
    service.stop()
    for lost in state.glob("corral.db*"):
        lost.unlink()
    corral(
        root,
        "admin",
        "restore",
        copy,
        "--config",
        "/etc/corral/scheduler.toml",
        "--yes",
        user="corral:corral",
    )
    service.start()
    assert "COMPLETED" in corral(root, "job", "show", job)
    assert "The store has no errors." in corral(root, "admin", "verify")
    service.stop()

    # the next upgrade deletes the old version, which no process runs any more
    install(root, packages[VERSION])
    assert [each.name for each in (root.path / "usr/lib/corral").iterdir()] == sorted(kept - {old.name})
    root.run("dpkg", "-r", "corral")
    assert not (root.path / "usr/lib/corral").exists()
    assert not (root.path / "usr/bin/corral").is_symlink()
    assert (state / "corral.db").exists()
    assert NODE in config.read_text()
    root.run("dpkg", "-P", "corral")
    assert (state.exists(), config.exists()) == (False, False)
    assert "\ncorral:" not in (root.path / "etc/passwd").read_text()
