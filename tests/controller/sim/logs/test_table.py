"""Logs of GPU jobs as CSV and JSON lines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.config import Config
from controller.core.input_handlers.resource_sizes import FIXED_SIZES
from controller.sim.cluster import pool_of
from controller.sim.logs.gpu_job_table import COLUMNS
from controller.sim.logs.job_log import JobLog, read_log
from controller.sim.logs.log_file import LogFormat, LogRefused
from controller.sim.logs.swf import SwfOptions
from controller.sim.run import RunTask, policy_of, run
from wire.job.spec import JobSpec

Put = Callable[[str], Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def writing(text: str) -> Path:
        path = tmp_path / "jobs"
        path.write_text(text)
        return path

    return writing


def specs(log: JobLog) -> list[JobSpec]:
    return [each.spec for each in log.table]


FULL = {
    "submit": "5",
    "duration": "90.5",
    "estimate": "3600",
    "user": "ada",
    "gpus": "8",
    "nodes": "2",
    "cpu": "12.5",
    "memory": "64G",
    "model": "H100|A100",
    "name": "llama",
    "project": "nlp",
    "queue": "night",
    "profile": "training",
    "priority": "75",
    "saves": "yes",
    "preemptible": "no",
    "begin": "3600",
    "deadline": "+1d",
    "checkpoint_every": "30m",
    "code": "1",
    "job": "4711",
}


@pytest.mark.parametrize("form", [LogFormat.CSV, LogFormat.JSON])
def test_every_column_of_a_table_is_read(put: Put, form: LogFormat) -> None:
    text = (
        f"{','.join(FULL)}\n{','.join(FULL.values())}\n" if form is LogFormat.CSV else json.dumps(FULL) + "\n"
    )
    log = read_log(put(text))
    (work,) = log.table
    assert log.form is form
    assert (work.number, work.submit_s, work.runtime_s, work.user, work.code) == (4711, 5.0, 90.5, "ada", 1)
    assert work.spec == JobSpec(
        ("true",),
        grace_s=0.0,
        name="llama",
        project="nlp",
        queue="night",
        profile="training",
        priority=75,
        cpu_milli=12_500,
        memory_mib=64 * 1024,
        gpus=8,
        gpu_models=("A100", "H100"),
        nodes=2,
        time_limit_s=3600,
        checkpoint_signal="USR1",
        preemptible=False,
        begin_at=3600,
        deadline_at=5 + 86_400,
    )
    assert work.checkpoint_every_s == 1_800
    assert set(FULL) == set(COLUMNS)


@pytest.mark.parametrize(
    "text",
    [
        "submit,duration\n0,10\n5,20\n",
        "\ufeffSubmit, Duration\r\n0,10\r\n\r\n5,20\r\n",
        'duration,user,submit,gpus\n"10",,0,\n20, ,5,\n',
        '{"submit": 0, "duration": 10}\n\n{"submit": 5.0, "duration": 20, "user": null, "gpus": ""}\n',
    ],
)
def test_optional_columns_may_be_empty(put: Put, text: str) -> None:
    log = read_log(put(text))
    assert [(work.number, work.submit_s, work.runtime_s) for work in log.table] == [(1, 0, 10), (2, 5, 20)]
    assert specs(log) == [JobSpec(("true",), grace_s=0.0, **FIXED_SIZES)] * 2
    assert {work.user for work in log.table} == {"nobody"}


def test_json_numbers_and_lists_are_read(put: Put) -> None:
    row = {"submit": 1, "duration": 2e3, "gpus": 0.25, "memory": 2048, "cpu": 4, "model": ["H100", "A100"]}
    log = read_log(put(json.dumps(row)))
    assert specs(log) == [
        JobSpec(
            ("true",), grace_s=0.0, gpus=0.25, memory_mib=2048, cpu_milli=4_000, gpu_models=("A100", "H100")
        )
    ]
    assert log.table[0].runtime_s == 2_000


def test_quotation_marks_and_unknown_columns(put: Put) -> None:
    log = read_log(put('submit,duration,name,colour\n0,10,"a, ""b""",red\n'))
    assert specs(log)[0].name == 'a, "b"'
    assert log.unread == ["colour"]


def test_unknown_keys_of_json_are_named(put: Put) -> None:
    assert read_log(put('{"submit":0,"duration":1,"colour":{"deep":1}}')).unread == ["colour"]


@pytest.mark.parametrize(
    ("heading", "messages"),
    [
        ("submit,duration,gpu", ["gpu (is gpus meant?)"]),
        ("submit,duration,gpu,gpus", ["gpu"]),
        ("submit,duration,memory_mib,colour", ["colour", "memory_mib (is memory meant?)"]),
    ],
)
def test_unknown_column_is_reported_with_the_nearest_name(
    put: Put, heading: str, messages: list[str]
) -> None:
    cells = ",".join("1" for _ in heading.split(","))
    assert read_log(put(f"{heading}\n{cells}\n")).unread == messages


def test_pool_counts_cores_and_ignores_memory(put: Put) -> None:
    log = read_log(put("submit,duration,cpu,memory\n0,10,4,64G\n0,10,0.5,\n"))
    work, _ = log.work(pool_of(4), SwfOptions())
    outcome = run(RunTask(policy_of("fcfs", Config()), pool_of(4), work))
    assert [row.start for row in outcome.rows] == [0, 10]
    with pytest.raises(LogRefused, match="is only for SWF logs"):
        log.work(pool_of(100_000), SwfOptions())


def test_gzip(put: Put, tmp_path: Path) -> None:
    path = tmp_path / "packed"
    path.write_bytes(gzip.compress(b"submit,duration\n0,10\n"))
    assert len(read_log(path).table) == 1


BROKEN = [
    ("5,", "duration is missing"),
    ("5", "has 1 column, the heading has 2"),
    ("5,6,7", "has 3 columns, the heading has 2"),
    ("-5,6", "submit: '-5' is not a number"),
    ("5,soon", "duration: 'soon' is not a number"),
    ("5,nan", "duration: 'nan' is not a number"),
    ('5,"6', "is not CSV"),
]


@pytest.mark.parametrize(("row", "why"), BROKEN)
def test_a_broken_row_is_named_with_its_line(put: Put, row: str, why: str) -> None:
    path = put(f"submit,duration\n0,10\n{row}\n1,10\n")
    with pytest.raises(LogRefused) as refused:
        read_log(path)
    assert str(refused.value).startswith(f"{path}: line 3: ")
    assert why in str(refused.value)
    log = read_log(path, skip_bad=True)
    assert [number for number, _ in log.bad] == [3]
    assert [work.submit_s for work in log.table] == [0, 1]


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("estimate", "0", "estimate: must be positive"),
        ("estimate", "1e12", "estimate: must be positive and at most ten years"),
        ("gpus", "1.5", "gpus: must be a whole number, or a share"),
        ("gpus", "-1", "gpus: '-1' is not a number"),
        ("nodes", "0", "nodes: must be between"),
        ("nodes", "1.5", "nodes: '1.5' is not a whole number"),
        ("cpu", "0", "cpu: '0' is less than a thousandth of a core"),
        ("memory", "16.5", "memory: '16.5' is not a whole number"),
        ("priority", "urgent", "priority: 'urgent' is not a number"),
        ("memory", "64X", "memory: '64X' is not an amount of memory"),
        ("memory", "0", "memory: must be positive"),
        ("priority", "101", "priority: must lie between 0 and 100"),
        ("preemptible", "maybe", "preemptible: 'maybe' is neither yes nor no"),
        ("begin", "18:30", "begin: '18:30' is neither a number of seconds"),
        ("deadline", "0", "deadline: must be a moment"),
        ("checkpoint_every", "0", "checkpoint_every: '0' is less than one second"),
        ("code", "x", "code: 'x' is not a number"),
        ("job", "1.5", "job: '1.5' is not a whole number"),
    ],
)
def test_invalid_job_in_a_table_is_refused_by_column(put: Put, column: str, value: str, why: str) -> None:
    # The same row twice: an error is found both times.
    path = put(f"submit,duration,{column}\n0,10,{value}\n0,10,{value}\n")
    with pytest.raises(LogRefused, match=f"line 2: {why}"):
        read_log(path)
    with pytest.raises(LogRefused, match="there are no jobs in it"):
        read_log(path, skip_bad=True)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ('{"submit": 0}', "duration is missing"),
        ('{"submit": 0, "duration": true}', "duration is true"),
        ('{"submit": [0], "duration": 1}', r"submit is \[0\]"),
        ('{"submit": 0, "duration": NaN}', "duration: 'nan' is not a number"),
        ('{"submit": 0', "is not a JSON object"),
        ('{"submit": 0}}', "Extra data at column 14"),
        ("[1, 2]", "is not a JSON object .*a list; write one object per line"),
        ("[" * 100_000, "is not a JSON object"),
    ],
)
def test_a_broken_object_is_named_with_its_line(put: Put, row: str, why: str) -> None:
    path = put(f'{{"submit": 0, "duration": 1}}\n{row}\n')
    with pytest.raises(LogRefused, match=f"line 2: .*{why}"):
        read_log(path)


@pytest.mark.parametrize(
    ("heading", "why"),
    [
        ("submit,runtime", "there is no column 'duration' among submit, runtime"),
        ("duration,user", "there is no column 'submit'"),
        ("submit,duration,submit", "the column 'submit' occurs twice"),
    ],
)
def test_the_heading_must_name_the_columns(put: Put, heading: str, why: str) -> None:
    with pytest.raises(LogRefused, match=f"line 1: {why}") as refused:
        read_log(put(f"{heading}\n0,1\n"), skip_bad=True)
    assert "The first line names the columns" in refused.value.hint


@pytest.mark.parametrize("mark", [";", "\t"])
def test_wrong_separator_is_refused_with_a_hint(put: Put, mark: str) -> None:
    with pytest.raises(LogRefused, match="there is no column 'submit'") as refused:
        read_log(put(f"submit{mark}duration\n0{mark}1\n"))
    assert refused.value.hint.startswith("Columns are separated by commas.")


def test_json_array_file_is_refused(put: Put) -> None:
    with pytest.raises(LogRefused, match=r"line 1: is not a JSON object .*one object per line"):
        read_log(put('[{"submit": 0, "duration": 1}]'))


def test_tables_with_decimal_points_and_priority_names_are_read(put: Put) -> None:
    log = read_log(put("submit,duration,gpus,nodes,memory,priority\n0.0,1.0,2.0,1.0,16384.0,High\n"))
    assert specs(log) == [
        JobSpec(("true",), grace_s=0.0, gpus=2, nodes=1, priority=75, cpu_milli=1_000, memory_mib=16_384)
    ]
