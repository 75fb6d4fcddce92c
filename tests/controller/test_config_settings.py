"""The keys of a configuration with their values and places, without secrets."""

from __future__ import annotations

import pytest

from controller.config import in_effect, load_text, settings
from wire.api.service.config import ConfigSetting

TEXT = """
[store]
url = "postgresql://corral:secret@db/corral"
[fair_share]
weights = { vision = 3.0 }
[queues.short]
max_time_limit_s = 60.0
[services.web]
user = "ada"
command = ["serve"]
environment = { TOKEN = "secret" }
[[plugins.hooks]]
name = "tell"
password = "secret"
"""


def found(text: str = TEXT) -> dict[str, ConfigSetting]:
    return {each.key: each for each in settings(load_text(text, "lab.toml"))}


def test_each_key_has_the_line_where_it_was_set() -> None:
    keys = found()
    assert keys["queues.short.max_time_limit_s"] == ConfigSetting(
        "queues.short.max_time_limit_s", "60.0", "lab.toml:7"
    )
    assert keys["fair_share.weights.vision"].source == "lab.toml:5"
    assert keys["scheduler.order"].source == "default"


def test_environment_variable_is_named_as_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_SCHEDULER__ORDER", '"fifo"')
    setting = found()["scheduler.order"]
    assert (setting.value, setting.source) == ('"fifo"', "CORRAL_SCHEDULER__ORDER")


def test_secrets_are_not_shown() -> None:
    assert not [each for each in found().values() if "secret" in each.value]
    assert found()["store.url"].value == "(not shown)"


def test_key_that_needs_a_restart_has_both_values() -> None:
    running, new = load_text("", "lab.toml"), load_text("[api]\nmax_body = 2048\n", "lab.toml")
    keys = {each.key: each for each in settings(in_effect(running, new))}
    assert keys["api.max_body"].after_restart == "2048"
    assert keys["api.max_body"].value != "2048"
    assert keys["scheduler.order"].after_restart is None
