"""corral report fairness, waste and budget: their tables and sentences."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from cli.commands.reports.budget_table import budget_table
from cli.commands.reports.fairness_tables import fairness_table, waste_sentence, waste_table
from cli.commands.sim import figures_table
from cli.output.formats import Format
from controller.sim.metrics import Figures
from wire.api.reports import BudgetView, FairnessRow, GpuHoursByCause, WasteReport


def test_fairness_table_shows_waits_and_the_job_that_has_waited_longest() -> None:
    rows = [
        FairnessRow("llm", 1234.5, 2000.0, -8.25, 2500.0, 0.0, 0, None, None, 7200.0, "17_3", 7200.0, ""),
        FairnessRow("vision", 20.0, 10.0, 0.1, 20.0, 3.0, 5, 0.0, 60.0, 90.0, "", 0.0, ""),
    ]
    lines = [" ".join(line.split()) for line in fairness_table("project").lines(rows, None)]
    assert lines[0] == "PROJECT GOT ENTITLED POINTS DEMANDED STARTED WAIT P50 P90 MAX WAITS LONGEST"
    assert lines[1] == "llm 1,234.5 2,000.0 -8.2 2,500.0 0 - - 2h00m job 17_3: 2h00m"
    assert lines[2] == "vision 20.0 10.0 +0.1 20.0 5 0s 1m00s 1m30s -"


def test_waste_table_and_its_sentence() -> None:
    idle = (
        GpuHoursByCause("quota or share limit", 30.0, 15.0, "a quota", True),
        GpuHoursByCause("no job waits", 20.0, 10.0, "none", False),
    )
    body = WasteReport(0.0, 1.0, 200.0, 150.0, idle, (GpuHoursByCause("preemption", 5.0, 2.5, "", True),))
    lines = [" ".join(line.split()) for line in waste_table("IDLE").lines(body.idle, None)]
    assert lines[1] == "quota or share limit 30.0 15.0% yes a quota"
    assert lines[2] == "no job waits 20.0 10.0% none"
    assert waste_sentence(body) == (
        "Jobs used 150.0 of 200.0 GPU-hours (75.0 %), 50.0 were idle, of which 30.0 were avoidable. "
        "Work of 5.0 GPU-hours was lost."
    )
    assert waste_sentence(WasteReport(0.0, 1.0, 0.0, 0.0, (), ())) == (
        "No GPU-hours were accounted in this time."
    )


def test_simulation_results_show_idle_gpus_and_rows_out_of_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    figures = Figures(1, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.5, 0.0, 1.0, 1.0, 0, 0.0)
    policy = {"policy": "easy", "order": "fifo", "backfill": "easy", "cluster": "1 node", "cpu_s": 0.0}
    waste = {"idle": [{"percent": 5.0, "cause": "no job waits"}, {"percent": 0.01, "cause": "node down"}]}
    body = {**policy, **asdict(figures), "waste": waste}
    rows = [{"judgement": f"project p{number}: got less"} for number in range(8)]
    figures_table.show(
        Format.TABLE,
        [body | {"project_fairness": {"rows": rows}, "user_fairness": {"rows": [{"judgement": ""}]}}],
        alone=True,
    )
    out = capsys.readouterr().out
    assert "idle GPUs         5.0% no job waits\n" in out
    assert "entitlement       project p0: got less\n" in out
    assert "project p5: got less, and 2 more\n" in out


def test_budget_table_shows_use_and_budget() -> None:
    rows = [
        BudgetView("llm", "2026-11", 80.4, 4020.0, 5000.0, 9000.0, None, "EUR", "stop", 90_000.0),
        BudgetView("vision", "2026-11", 0.0, 0.0, None, 0.0, 250.0, "EUR", "alert", 90_000.0),
        BudgetView("students", "2026-11", 0.4, 0.0002, 0.05, 0.0, None, "EUR", "alert", 90_000.0),
    ]
    lines = [" ".join(line.split()) for line in budget_table(3_600.0).lines(rows, None)]
    assert lines[0] == "PROJECT MONTH USED GPU-HOURS MONEY CURRENCY THEN ENDS IN"
    assert lines[1] == "llm 2026-11 80% 4,020.0/5,000.0 9,000.0 EUR stop 1d00h"
    assert lines[2] == "vision 2026-11 0% 0.0 0.0/250.0 EUR alert 1d00h"
    assert lines[3] == "students 2026-11 0.4% <0.001/0.05 0.0 EUR alert 1d00h"
