"""Formats, times, units and states as Slurm writes them. The expected texts were printed by Slurm 22.05."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from cli.slurm.formats.output_formats import named_format, percent_format
from cli.slurm.formats.resources import gpu_type, gres, rounded_memory, short_memory, tres_text
from cli.slurm.formats.states import COMPACT, job_reason, job_state, node_state, read_states
from cli.slurm.formats.times import long_span, moment, read_moment, span
from cli.slurm.show.jobs import grouped
from cli.slurm.show.squeue_fields import FIELDS
from wire.cluster.hostlist import expand_hostlist, fold_hostlist
from wire.names import JobState, Reason

NOW = 1_900_000_000.0
JOB: dict[str, Any] = {
    "qos": "normal",
    "id": 9,
    "label": "9",
    "array": None,
    "index": None,
    "array_text": "",
    "name": "alpha",
    "state": "RUNNING",
    "reason": "",
    "stopping": False,
    "hold": "",
    "hopeless": False,
    "signal": None,
    "queue": "gpu",
    "started_at": NOW - 184_000,
    "ended_at": None,
    "limit_s": None,
    "now": NOW,
}


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("SLURM_TIME_FORMAT", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%i|%j", "9|alpha"),
        ("%.6i|%6j|%.3j", "     9|alpha |alp"),
        ("%2t%10j.", "R alpha     ."),
        ("%i^^^%T", "9^^^RUNNING"),
        ('"%i","%t"', '"9","R"'),
        ("%i<><> %t", "9<><> R"),
        ("%%i|%%T", "9|RUNNING"),
        (r"x%iy\n", r"x9y\n"),
        ("%M %P", "2-03:06:40 gpu"),
    ],
)
def test_percent_formats(text: str, line: str) -> None:
    assert percent_format(text, FIELDS).line(JOB) == line


def test_unknown_letters_are_reported_and_printed() -> None:
    form = percent_format("%q %!x", FIELDS)
    assert (form.line(JOB), form.unknown) == ("normal %!x", ("!",))


def test_named_formats() -> None:
    form = named_format("jobarrayid:6,StateCompact:.4,name:3", FIELDS)
    assert (form.header(), form.line(JOB)) == ("JOBID   STNAM", "9        Ralp")
    assert named_format("State", FIELDS).line(JOB) == "RUNNING             "
    assert named_format("State,nope", FIELDS).unknown == ("nope",)


def test_waiting_elements_share_a_line() -> None:
    def element(index: int, **more: Any) -> dict[str, Any]:
        ids = {"id": 20 + index, "array": 20, "index": index, "label": f"20_{index}", "array_text": "0-9%2"}
        return {**JOB, **ids, "state": "QUEUED", "started_at": None, **more}

    rows = [
        element(1, state="RUNNING"),
        element(8, state="CANCELLED"),
        element(3),
        element(4),
        element(7),
        element(9, hold="user"),
        JOB,
    ]
    assert [row["label"] for row in grouped(rows)] == ["20_1", "20_[8%2]", "20_[3-4,7%2]", "20_[9%2]", "9"]
    assert rows[2]["label"] == "20_3"


@pytest.mark.parametrize(
    ("seconds", "short", "long"),
    [
        (3, "0:03", "00:00:03"),
        (600, "10:00", "00:10:00"),
        (7_200, "2:00:00", "02:00:00"),
        (93_840, "1-02:04:00", "1-02:04:00"),
    ],
)
def test_durations(seconds: float, short: str, long: str) -> None:
    assert (span(seconds), long_span(seconds)) == (short, long)


def test_times_follow_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert moment(NOW, "N/A") == "2030-03-17T17:46:40"
    assert moment(None, "N/A") == "N/A"
    for form, text in (("standard", "2030-03-17T17:46:40"), ("%s", "1900000000"), ("%H:%M", "17:46")):
        monkeypatch.setenv("SLURM_TIME_FORMAT", form)
        assert moment(NOW, "") == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("now", NOW),
        ("now-2hours", NOW - 7_200),
        ("now-30", NOW - 30),
        ("2030-03-17", NOW - 64_000),
        ("2030-03-17T01:00", NOW - 60_400),
        ("1970-01-01-00:00:01", 1),
        ("03/17/30-01:00:00", NOW - 60_400),
        ("031730", NOW - 64_000),
        ("01:00", NOW - 60_400),
        ("today", NOW - 64_000),
    ],
)
def test_times_of_starttime(text: str, seconds: float) -> None:
    assert read_moment(text, NOW) == seconds


def test_wrong_times_are_refused() -> None:
    for text in ("soon", "2030-13-01", "25:99", "now-x"):
        with pytest.raises(ValueError, match=r"soon|13|99|x"):
            read_moment(text, NOW)


@pytest.mark.parametrize(
    "text", ["n1", "n[1-2]", "n[1-3,5]", "gpu[01-02,10]", "login,n[8-11]", "r1n[1-2],r2n1", "n[1-2].lab"]
)
def test_host_lists_are_read_again(text: str) -> None:
    assert fold_hostlist(expand_hostlist(text)) == text


def test_units() -> None:
    assert [short_memory(mib) for mib in (500, 1_024, 1_536, 4_096, 1 << 20)] == [
        *("500M", "1G", "1536M", "4G", "1T")
    ]
    assert [rounded_memory(mib) for mib in (500, 1_536, 4_096)] == ["500M", "1.50G", "4G"]
    assert [rounded_memory(1_536, unit) for unit in "KMG"] == ["1572864K", "1536M", "1.50G"]


def test_gpus() -> None:
    assert [gpu_type(text) for text in ("NVIDIA A100-SXM4-80GB", "a100", "Tesla V100-PCIE-16GB", "H200")] == [
        *("a100", "a100", "v100", "h200")
    ]
    assert gpu_type("NVIDIA GeForce RTX 4090") == "rtx4090"
    assert [gres(2, 1, "A100"), gres(8, 2, ""), gres(0.25, 1, ""), gres(0, 1, "")] == [
        *("gpu:a100:2", "gpu:4", "mps:25", "")
    ]
    assert tres_text(2, 500, 1, 2, by_name=True) == "billing=2,cpu=2,gres/gpu=2,mem=500M,node=1"
    assert tres_text(2, 500, 1, 2, by_name=False) == "cpu=2,mem=500M,node=1,billing=2,gres/gpu=2"


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("reason", list(Reason))
def test_each_state_and_reason_has_words_of_slurm(state: JobState, reason: Reason) -> None:
    job = {**JOB, "state": state.value, "reason": reason.value}
    assert job_state(job) in COMPACT
    assert job_reason(job)


@pytest.mark.parametrize(
    ("job", "state", "reason"),
    [
        ({"state": "QUEUED", "hold": "user"}, "PENDING", "JobHeldUser"),
        ({"state": "QUEUED", "hold": "operator"}, "PENDING", "JobHeldAdmin"),
        ({"state": "QUEUED", "reason": "dependency"}, "PENDING", "Dependency"),
        (
            {"state": "QUEUED", "reason": "dependency", "hopeless": True},
            "PENDING",
            "DependencyNeverSatisfied",
        ),
        ({"state": "RUNNING", "stopping": True}, "COMPLETING", "None"),
        ({"state": "FAILED", "reason": "time_limit"}, "TIMEOUT", "TimeLimit"),
        ({"state": "FAILED", "reason": "signal", "signal": 9}, "FAILED", "RaisedSignal:9"),
        ({"state": "COMPLETED", "reason": ""}, "COMPLETED", "None"),
    ],
)
def test_states_and_reasons(job: dict[str, Any], state: str, reason: str) -> None:
    row = {**JOB, **job}
    assert (job_state(row), job_reason(row)) == (state, reason)


def test_lists_of_states() -> None:
    assert sorted(read_states("pd,R,out_of_memory") or ()) == ["OUT_OF_MEMORY", "PENDING", "RUNNING"]
    assert read_states("all") is None
    with pytest.raises(KeyError):
        read_states("PD,XX")


def test_states_of_nodes() -> None:
    node = {"state": "up", "cpu_milli": 4_000, "cpu_free_milli": 4_000, "jobs": [], "drain": None}
    busy = {**node, "cpu_free_milli": 3_500, "jobs": [7]}
    assert [node_state(node), node_state(busy), node_state({**busy, "cpu_free_milli": 0})] == [
        *("idle", "mixed", "allocated")
    ]
    assert [node_state({**each, "state": "drained"}) for each in (node, busy)] == ["drained", "draining"]
    assert [node_state({**node, "state": state}) for state in ("down", "suspect")] == ["down*", "idle*"]
