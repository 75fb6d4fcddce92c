"""The Standard Workload Format: the meaning of its 18 fields, and invalid lines."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.sim.cluster import nodes_of, pool_of
from controller.sim.logs.job_log import JobLog, read_log
from controller.sim.logs.log_file import LogRefused
from controller.sim.logs.swf import LONGEST_S, SwfFilter, SwfJob, SwfOptions, ZeroRuns, select_jobs
from tests.controller.sim.logs.swf_lines import line
from wire.job.spec import spec_problems

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def writing(*lines: str, end: str = "\n", header: Iterable[str] = ("; MaxProcs: 8",)) -> Path:
        path = tmp_path / "log.swf"
        path.write_bytes((end.join([*header, *lines]) + end).encode())
        return path

    return writing


def chosen(
    log: JobLog, width: int = 8, reading: SwfOptions | None = None
) -> tuple[list[SwfJob], Counter[str]]:
    dropped: Counter[str] = Counter()
    return list(select_jobs(log.lines, width, reading or SwfOptions(), dropped)), dropped


def only(log: JobLog, reading: SwfOptions | None = None) -> SwfJob:
    (job,), dropped = chosen(log, reading=reading)
    assert not dropped
    return job


# --- the meaning of a line ---


def test_run_time_is_cut_at_the_estimate_and_size_is_the_requested_one(write: Write) -> None:
    log = read_log(write(line(7, submit=5, run=100, allocated=2, requested=4, estimate=60, user=3)))
    assert only(log) == SwfJob(number=7, submit_s=5, run_s=60, size=4, estimate_s=60, user=3)


@pytest.mark.parametrize(
    ("given_line", "run", "size", "estimate"),
    [
        (line(1, run=100, allocated=2, requested=-1, estimate=60), 60, 2, 60),
        (line(1, run=100, allocated=2, requested=0, estimate=60), 60, 2, 60),
        (line(1, run=100, allocated=-1, requested=3, estimate=60), 60, 3, 60),
        (line(1, run=100, estimate=-1), 100, 1, 100),
        (line(1, run=100, estimate=0), 100, 1, 100),
        (line(1, run=50.5, estimate=60), 50.5, 1, 60),
        (line(1, run=50, estimate="60.0"), 50, 1, 60),  # type: ignore[arg-type]
    ],
)
def test_unknown_swf_fields_are_taken_from_their_counterparts(
    write: Write, given_line: str, run: float, size: int, estimate: float
) -> None:
    job = only(read_log(write(given_line)))
    assert (job.run_s, job.size, job.estimate_s) == (run, size, estimate)


@pytest.mark.parametrize(
    ("given_line", "why"),
    [
        (line(1, submit=-1), "unknown submit time"),
        (line(1, run=-1), "unknown run time"),
        (line(1, allocated=-1), "unknown size"),
        (line(1, allocated=0), "unknown size"),
        (line(1, run=0), "run time 0"),
        (line(1, allocated=9), "too large for the machine"),
        (line(1, allocated=1, requested=9), "too large for the machine"),
    ],
)
def test_unusable_swf_jobs_are_dropped_and_counted(write: Write, given_line: str, why: str) -> None:
    jobs, dropped = chosen(read_log(write(given_line, line(2), given_line)))
    assert [job.number for job in jobs] == [2]
    assert dropped == {why: 2}


@pytest.mark.parametrize(
    ("how", "run", "estimate"), [(ZeroRuns.KEEP, 0, 60), (ZeroRuns.SECOND, 1, 1), (ZeroRuns.DROP, None, None)]
)
def test_zero_run_times_are_read_as_configured(
    write: Write, how: ZeroRuns, run: float | None, estimate: float | None
) -> None:
    jobs, _ = chosen(read_log(write(line(1, run=0, estimate=60))), reading=SwfOptions(zero_runs=how))
    assert [(job.run_s, job.estimate_s) for job in jobs] == ([] if run is None else [(run, estimate)])


def test_unlimited_estimate_becomes_the_longest_limit(write: Write) -> None:
    log = read_log(write(line(1, run=50, estimate=10**10)))
    (work,), _ = log.work(pool_of(8), SwfOptions())
    assert work.spec.time_limit_s == LONGEST_S
    assert not spec_problems(work.spec)
    assert spec_problems(replace(work.spec, time_limit_s=LONGEST_S + 1))


def test_kept_job_without_run_time_and_estimate_gets_an_estimate(write: Write) -> None:
    job = only(read_log(write(line(1, run=0, estimate=-1))), SwfOptions(zero_runs=ZeroRuns.KEEP))
    assert (job.run_s, job.estimate_s) == (0, 1)


def test_sc15_filter(write: Write) -> None:
    log = read_log(
        write(
            line(1, submit=0),
            line(2, submit=1, run=11, estimate=10),
            line(3, submit=1, run=0),
            line(4, submit=1, allocated=-1, requested=4),
            line(5, submit=1, allocated=9, requested=4),
            line(6, submit=1, allocated=4, requested=-1),
            line(7, submit=1, estimate=-1),
            line(8, submit=1, run=10, estimate=10),
        )
    )
    jobs, dropped = chosen(log, reading=SwfOptions(filter=SwfFilter.SC15))
    assert [job.number for job in jobs] == [6, 8]
    assert sum(dropped.values()) == 6


def test_jobs_are_ordered_by_submit_time_and_then_by_line(write: Write) -> None:
    log = read_log(write(line(1, submit=9), line(2, submit=3), line(3, submit=9), line(4, submit=3)))
    work, _ = log.work(pool_of(8), SwfOptions())
    assert [each.number for each in work] == [2, 4, 1, 3]


def test_job_wider_than_the_machine_is_dropped(write: Write) -> None:
    log = read_log(write(line(1, allocated=5), line(2, allocated=7), line(3, allocated=9)))
    for cluster, fit in (
        (pool_of(8), [1, 2]),
        (nodes_of(2, 0, 3, 64, ""), [1]),
        (nodes_of(9, 0, 1, 64, ""), [1, 2, 3]),
    ):
        work, dropped = log.work(cluster, SwfOptions())
        assert [each.number for each in work] == fit
        assert dropped.total() == 3 - len(fit)


# --- the file around the lines ---


@pytest.mark.parametrize("end", ["\n", "\r\n", "  \t \n", "\n\n"])
def test_swf_line_endings(write: Write, end: str) -> None:
    log = read_log(write(line(1), line(2), end=end))
    assert [each.number for each in log.lines] == [1, 2]
    assert log.processors == 8


def test_gzip_is_detected_by_content(write: Write, tmp_path: Path) -> None:
    packed = tmp_path / "packed.swf"
    packed.write_bytes(gzip.compress(write(line(1), line(2)).read_bytes()))
    plain = tmp_path / "plain.gz"
    plain.write_bytes(write(line(1), line(2)).read_bytes())
    assert read_log(packed).lines == read_log(plain).lines
    assert len(read_log(packed).lines) == 2


def test_damaged_archive_is_refused_with_a_sentence(write: Write, tmp_path: Path) -> None:
    whole = gzip.compress(write(*[line(number) for number in range(2_000)]).read_bytes())
    for damaged in (whole[: len(whole) // 2], whole[:200] + b"\0" * 50 + whole[250:], whole[:3]):
        packed = tmp_path / "cut.swf.gz"
        packed.write_bytes(damaged)
        with pytest.raises(LogRefused, match="the gzip archive is damaged"):
            read_log(packed)


def test_machine_size_is_read_from_the_header(write: Write) -> None:
    def processors(*header: str) -> int | None:
        return read_log(write(line(1), header=header)).processors

    assert processors("; Computer: x", ";   MaxNodes:  16", "; MaxProcs: 128 (see below)") == 128
    assert processors(";MaxNodes: 16") == 16
    assert processors("; MaxProcs: -1", "; Note: MaxProcs: 7") is None
    assert processors() is None


def test_swf_comments_are_ignored(write: Write) -> None:
    log = read_log(
        write(line(1), ";", "; Ünïcode", "   ; MaxQueues: 3", line(2), header=["\ufeff; Version: 2.2"])
    )
    assert len(log.lines) == 2


# --- broken lines ---

BROKEN = [
    ("1 2 3", "has 3 fields, not 18"),
    ("1", "has 1 field, not 18"),
    (line(1) + " 7", "has 19 fields, not 18"),
    (line(1, run="abc"), "field 4 is not a number: 'abc'"),  # type: ignore[arg-type]
    (line(1, run="nan"), "field 4 is not a number: 'nan'"),  # type: ignore[arg-type]
    (line(1, submit="inf"), "field 2 is not a number: 'inf'"),  # type: ignore[arg-type]
    (line(1, submit="1_000"), "field 2 is not a number: '1_000'"),  # type: ignore[arg-type]
    (line(1, submit="٣"), "field 2 is not a number: '٣'"),  # type: ignore[arg-type]
    (line(1, submit="0x10"), "field 2 is not a number: '0x10'"),  # type: ignore[arg-type]
    (line(1, allocated=1.5), "must be whole numbers"),  # type: ignore[arg-type]
    (line(1).replace(" ", ","), "has 1 field, not 18"),
]


@pytest.mark.parametrize(("broken", "why"), BROKEN)
def test_invalid_line_is_named_by_number(write: Write, broken: str, why: str) -> None:
    path = write(line(1), "", broken, line(2))
    with pytest.raises(LogRefused) as refused:
        read_log(path)
    assert str(refused.value).startswith(f"{path}: line 4: ")
    assert why in str(refused.value)
    assert "--skip-bad" in refused.value.hint


def test_invalid_lines_can_be_skipped_and_are_counted(write: Write) -> None:
    log = read_log(write(line(1), "1 2 3", line(2), "x"), skip_bad=True)
    assert [each.number for each in log.lines] == [1, 2]
    assert [number for number, _ in log.bad] == [3, 5]


def test_a_log_without_jobs_is_refused(write: Write, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    for path in (write(), tmp_path / "empty"):
        with pytest.raises(LogRefused, match="there are no jobs in it"):
            read_log(path)


@given(st.binary(max_size=300))
def test_any_file_is_read_or_refused_without_a_crash(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    for content in (data, b"; MaxProcs: 4\n" + data, gzip.compress(data), b"submit,duration\n" + data):
        path.write_bytes(content)
        with suppress(LogRefused):
            log = read_log(path)
            assert log.lines or log.table
