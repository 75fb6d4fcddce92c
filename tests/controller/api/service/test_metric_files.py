"""docs/metrics.md, the Grafana dashboard and the alert rules name metrics that the controller has.

CORRAL_RENEW_GOLDEN=1 writes docs/metrics.md again: read the difference before you keep it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.api.metrics.families import FAMILIES

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "metrics.md"
BOARD = ROOT / "deploy" / "grafana" / "corral.json"
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
BEGIN, END = (
    "<!-- table: written by tests/controller/api/service/test_metric_files.py -->\n",
    "<!-- end of table -->\n",
)
NAME = re.compile(r"\bcorral_[a-z_]+")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool (Debian package prometheus)"
)


def table() -> str:
    rows = ["", "| metric | kind | labels | samples at most | meaning |", "|---|---|---|---|---|"]
    for each in FAMILIES:
        labels = ", ".join(each.labels)
        rows.append(f"| `{each.name}` | {each.kind} | {labels} | {each.bound} | {each.about} |")
    return "\n".join([*rows, "", ""])


def test_page_has_the_table_of_all_metrics() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    shown, _, after = rest.partition(END)
    if os.environ.get("CORRAL_RENEW_GOLDEN"):
        PAGE.write_text(before + BEGIN + table() + END + after)
        return
    assert shown == table(), "run this test with CORRAL_RENEW_GOLDEN=1, and read the difference"


def expressions() -> Iterator[str]:
    """The PromQL of all panels."""
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_dashboard_and_rules_name_existing_metrics() -> None:
    known = {each.name for each in FAMILIES if each.kind != "histogram"}
    known |= {f"{each.name}_bucket" for each in FAMILIES if each.kind == "histogram"}
    rules = " ".join(line for line in RULES.read_text().splitlines() if "expr:" in line or "/ sum" in line)
    named = set(NAME.findall(" ".join(expressions()) + rules))
    assert len(named) > 20
    assert named <= known


def test_panels_do_not_overlap() -> None:
    panels = json.loads(BOARD.read_text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


@needs_promtool
def test_alert_rules_pass_their_unit_tests() -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", "alerts-test.yml"], cwd=RULES.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_prometheus_parses_each_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": "a:b", "expr": each.replace("$instance", ".*")} for each in expressions()]
    named = [{**rule, "record": f"panel:{number}"} for number, rule in enumerate(rules)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": named}]}))
    done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
