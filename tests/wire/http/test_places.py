"""The standard paths of sockets, state and configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wire.http import addresses, discovery

VARIABLES = ["CORRAL_URL", "CORRAL_CONFIG", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with an empty home and none of the variables set."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_paths_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert addresses.state_dir() == Path("/var/lib/corral")
    assert addresses.socket_path() == Path("/run/corral/corral.sock")


def test_paths_of_a_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert addresses.state_dir() == home / ".local/state/corral"
    assert addresses.socket_path() == home / ".local/state/corral/corral.sock"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert addresses.state_dir() == Path("/state/corral")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert addresses.socket_path() == Path("/run/user/1000/corral/corral.sock")


def test_relative_paths_are_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    assert addresses.socket_path() == home / ".local/state/corral/corral.sock"


def test_clients_prefer_the_given_then_the_users_then_the_system_socket(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert discovery.find_url() == "unix:///run/corral/corral.sock"
    own = home / ".local/state/corral/corral.sock"
    own.parent.mkdir(parents=True)
    own.touch()
    assert discovery.find_url() == f"unix://{own}"
    monkeypatch.setenv("CORRAL_URL", "http://head:7070")
    assert discovery.find_url() == "http://head:7070"


def test_configurations_are_searched_from_near_to_far(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "SYSTEM_CONFIG", home / "etc.toml")
    assert addresses.find_config() is None
    (home / "etc.toml").touch()
    assert addresses.find_config() == home / "etc.toml"
    own = home / ".config/corral/scheduler.toml"
    own.parent.mkdir(parents=True)
    own.touch()
    assert addresses.find_config() == own
    (home / "scheduler.toml").touch()
    assert addresses.find_config() == Path("scheduler.toml")
    monkeypatch.setenv("CORRAL_CONFIG", "named.toml")
    assert addresses.find_config() == Path("named.toml")
    assert addresses.find_config("told.toml") == Path("told.toml")
