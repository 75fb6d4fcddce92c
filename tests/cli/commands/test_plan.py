"""The output of corral plan: the table, the notes and the picture."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from cli.commands.plan import _notes, table
from cli.output.pictures.plan_chart import plan_html, plan_svg
from wire.api.forecasts import CERTAIN, DRAIN, LIMIT, Plan, PlanBlock, PlanEntry, PlanPoint

SVG = "{http://www.w3.org/2000/svg}"
NOW = 1_800_000_000.0


def example() -> Plan:
    entries = (
        PlanEntry(1, "1", "a<b", "ada", "p", "q", 4, ("gpu01",), NOW - 60, NOW + 3_600, CERTAIN),
        PlanEntry(2, "2", "b", "bob", "p", "q", 6, ("gpu01", "gpu02"), NOW + 3_600, None, LIMIT, NOW + 60),
    )
    blocks = (PlanBlock(DRAIN, "gpu03", ("gpu03",), NOW, None, "new fans"),)
    free = (PlanPoint(NOW, 4), PlanPoint(NOW + 3_600, 2))
    return Plan(NOW, 7_200.0, entries, blocks, free, 8, 3, 2, 1)


def test_table_and_notes_name_starts_nodes_and_what_is_missing() -> None:
    _, first, second = (line.split() for line in table().lines(example().entries, None))
    assert first[-1] == "gpu01"
    assert second[-1] == "gpu01,gpu02"
    notes = " | ".join(_notes(example()))
    assert "node gpu03 is drained" in notes
    assert "free GPUs: 4 of 8 now, at least 2" in notes
    assert "2 waiting jobs have no known start" in notes


def test_picture_has_a_bar_for_each_job_on_each_node_and_is_well_formed() -> None:
    drawn = ElementTree.fromstring(plan_svg(example()))
    bars = [each for each in drawn.iter(f"{SVG}rect") if each.get("class") != "block"]
    assert [each.get("class") for each in bars] == ["certain", "limit", "limit"]
    assert [float(each.get("height") or 0) for each in bars] == [35, 26, 26], "4, 3 and 3 GPUs"
    assert bars[0].find(f"{SVG}title").text.startswith("1 a<b (ada)")  # type: ignore[union-attr]
    assert len([each for each in drawn.iter(f"{SVG}rect") if each.get("class") == "block"]) == 1
    page = plan_html(example())
    assert page.startswith("<!doctype html>")
    assert "a&lt;b" in page
    assert "<td>a<b" not in page


def test_bars_have_the_names_of_their_jobs_if_they_are_long_enough() -> None:
    plan = example()
    drawn = ElementTree.fromstring(plan_svg(plan))
    names = [each.text for each in drawn.iter(f"{SVG}text") if (each.get("class") or "").endswith("job")]
    assert names == ["1 a<b", "2 b", "2 b"]
    short = replace(plan, horizon_s=30 * 86_400.0)
    drawn = ElementTree.fromstring(plan_svg(short))
    assert "1 a<b" not in [each.text for each in drawn.iter(f"{SVG}text")]
