"""-o yaml: blocks, and strings that a YAML parser reads as strings."""

from __future__ import annotations

import json

from cli.output.yaml_lines import yaml_lines
from tests.cli.conftest import Corral
from tests.cli.fake_controller import FakeController, job

DATA = {
    "jobs": [
        {"label": "29_299", "name": "vit-large", "tags": [], "env": {"A": "no"}},
        {"label": "é\U0001f600"},
    ],
    "gpus": [0.5, 8, 1e-05, None, True],
    "empty": {},
    "text": "a: b\n\x1b[2J # c\x7f",
}
LINES = r"""
jobs:
  - label: "29_299"
    name: vit-large
    tags: []
    env:
      A: "no"
  - label: "\u00e9\U0001f600"
gpus:
  - 0.5
  - 8
  - 1.0e-05
  - null
  - true
empty: {}
text: "a: b\n\u001b[2J # c\u007f"
"""


def test_blocks_and_quoted_strings() -> None:
    assert "\n".join(yaml_lines(DATA)) == LINES.strip()


def test_yaml_has_what_json_has(fake: FakeController, corral: Corral) -> None:
    fake.put(job(7))
    told = json.loads(corral("queue", "-o", "json", url=fake.url).stdout)
    shown = corral("queue", "-o", "yaml", url=fake.url)
    assert shown.stdout.splitlines() == ["---", *yaml_lines(told)], shown.stderr
