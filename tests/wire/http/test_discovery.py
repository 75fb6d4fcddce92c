"""The controller that a client finds without a URL, and contexts that name other controllers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wire.http import addresses, contexts, discovery
from wire.http.client import Client, Unreachable
from wire.http.contexts import Context, Contexts

VARIABLES = ("CORRAL_URL", "CORRAL_CONTEXT", "CORRAL_CONFIG", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and an empty working directory, and nothing in the environment."""
    for name in (*VARIABLES, "XDG_CONFIG_HOME", "CORRAL_CA", "CORRAL_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(addresses, "SYSTEM_SOCKET", tmp_path / "system.sock")
    return tmp_path / "home"


def configure(file: Path, socket: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'[controller]\nsocket = "{socket}"\n')


def test_controller_is_looked_for_in_order(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert discovery.find_controller().url == f"unix://{addresses.SYSTEM_SOCKET}"
    configure(home / ".config/corral/scheduler.toml", "/own.sock")
    assert discovery.find_controller().url == "unix:///own.sock"
    contexts.save(Contexts("lab", {"lab": Context("ssh://lab"), "prod": Context("https://prod")}))
    assert discovery.find_controller().url == "ssh://lab"
    configure(Path("scheduler.toml"), "/here.sock")
    assert discovery.find_controller().url == "unix:///here.sock"
    configure(Path("other.toml"), "~/named.sock")
    monkeypatch.setenv("CORRAL_CONFIG", "other.toml")
    assert discovery.find_controller().url == f"unix://{home}/named.sock"
    monkeypatch.setenv("CORRAL_CONTEXT", "prod")
    assert discovery.find_controller().url == "https://prod"
    monkeypatch.setenv("CORRAL_URL", "http://said:1")
    assert discovery.find_controller().url == "http://said:1"


def test_a_file_without_a_socket_names_no_controller() -> None:
    Path("scheduler.toml").write_text("[nodes.gpu01]\n")
    found = discovery.find_controller()
    assert found.url == f"unix://{addresses.SYSTEM_SOCKET}"
    assert "scheduler.toml: has no [controller] socket" in found.tried
    Path("scheduler.toml").write_text("[nodes.gpu01\n")
    assert "scheduler.toml: is not TOML" in discovery.find_controller().tried


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
def test_configuration_of_another_user_is_not_used() -> None:
    configure(Path("scheduler.toml"), "/trap.sock")
    os.chown("scheduler.toml", 65_534, 65_534)
    found = discovery.find_controller()
    assert found.url == f"unix://{addresses.SYSTEM_SOCKET}"
    assert "scheduler.toml: belongs to another user" in found.tried


def test_searched_places_are_named() -> None:
    with pytest.raises(Unreachable) as caught, Client() as client:
        client.health()
    for part in ("$CORRAL_URL: not set", "scheduler.toml: not there", "corral config use", "system.sock"):
        assert part in caught.value.hint
    with pytest.raises(Unreachable) as named, Client(f"unix://{addresses.SYSTEM_SOCKET}") as client:
        client.health()
    assert "Looked for" not in named.value.hint, "one was named"


def test_unknown_context_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts.save(Contexts("", {"lab": Context("ssh://lab")}))
    monkeypatch.setenv("CORRAL_CONTEXT", "lap")
    with pytest.raises(Unreachable, match="there is no context 'lap'; known contexts: lab"):
        Client()
    contexts.path().write_text("{")
    monkeypatch.delenv("CORRAL_CONTEXT")
    with pytest.raises(Unreachable, match="is not a list of contexts"):
        Client()


@pytest.mark.parametrize(
    "url",
    ["ssh://", "ssh://-oProxyCommand=x", "ssh://a b", "ssh://h:99999", "https://", "https://u@h", "ftp://h"],
)
def test_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(Unreachable, match="not an address"):
        Client(url)
