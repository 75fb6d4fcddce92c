"""Everybody looks for things in the same places."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wire.http import addresses, discovery

VARIABLES = ["CORRAL_URL", "CORRAL_CONFIG", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"]


@pytest.fixture(autouse=True)
def somebody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with an empty home and none of the variables set."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert addresses.state_dir() == Path("/var/lib/corral")
    assert addresses.socket_path() == Path("/run/corral/corral.sock")


def test_a_users_own(somebody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert addresses.state_dir() == somebody / ".local/state/corral"
    assert addresses.socket_path() == somebody / ".local/state/corral/corral.sock"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert addresses.state_dir() == Path("/state/corral")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert addresses.socket_path() == Path("/run/user/1000/corral/corral.sock")


def test_relative_places_are_not_taken(somebody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    assert addresses.socket_path() == somebody / ".local/state/corral/corral.sock"


def test_clients_prefer_what_they_are_told_then_their_own_then_the_machines(
    somebody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert discovery.find_url() == "unix:///run/corral/corral.sock"
    own = somebody / ".local/state/corral/corral.sock"
    own.parent.mkdir(parents=True)
    own.touch()
    assert discovery.find_url() == f"unix://{own}"
    monkeypatch.setenv("CORRAL_URL", "http://head:7070")
    assert discovery.find_url() == "http://head:7070"


def test_configurations_are_looked_for_from_near_to_far(
    somebody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "SYSTEM_CONFIG", somebody / "etc.toml")
    assert addresses.find_config() is None
    (somebody / "etc.toml").touch()
    assert addresses.find_config() == somebody / "etc.toml"
    home = somebody / ".config/corral/scheduler.toml"
    home.parent.mkdir(parents=True)
    home.touch()
    assert addresses.find_config() == home
    (somebody / "scheduler.toml").touch()
    assert addresses.find_config() == Path("scheduler.toml")
    monkeypatch.setenv("CORRAL_CONFIG", "named.toml")
    assert addresses.find_config() == Path("named.toml")
    assert addresses.find_config("told.toml") == Path("told.toml")
