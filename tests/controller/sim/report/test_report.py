"""The report page: complete, self-contained, safe for any name, and working in a real browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import defaultdict
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.config import Config
from controller.sim.cluster import nodes_of, pool_of
from controller.sim.generate import WorkloadRequest, generate
from controller.sim.job_results import SimulatedJob
from controller.sim.report import ReportRun, render, write_report
from controller.sim.report.charts.axes import decades, level_ticks, moment_text, since, time_ticks, wait_ticks
from controller.sim.report.gantt import encoding as gantt_module
from controller.sim.report.gantt.bars import bars_of, tracks_of
from controller.sim.report.groups import by_size, by_user, limit_groups, percentiles
from controller.sim.report.number_formats import figure_name, figure_text, number, percent
from controller.sim.report.run import TimeSpan, span_of
from controller.sim.report.series import busy, queued, steps
from controller.sim.run import RunTask, policy_of, simulate
from controller.sim.trace_job import TraceJob
from tests.controller.sim.report.browser import browsing
from tests.controller.sim.report.simulated_jobs import cluster_of, crowd, holding, record, run_of
from tests.examples import examples
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

HOSTILE = "</script><img src=x onerror=\"window.hacked='yes'\">"


class Parsed(HTMLParser):
    """The tags, texts and data of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = defaultdict(str)
        """Texts by the tag around them."""
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "input"):
            self._open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]] += data + "\n"
            if self._open[-1] == "script":
                self.scripts[-1] += data

    def data(self, name: str) -> Any:
        """The content of a data script."""
        ids = [attributes.get("id") for tag, attributes in self.tags if tag == "script"]
        return json.loads(self.scripts[ids.index(name)])


@cache
def simulated() -> ReportRun:
    """A day of generated jobs, run by the engine itself."""
    cluster = nodes_of(4, 8, 64, 512 * 1024, "H100")
    rows = generate(WorkloadRequest(cluster, seed=2, users=12, days=1, load=0.9)).rows
    work = [
        TraceJob(
            number,
            row.submit,
            JobSpec(
                command=("true",),
                gpus=row.gpus,
                nodes=row.nodes,
                cpu_milli=row.cpu * 1_000,
                memory_mib=row.memory,
                time_limit_s=row.estimate,
            ),
            row.duration,
            row.user,
            row.code,
        )
        for number, row in enumerate(rows, 1)
    ]
    simulation, records, _ = simulate(RunTask(policy_of("easy", Config()), cluster, work))
    assert not simulation.refused
    return run_of([*records.by_job.values()], cluster, source="a day")


def unpacked(packed: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Jobs by number, with the GPUs (or parts of them) that the script draws for each."""
    columns = packed["jobs"]
    numbers, starts = [*accumulate(columns["job"])], [*accumulate(columns["start"])]
    tracks = [(node, name) for node, parts in packed["nodes"] for name, _ in parts]
    jobs = [
        {
            "user": packed["users"][columns["user"][at]],
            "start": starts[at] * packed["unit_s"],
            "wait": columns["wait"][at] * packed["unit_s"],
            "run": columns["run"][at] * packed["unit_s"],
            "state": packed["states"][columns["state"][at]],
            "held": [],
        }
        for at in range(len(numbers))
    ]
    whole, part = np.reshape(packed["whole"], (-1, 3)), np.reshape(packed["part"], (-1, 4))
    for at, first, count in whole.tolist():
        jobs[at]["held"] += [(*tracks[place], 1.0) for place in range(first, first + count)]
    for at, place, low, high in part.tolist():
        jobs[at]["held"].append((*tracks[place], (high - low) / 1_000))
    return dict(zip(numbers, jobs, strict=True))


# --- the page ---


def test_report_page_loads_nothing_from_elsewhere() -> None:
    for page in (render([simulated()]), render([simulated(), replace(simulated(), label="again")])):
        parsed = Parsed(page)
        names = {name for _, attributes in parsed.tags for name in attributes}
        assert not names & {"src", "href", "srcset", "action", "data", "poster", "background", "xlink:href"}
        assert not [name for name in names if name.startswith("on")]
        assert {tag for tag, _ in parsed.tags}.isdisjoint(
            {"link", "iframe", "object", "embed", "img", "base"}
        )
        assert "://" not in page
        assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|import\(|WebSocket|sendBeacon", page)


def test_report_page_allows_only_its_own_script() -> None:
    parsed = Parsed(render([simulated()]))
    policy = next(a["content"] for t, a in parsed.tags if t == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    digest = base64.b64encode(hashlib.sha256(parsed.scripts[-1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy


def test_report_page_is_reproducible(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report([simulated()], path)
    first = path.read_bytes()
    write_report([simulated()], path)
    assert path.read_bytes() == first
    assert first.decode().startswith('<!doctype html>\n<html lang="en">')


def test_every_chart_has_a_description() -> None:
    parsed = Parsed(render([simulated()]))
    drawings = [attributes for tag, attributes in parsed.tags if tag == "svg"]
    assert len(drawings) == 6
    assert all(drawing["role"] == "img" and drawing["aria-label"] for drawing in drawings)
    assert sum(tag == "table" for tag, _ in parsed.tags) == 9, "each has a table, and there are three more"
    assert sum(tag == "h1" for tag, _ in parsed.tags) == 1


def test_every_job_is_in_the_chart_with_its_gpus() -> None:
    run = simulated()
    drawn = unpacked(Parsed(render([run])).data("gantt-data")[0])
    names = {
        gpu.uuid: (node, str(gpu.index)) for node, facts in run.cluster.nodes.items() for gpu in facts.gpus
    }
    assert len(drawn) == len(run.records) > 100
    for each in run.records:
        job = drawn[each.number or each.job]
        held: dict[tuple[str, str], float] = defaultdict(float)
        for node, name, part in job["held"]:
            held[node, name] += part
        expected = {names[hold.uuid]: hold.milli / 1_000 for a in each.allocations for hold in a.gpus}
        assert held == pytest.approx(expected, abs=0.002)
        assert job["user"] == each.user
        assert job["start"] == pytest.approx((each.start_s or 0) - span_of([run]).begin_s, abs=1)
        assert job["wait"] == pytest.approx(each.wait_s, abs=1)
        assert job["run"] == pytest.approx(each.run_s, abs=1)
        assert job["state"].split(":")[0] == each.state.value.lower()


def test_curves_match_the_figures() -> None:
    run = simulated()
    charts = Parsed(render([run])).data("time-data")["charts"]
    values = charts["busy"][0]["values"]
    assert np.mean(values) / 100 == pytest.approx(run.figures["utilisation"], abs=0.002)
    waiting = sum(each.wait_s for each in run.records) / span_of([run]).length_s
    assert np.mean(charts["queue"][0]["values"]) == pytest.approx(waiting, abs=0.1)


def test_sentences_match_the_figures() -> None:
    run = simulated()
    text = Parsed(render([run])).texts
    assert f"{len(run.records):,} jobs of {len({each.user for each in run.records})} users" in text["p"]
    assert f": {percent(run.figures['utilisation'])}." in text["p"]
    assert percent(run.figures["utilisation"]) in text["dd"]
    longest = max(run.records, key=lambda each: each.wait_s)
    assert f"(job {longest.number or longest.job} of {longest.user})" in text["p"]
    for key, value in run.figures.items():
        assert figure_name(key) in text["th"]
        assert figure_text(key, value) in text["td"]


def test_report_compares_several_runs() -> None:
    cluster = cluster_of()
    quick, slow = crowd(400, cluster), crowd(400, cluster, mean_s=900)
    page = render([run_of(slow, cluster, "fcfs"), run_of(quick, cluster, "easy")])
    text = Parsed(page).texts
    assert "fcfs and easy on jobs.csv" in text["h1"]
    assert re.search(r"Jobs waited \S+ on average with easy and \S+ with fcfs: \d+ % less", text["p"])
    assert figure_text("mean_wait_s", run_of(quick, cluster).figures["mean_wait_s"]) in text["b"].split("\n")
    assert [packed["label"] for packed in Parsed(page).data("gantt-data")] == ["fcfs", "easy"]
    assert text["li"].count("fcfs") == text["li"].count("easy") == 6, "a legend at every chart"


def test_report_shows_any_figure() -> None:
    cluster = cluster_of()
    run = ReportRun("mine", cluster, crowd(20, cluster), {"of_my_own": 1234.5, "mean_wait_s": 90.0})
    text = Parsed(render([run])).texts
    assert "Of my own" in text["th"]
    assert "1,234" in text["td"]
    assert "1m30s" in text["td"]


def test_hostile_name_is_escaped_text() -> None:
    cluster = cluster_of()
    records = crowd(60, cluster, [HOSTILE, "ada\x1b[31m\u202e", "'\"&<b>"])
    for each in records:
        each.project = HOSTILE
    bare = Parsed(render([run_of(crowd(60, cluster, ["a", "b", "c"]), cluster)]))
    page = render([run_of(records, cluster, HOSTILE, HOSTILE)])
    parsed = Parsed(page)
    assert [tag for tag, _ in parsed.tags] == [tag for tag, _ in bare.tags], "no element more"
    assert HOSTILE in parsed.texts["h1"]
    assert HOSTILE in parsed.data("gantt-data")[0]["users"]
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_report_needs_less_than_170_bytes_for_each_job() -> None:
    """The report of 30,000 jobs is therefore smaller than 5 MB."""
    cluster = cluster_of(100, 8)
    run = run_of(crowd(6_000, cluster, [f"user{n}" for n in range(50)], mean_s=18_000), cluster)
    page = render([run])
    assert len(page.encode()) < 6_000 * 170
    assert len(unpacked(Parsed(page).data("gantt-data")[0])) == 6_000
    assert "smallest of" not in page


def test_omitted_bars_are_counted_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of()
    records = crowd(500, cluster)
    monkeypatch.setattr("controller.sim.report.page.MOST", 100)
    page = render([run_of(records, cluster)])
    bars = len(bars_of(run_of(records, cluster)))
    found = re.search(r"The (\S+) smallest of (\S+) bars are not drawn, with (\d+) % of the time;", page)
    assert found is not None
    assert [found[1], found[2]] == [f"{bars - 100:,}", f"{bars:,}"]
    drawn = unpacked(Parsed(page).data("gantt-data")[0])
    held = sum(len(job["held"]) * job["run"] for job in drawn.values())
    whole = sum(each.gpus * each.run_s for each in records)
    assert held / whole == pytest.approx(1 - int(found[3]) / 100, abs=0.01)


def test_report_without_started_jobs() -> None:
    cluster = cluster_of()
    assert "0 jobs" in render([ReportRun("empty", cluster, [], {})])
    waiting = [
        record(1, 0.0, None, None, state=JobState.QUEUED),
        record(2, 5.0, None, 50.0, state=JobState.CANCELLED),
    ]
    assert "2 jobs never started." in render([ReportRun("stuck", cluster, waiting, {})])
    render([ReportRun("empty", cluster, [], {}), ReportRun("stuck", cluster, waiting, {})])


def test_lost_attempts_are_counted_on_the_page() -> None:
    cluster = cluster_of()
    each = record(1, 0.0, 100.0, 200.0, holding(cluster, [0]))
    each.requeues, each.attempts, each.lost_gpu_s = 2, 3, 7_200.0
    each.reason = Reason.NODE_LOST
    page = render([run_of([each], cluster)])
    assert "2 attempts ended early" in page
    assert "2 GPU-hours" in page
    assert Parsed(page).data("gantt-data")[0]["jobs"]["attempts"] == [3]


# --- parts of the page ---


PARTS = st.lists(
    st.tuples(st.integers(0, 900), st.integers(1, 300), st.floats(0.125, 8, width=32)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=examples(75))
@given(PARTS)
def test_averages_over_time_are_exact(parts: list[tuple[int, int, float]]) -> None:
    """The averages are compared with sums over every second."""
    seconds = np.zeros(1_200)
    for begin, length, level in parts:
        seconds[begin : begin + length] += level
    means = steps((begin, begin + length, level) for begin, length, level in parts).means(
        TimeSpan(0, 1_200), 30
    )
    assert means == pytest.approx(seconds.reshape(30, 40).mean(axis=1), abs=1e-6)
    peak, _ = steps((begin, begin + length, level) for begin, length, level in parts).peak()
    assert peak == pytest.approx(seconds.max(), abs=1e-6)


SHARES = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 20), st.sampled_from([100, 250, 500, 1_000])), max_size=40
)


@settings(max_examples=examples(75))
@given(SHARES)
def test_bars_never_overlap(asked: list[tuple[int, int, int]]) -> None:
    """Jobs that share a GPU; jobs that do not fit are left out, so that every job has room."""
    cluster = cluster_of(1, 1)
    records: list[SimulatedJob] = []
    for job, (start, length, milli) in enumerate(sorted(asked), 1):
        held = [each for each in records if each.end_s is not None and each.end_s > start]
        if sum(each.gpus for each in held) * 1_000 + milli <= 1_000:
            records.append(record(job, 0.0, start, start + length, holding(cluster, [0], milli)))
    bars = bars_of(ReportRun("shares", cluster, records, {}))
    assert sum(bar.high - bar.low for bar in bars) == pytest.approx(sum(each.gpus for each in records))
    for at, one in enumerate(bars):
        for other in bars[:at]:
            together = (one.record.start_s or 0) < (other.record.end_s or 0)
            assert not together or one.low >= other.high - 1e-9 or other.low >= one.high - 1e-9


def test_neighbouring_gpus_are_one_bar_but_never_across_nodes() -> None:
    cluster = cluster_of(2, 4)
    job = record(1, 0.0, 0.0, 10.0, holding(cluster, [0, 1, 3, 4, 5]))
    bars = bars_of(ReportRun("one", cluster, [job], {}))
    assert [(bar.first, bar.count) for bar in bars] == [(0, 2), (3, 1), (4, 2)]


def test_report_measures_processors_when_no_job_asks_for_gpus() -> None:
    cluster = nodes_of(1, 8, 16, 65_536, "H100")
    work = [TraceJob(1, 0.0, cluster.spec(4, 100.0), 100.0, "ada")]
    _, records, _ = simulate(RunTask(policy_of("easy", Config()), cluster, work))
    run = run_of([*records.by_job.values()], cluster)
    assert (run.unit, run.capacity, run.utilisation) == ("processor", 16, 0.25)
    assert run.utilisation == run.figures["utilisation"]
    assert [(bar.low, bar.high) for bar in bars_of(run)] == [(0, 0.25)]
    render([run])


def test_pool_chart_is_filled_processor_by_processor() -> None:
    pool = pool_of(64)
    work = [TraceJob(number, 0.0, pool.spec(16, 100.0), 100.0, "ada") for number in range(1, 7)]
    _, records, _ = simulate(RunTask(policy_of("easy", Config()), pool, work))
    run = ReportRun("easy", pool, [*records.by_job.values()], {})
    assert run.unit == "processor"
    assert run.capacity == 64
    assert [(bar.low, bar.high) for bar in bars_of(run)[:4]] == [
        (0, 0.25),
        (0.25, 0.5),
        (0.5, 0.75),
        (0.75, 1),
    ]
    assert [track.height for track in tracks_of(run)] == [64]
    assert busy(run).peak()[0] == 64
    assert queued(run).peak()[0] == 2
    assert [group.name for group in by_size(run)] == ["9–16 processors"]
    render([run])


def test_size_groups_end_at_powers_of_two() -> None:
    cluster = cluster_of(4, 8)
    sizes = [1, 1, 2, 3, 4, 5, 8, 9, 16]
    records = [record(job, 0.0, 1.0, 2.0, holding(cluster, range(size))) for job, size in enumerate(sizes, 1)]
    records += [record(20, 0.0, 1.0, 2.0, holding(cluster, [0], 250)), record(21, 0.0, 1.0, 2.0)]
    groups = by_size(ReportRun("sizes", cluster, records, {}))
    assert [(group.name, len(group.records)) for group in groups] == [
        *(("no GPU", 1), ("part of a GPU", 1), ("1 GPU", 2), ("2 GPUs", 1)),
        *(("3–4 GPUs", 2), ("5–8 GPUs", 2), ("9–16 GPUs", 2)),
    ]


def test_groups_beyond_the_limit_are_merged_as_others() -> None:
    cluster = cluster_of()
    groups = by_user(run_of(crowd(300, cluster, [f"u{n}" for n in range(9)]), cluster))
    assert [group.used_s for group in groups] == sorted((group.used_s for group in groups), reverse=True)
    few = limit_groups(groups, 4)
    assert [group.name for group in few] == [*(group.name for group in groups[:3]), "6 others"]
    assert sum(group.waits.count for group in few) == 300


def test_spread_is_by_nearest_rank() -> None:
    found = percentiles(range(1, 101))
    assert found.quantiles == (5, 25, 50, 75, 95)
    assert (found.mean, found.most, found.count) == (50.5, 100, 100)
    assert percentiles([]).median == 0


@given(st.floats(1, 1e11), st.integers(2, 12))
def test_every_axis_has_labels(length: float, most: int) -> None:
    ticks = time_ticks(TimeSpan(100.0, 100.0 + length), most)
    assert 1 <= len(ticks) <= most
    assert len(time_ticks(TimeSpan(100.0, 100.0 + length))) >= 2 or length < 5
    assert len({label for _, label in ticks}) == len(ticks)
    assert wait_ticks(length)[0] == (0.0, "0")
    assert level_ticks(length)[-1] >= length * 0.999
    assert decades(length)[-1][0] >= length * 0.999


def test_numbers_and_durations_in_words() -> None:
    assert [since(each) for each in (0, 65, 3_600, 86_400, 90_000)] == [
        "00:00",
        "00:01:05",
        "01:00",
        "1 d",
        "1 d 01:00",
    ]
    assert moment_text(93_784, TimeSpan(0, 1e6)) == "1 d 02:03"
    assert [percent(each) for each in (0, 0.004, 0.5, 0.996, 1)] == [
        "0 %",
        "0.4 %",
        "50 %",
        "99.6 %",
        "100 %",
    ]
    assert [number(each) for each in (3, 3.14159, 123.456, 12_345.6)] == ["3", "3.14", "123.5", "12,346"]
    assert gantt_module.MOST >= 100_000


# --- in a browser ---


async def test_browser_shows_the_report_without_errors(tmp_path: Path) -> None:
    cluster = cluster_of(2, 4)
    records = [
        record(7, 0.0, 100.0, 900.0, holding(cluster, range(8)), user=HOSTILE),
        record(8, 0.0, 900.0, 1_000.0, holding(cluster, [0])),
    ]
    path = tmp_path / "report.html"
    write_report([run_of(records, cluster, HOSTILE)], path)
    async with browsing(tmp_path / "profile") as page:
        await page.open(path)
        assert await page.ask("document.documentElement.dataset.ready") == "yes"
        assert await page.ask("[...document.querySelectorAll('.legend li')].map((li) => li.textContent)") == [
            HOSTILE,
            "ada",
        ]
        await page.ask("document.querySelector('canvas').scrollIntoView()")
        await page.frame()
        box = "document.querySelector('canvas').getBoundingClientRect()"
        left, top, width, height = [await page.ask(f"{box}.{side}") for side in ("x", "y", "width", "height")]
        # In the middle of everything is the large job, behind the small one nothing.
        await page.point(left + width / 2, top + height / 2)
        assert (await page.ask("document.querySelector('.card').textContent")).startswith(
            f"Job 7 of {HOSTILE}8 GPUs"
        )
        assert await page.ask("document.querySelector('.card').hidden") is False
        await page.point(left + width - 5, top + height - 5)
        assert await page.ask("document.querySelector('.card').hidden") is True
        await page.ask("document.querySelector('canvas').focus()")
        before = await page.ask("view.length")
        await page.call("Input.dispatchKeyEvent", type="keyDown", key="+", text="+")
        assert await page.ask("view.length") == pytest.approx(before / 2)
        assert await page.ask("window.hacked === undefined && document.images.length === 0")
        requests = [event for event in page.events if event == "Network.requestWillBeSent"]
        assert page.complaints == []
        assert len(requests) == 1, "the file itself"
