"""The shell part of a batch script, run by /bin/sh without a batch system."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from controller.engines.batch_systems.batch_job import BatchJob
from controller.engines.batch_systems.wrapper import (
    CLAIMED,
    NO_RECORDS,
    NO_WORKDIR,
    JobRecords,
    ids_command,
    job_directory,
    parse_records,
    read_command,
    script_body,
)
from tests.limits import PATIENCE_S


def job(place: Path, *command: str) -> BatchJob:
    """Return a job with a directory of records, as ask() makes it."""
    (place / "records" / "corral-1-1").mkdir(parents=True)
    return BatchJob("corral-1-1", command, directory=str(place / "records"), workdir=str(place))


def run(wanted: BatchJob, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh"],
        input=script_body(wanted, "THE_ID"),
        env={"PATH": os.environ["PATH"], "HOME": wanted.workdir, "THE_ID": "17", **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def records(wanted: BatchJob) -> JobRecords:
    command = read_command(wanted.directory, wanted.tag)
    shown = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True).stdout
    return parse_records(shown, wanted.tag)


def test_the_records_have_start_end_and_exit_code(tmp_path: Path) -> None:
    wanted = job(tmp_path, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert run(wanted).returncode == 3
    found = records(wanted)
    assert (found.code, found.signal, found.job_id) == (3, None, "17")
    assert found.started_at is not None
    assert found.ended_at is not None
    place = tmp_path / "records" / wanted.tag
    assert ((place / "stdout").read_text(), (place / "stderr").read_text()) == ("out\n", "err\n")
    assert sorted(path.name for path in place.iterdir()) == ["claim", "ended", "started", "stderr", "stdout"]


def test_a_second_run_does_not_run_the_command(tmp_path: Path) -> None:
    wanted = job(tmp_path, "sh", "-c", "echo ran >> ran; exit 3")
    assert [run(wanted).returncode for _ in range(3)] == [3, CLAIMED, CLAIMED]
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert records(wanted).code == 3
    assert records(wanted).again_id == "17"


def test_a_run_after_the_records_were_removed_does_not_run_the_command(tmp_path: Path) -> None:
    """slurmctld has started again with a state in which the job still waits."""
    wanted = job(tmp_path, "sh", "-c", "echo ran >> ran")
    assert run(wanted).returncode == 0
    shutil.rmtree(tmp_path / "records" / wanted.tag)
    assert run(wanted).returncode == NO_RECORDS
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert not (tmp_path / "records" / wanted.tag).exists()


def test_of_many_runs_at_once_one_runs_the_command(tmp_path: Path) -> None:
    wanted = job(tmp_path, "sh", "-c", "echo ran >> ran")
    script = script_body(wanted, "THE_ID")
    runs = [subprocess.Popen(["/bin/sh", "-c", script], stderr=subprocess.DEVNULL) for _ in range(12)]
    assert sorted(each.wait(PATIENCE_S) for each in runs) == [0] + [CLAIMED] * 11
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_variables_of_the_user_reach_the_command_and_not_the_script(tmp_path: Path) -> None:
    wanted = job(tmp_path, "/bin/sh", "-c", 'echo "$PATH $QUOTED"')
    wanted = replace(wanted, env={"PATH": "/nowhere", "QUOTED": "it's $HOME `x`\n2", "not a name": "x"})
    assert run(wanted).returncode == 0
    assert (tmp_path / "records" / wanted.tag / "stdout").read_text() == "/nowhere it's $HOME `x`\n2\n"
    assert records(wanted).code == 0


def test_a_signal_that_ends_the_command_is_recorded(tmp_path: Path) -> None:
    wanted = job(tmp_path, "sh", "-c", "kill -9 $$")
    run(wanted)
    assert (records(wanted).code, records(wanted).signal) == (None, 9)


def test_the_script_outlives_sigterm_and_records_the_end(tmp_path: Path) -> None:
    wanted = job(tmp_path, "sh", "-c", "trap 'echo saved; exit 5' TERM; echo ready; sleep 60 & wait")
    script = script_body(wanted, "THE_ID")
    process = subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True)
    output = tmp_path / "records" / wanted.tag / "stdout"
    deadline = time.monotonic() + PATIENCE_S
    while not (output.exists() and "ready" in output.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 5
    assert (records(wanted).code, output.read_text()) == (5, "ready\nsaved\n")


def test_a_missing_working_directory_is_named_by_the_exit_code(tmp_path: Path) -> None:
    wanted = replace(job(tmp_path, "true"), workdir=str(tmp_path / "gone"))
    assert run(wanted, HOME=str(tmp_path)).returncode == NO_WORKDIR
    assert (records(wanted).code, records(wanted).refused) == (None, NO_WORKDIR)


def test_records_that_cannot_be_written_keep_the_command_from_running(tmp_path: Path) -> None:
    wanted = job(tmp_path, "touch", "ran")
    shutil.rmtree(tmp_path / "records")
    (tmp_path / "records").write_text("a file, not a directory")
    assert run(wanted).returncode == NO_RECORDS
    assert not (tmp_path / "ran").exists()


def test_output_goes_to_the_files_of_the_job(tmp_path: Path) -> None:
    wanted = job(tmp_path, "sh", "-c", "echo out; echo err >&2")
    both = str(tmp_path / "a file")
    (tmp_path / "a file").write_text("before\n")
    assert run(replace(wanted, output=both, error=both, append=True)).returncode == 0
    assert (tmp_path / "a file").read_text() == "before\nout\nerr\n"


def test_a_directory_in_the_home(tmp_path: Path) -> None:
    wanted = replace(job(tmp_path, "true"), directory="~/it's here")
    (tmp_path / "it's here" / wanted.tag).mkdir(parents=True)
    assert run(wanted).returncode == 0
    assert (tmp_path / "it's here" / wanted.tag / "ended").exists()


@pytest.mark.parametrize("tag", ["", "../up", "a b", "-x", "a\nb"])
def test_a_tag_is_never_a_path(tag: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        job_directory(BatchJob(tag, ("true",)))


@pytest.mark.parametrize("text", ["", "/r/t/ended:at=1 host=n", "/r/t/ended:at=1 code=", "/r/t/ended:"])
def test_a_damaged_record_is_no_record(text: str) -> None:
    assert parse_records(text, "t").code is None


def test_a_variable_of_the_user_does_not_move_the_output(tmp_path: Path) -> None:
    names = ("directory", "corral_dir")
    wanted = replace(job(tmp_path, "echo", "out"), env=dict.fromkeys(names, str(tmp_path / "elsewhere")))
    assert run(wanted).returncode == 0
    assert (tmp_path / "records" / wanted.tag / "stdout").read_text() == "out\n"


def test_a_large_record_is_left_out(tmp_path: Path) -> None:
    wanted = job(tmp_path, "true")
    run(wanted)
    (tmp_path / "records" / wanted.tag / "ended").write_text("at=1 code=0 host=" + "x" * 100_000)
    assert records(wanted).code is None
    (tmp_path / "records" / wanted.tag / "id").write_text("1" * 100_000)
    shown = subprocess.run(["/bin/sh", "-c", ids_command(wanted.directory)], capture_output=True, text=True)
    assert (shown.returncode, shown.stdout) == (0, "")
