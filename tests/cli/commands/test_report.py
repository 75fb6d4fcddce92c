"""corral report fairness, waste and budget: their tables and sentences."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from cli.commands.reports.budget_table import budget_table
from cli.commands.reports.fairness_tables import fairness_table, waste_sentence, waste_table
from cli.commands.reports.month import efficiency_table, month_notes, month_page, month_table, sla_table
from cli.commands.reports.nodes import nodes_table
from cli.commands.reports.usage import usage_table
from cli.commands.sim import figures_table
from cli.output.formats import Format
from controller.sim.metrics import Figures
from wire.api.service.reports import (
    BudgetView,
    FailureCount,
    FairnessRow,
    GpuHoursByCause,
    ModelUse,
    MonthReport,
    MonthRow,
    NodeOutcomes,
    SlaRow,
    UsageView,
    WasteReport,
)
from wire.names import NodeState


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


def month_report() -> MonthReport:
    uses = (ModelUse("H100", 36_000_000, 10.0, 2.5, 25.0), ModelUse("A100", 3_600_000, 1.0, 1.0, 1.0))
    host = (0, 80.0, 20.0, 0, 640.0)
    rows = (
        MonthRow("vision", 3, 39_600_000, 11.0, 26.0, uses, 75.0, 2.75, 60.0, 7_200.0, 0.0, *host, 2_048),
        MonthRow("a<b", 0, 0, 0.0, 0.0, off_queue_gpu_hours=4.0),
    )
    lost = (GpuHoursByCause("preemption", 1.5, 1.0, "", True),)
    return MonthReport(
        "2026-11", 0.0, 1.0, "user", "EUR", rows, 39_600_000, 11.0, 26.0, 4.0, lost, 0, 80.0, 20.0, 0, 640.0
    )


def test_month_table_notes_and_page() -> None:
    report = month_report()
    heading, vision, other = (" ".join(line.split()) for line in month_table(report).lines(report.rows, None))
    assert heading == (
        "USER JOBS GPU-HOURS MONEY EUR CPU-HOURS CPU USED GIB-HOURS PEAK RAM "
        "LOAD IDLE WAIT P50 WAIT P95 OFF QUEUE BY MODEL"
    )
    assert vision == "vision 3 11.0 26.00 80.0 25 % 640.0 2G 75 % 2.8 1m00s 2h00m 0.0 H100 10.0; A100 1.0"
    assert other == "a<b 0 0.0 0.00 0.0 - 0.0 - - 0.0 - - 4.0"
    assert month_notes(report) == [
        "2026-11: 11.0 GPU-hours, 80.0 CPU-hours, 640.0 GiB-hours of memory, 26.00 EUR",
        "4.0 GPU-hours by processes outside of jobs",
        "1.5 GPU-hours of work were lost in the cluster: preemption",
    ]
    page = month_page(report)
    assert "<td>a&lt;b</td>" in page
    assert page.count("<tr>") == 3


def test_sla_and_efficiency_tables() -> None:
    rows = [
        SlaRow("short", 900.0, 8, 6, 75.0, 60.0, 1_200.0, 2),
        SlaRow("long", 60.0, 0, 0, None, None, None, 0),
    ]
    _, short, long = (" ".join(line.split()) for line in sla_table().lines(rows, None))
    assert short == "short 15m00s 75 % 8 6 1m00s 20m00s 2"
    assert long == "long 1m00s - 0 0 - - 0"
    usage = [UsageView("ada", 4, 20.0, 25.0, 90, 100, 5_000.0, 8.0, 32.0, 64.0)]
    _, ada = (" ".join(line.split()) for line in efficiency_table().lines(usage, None))
    assert ada == "ada 4 20.0 25 % 15.0 32.0 25 % 64.0 5.0"


def test_table_of_nodes() -> None:
    failures = (FailureCount("cuda", 3), FailureCount("exit_nonzero", 1))
    rows = [
        NodeOutcomes("n1", NodeState.UP, 0.0, 40, 4, 0.5, failures, 96.0, 50.0, 71.4, 1.4, "unusual"),
        NodeOutcomes("n2", NodeState.DOWN, 0.0, 0, 0, 0.0, (), 0.0, None, None),
    ]
    heading, first, second = (" ".join(line.split()) for line in nodes_table().lines(rows, None))
    assert heading == "NODE STATE SINCE JOBS FAILED EXPECTED GPU-HOURS HELD LOAD RUN TIME FAILURES"
    assert first.endswith("40 4 0.5 96.0 50% 71% ×1.40 3 cuda, 1 exit_nonzero")
    assert second.endswith("0 0 0.0 0.0 - - -")


def test_usage_has_a_column_of_money_only_where_there_are_prices() -> None:
    rows = [UsageView("ada", 4, 20.0, 25.0, 90, 100, 5_000.0, 8.0, money=1_234.5)]
    heading, ada = usage_table("user", "EUR", money=True).lines(rows, None)
    assert "MONEY EUR" in heading
    assert "1,234.50" in ada
    assert "MONEY" not in next(iter(usage_table("user").lines(rows, None)))
