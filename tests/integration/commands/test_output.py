"""Output of jobs: content, files, and the environment passed on from the submitting shell."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands.test_cli import CliCluster
from wire.http.client import Client

BOTH = "echo one; echo two >&2; echo three; echo four >&2"


@pytest.fixture(scope="module")
def cluster() -> Iterator[CliCluster]:
    with tempfile.TemporaryDirectory(prefix="corral-out-", dir="/tmp") as place:
        made = CliCluster(Path(place))
        try:
            yield made
            made.stop()
        finally:
            if made.process.poll() is None:
                made.kill()


def submit(cluster: CliCluster, *words: str, **environment: str) -> str:
    """Submit, wait for the end, and give the job."""
    done = cluster.corral("submit", *words, **environment)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    cluster.corral("job", "wait", job)
    return job


def shell(cluster: CliCluster, script: str, *flags: str, **environment: str) -> str:
    return submit(cluster, *flags, "--", "sh", "-c", script, **environment)


# --- logs ---


def test_log_has_stdout_and_stderr_in_the_order_written(cluster: CliCluster) -> None:
    job = shell(cluster, BOTH)
    told = cluster.corral("job", "logs", job)
    assert (told.stdout, told.stderr) == ("one\ntwo\nthree\nfour\n", "")
    assert cluster.corral("logs", "-n", "2", job).stdout == "three\nfour\n"
    one = cluster.corral("job", "logs", "--stderr", job)
    assert one.stdout == "one\ntwo\nthree\nfour\n"
    assert "has one log for both stdout and stderr" in one.stderr


def test_traceback_of_a_crash_is_in_the_log(cluster: CliCluster) -> None:
    job = submit(cluster, "--", "python3", "-c", "import nowhere", PATH=os.environ["PATH"])
    assert "ModuleNotFoundError" in cluster.corral("job", "logs", job).stdout


def test_separate_logs_are_marked_and_followed_together(cluster: CliCluster) -> None:
    job = shell(cluster, BOTH, "--separate-output")
    assert cluster.corral("job", "logs", job).stdout == "one\nthree\n==> stderr <==\ntwo\nfour\n"
    assert cluster.corral("job", "logs", job, "--stderr").stdout == "two\nfour\n"
    following = cluster.corral("job", "logs", "-f", job)
    assert sorted(following.stdout.replace("==> stderr <==\n", "").split()) == ["four", "one", "three", "two"]


def test_empty_log_is_explained(cluster: CliCluster) -> None:
    silent = cluster.corral("job", "logs", shell(cluster, "exit 0"))
    assert (silent.stdout, silent.returncode) == ("", 0)
    assert "COMPLETED; it has written nothing" in silent.stderr
    failed = cluster.corral("job", "logs", submit(cluster, "--", "no-such-program"))
    assert failed.stdout == ""
    assert "cannot run no-such-program: not found in PATH" in failed.stderr
    assert "--env PATH" in failed.stderr
    waiting = cluster.corral("submit", "--hold", "--", "true").stdout.strip()
    held = cluster.corral("job", "logs", waiting)
    assert held.returncode == 1
    assert "has not started, it is QUEUED (held until a release: corral job release " in held.stderr
    cluster.corral("job", "cancel", waiting)
    never = cluster.corral("job", "logs", waiting)
    assert "it never started and is CANCELLED" in never.stderr


def test_the_log_of_an_earlier_attempt_can_be_read(cluster: CliCluster) -> None:
    job = shell(
        cluster, "echo attempt $CORRAL_ATTEMPT; exit 1", "--restart", "on-failure:2", "--restart-delay", "1s"
    )
    assert cluster.corral("job", "logs", job).stdout == "attempt 3\n"
    for attempt in ("1", "2", "3"):
        told = cluster.corral("job", "logs", job, "--attempt", attempt)
        assert told.stdout == f"attempt {attempt}\n"
    missing = cluster.corral("job", "logs", job, "--attempt", "4")
    assert missing.returncode == 3
    assert "has no attempt 4; its attempts: 1 to 3" in missing.stderr
    with Client(cluster.url) as client:
        assert b"".join(client.logs(job, attempt=2)) == b"attempt 2\n"


def test_the_log_of_a_job_that_waits_to_run_again_can_be_read(cluster: CliCluster) -> None:
    flags = ("--restart", "on-failure:1", "--restart-delay", "1h")
    done = cluster.corral("submit", *flags, "--", "sh", "-c", "echo before; exit 1")
    job = done.stdout.strip()
    cluster.until(int(job), lambda view: view.attempt == 1 and view.state.value == "QUEUED")
    assert cluster.corral("job", "logs", job).stdout == "before\n"
    cluster.corral("job", "cancel", job)


# --- files of the user's own ---


def test_output_and_error_go_to_files_named_by_patterns(cluster: CliCluster) -> None:
    job = shell(cluster, BOTH, "--name", "a/b", "--output", "%x-%j-%N-%%.out", "--error", "%6j.err")
    assert (cluster.place / f"a_b-{job}-gpu01-%.out").read_text() == "one\nthree\n"
    assert (cluster.place / f"{int(job):06}.err").read_text() == "two\nfour\n"
    told = cluster.corral("job", "logs", job)
    assert f"corral: stdout goes to {cluster.place}/a_b-{job}-gpu01-%.out" in told.stdout


def test_output_alone_collects_both_streams_in_order(cluster: CliCluster) -> None:
    shell(cluster, BOTH, "--output", "both.out")
    assert (cluster.place / "both.out").read_text() == "one\ntwo\nthree\nfour\n"


def test_array_elements_write_their_own_files(cluster: CliCluster) -> None:
    job = shell(cluster, "echo $CORRAL_ARRAY_INDEX", "--array", "3-4", "--output", "el-%A-%a.out")
    for index in (3, 4):
        assert (cluster.place / f"el-{job}-{index}.out").read_text() == f"{index}\n"


def test_open_mode_decides_whether_earlier_output_is_kept(cluster: CliCluster) -> None:
    file = cluster.place / "kept.out"
    for flags, left in (
        ((), "new\n"),
        (("--open-mode", "append"), "old\nnew\n"),
        (("--open-mode", "truncate"), "new\n"),
    ):
        file.write_text("old\n")
        shell(cluster, "echo new", "--output", "kept.out", *flags)
        assert file.read_text() == left
    again = ("--restart", "on-failure:1", "--restart-delay", "1s")
    shell(cluster, "echo $CORRAL_ATTEMPT; exit 1", "--output", "again.out", *again)
    assert (cluster.place / "again.out").read_text() == "1\n2\n"


def test_unwritable_output_file_ends_the_job_with_a_reason(cluster: CliCluster) -> None:
    told = cluster.corral("job", "logs", shell(cluster, "echo lost", "--output", "/dev/null/x.out"))
    assert "cannot write stdout to /dev/null/x.out: Not a directory" in told.stderr
    refused = cluster.corral("submit", "--output", "%q.out", "--", "true")
    assert refused.returncode == 2
    assert "--output: '%q' is not a pattern" in refused.stderr


def test_o_with_a_file_name_suggests_the_output_flag(cluster: CliCluster) -> None:
    refused = cluster.corral("submit", "-o", "out.log", "--", "true")
    assert refused.returncode == 2
    assert "--output out.log" in refused.stderr


# --- environment ---


def test_umask_and_virtual_environment_are_passed_to_the_job(cluster: CliCluster) -> None:
    tool = cluster.place / "venv" / "bin" / "only-in-venv"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho $VIRTUAL_ENV; umask\n")
    tool.chmod(0o755)
    before = os.umask(0o027)
    try:
        active = {"VIRTUAL_ENV": str(cluster.place / "venv"), "PATH": f"{tool.parent}:{os.environ['PATH']}"}
        job = submit(cluster, "--", "only-in-venv", **active)
    finally:
        os.umask(before)
    assert cluster.corral("job", "logs", job).stdout == f"{cluster.place}/venv\n0027\n"
    job = submit(cluster, "--env", "none", "--", "only-in-venv", **active)
    assert "not found in PATH" in cluster.corral("job", "logs", job).stderr


def test_env_all_passes_all_variables_except_client_secrets(cluster: CliCluster) -> None:
    flags = ("--env", "all", "--env", "COLOUR=blue")
    mine = {"COLOUR": "red", "SIZE": "9", "CORRAL_TOKEN": "secret", "SLURM_JOB_ID": "77"}
    job = shell(cluster, 'echo "$COLOUR $SIZE $CORRAL_TOKEN $SLURM_JOB_ID"', *flags, **mine)
    assert cluster.corral("job", "logs", job).stdout == f"blue 9  {job}\n"


def test_unset_variable_is_named(cluster: CliCluster) -> None:
    refused = cluster.corral("submit", "--env", "NOT_SET", "--", "true")
    assert refused.returncode == 2
    assert "--env: 'NOT_SET' is not set in your environment" in refused.stderr


# --- errors and orders ---


def test_unknown_dependency_is_named_by_its_flag(cluster: CliCluster) -> None:
    refused = cluster.corral("submit", "--after", "1", "--after-ok", "99999", "--", "true")
    assert refused.returncode != 0
    assert refused.stderr.startswith("corral: --after-ok: there is no job 99999 to wait for")


def test_a_requeued_job_runs_again_and_keeps_the_logs_of_both_attempts(cluster: CliCluster) -> None:
    done = cluster.corral("submit", "--", "sh", "-c", "echo attempt $CORRAL_ATTEMPT; exec sleep 600")
    job = int(done.stdout)
    cluster.until(job, lambda view: view.state.value == "RUNNING")
    assert cluster.corral("job", "requeue", str(job)).returncode == 0
    cluster.until(job, lambda view: view.state.value == "RUNNING" and view.attempt == 2)
    assert cluster.corral("logs", str(job), "--attempt", "1").stdout == "attempt 1\n"
    cluster.corral("cancel", str(job))
    cluster.corral("job", "wait", str(job))
    assert cluster.corral("logs", str(job)).stdout == "attempt 2\n"
    again = cluster.corral("job", "requeue", str(job))
    assert again.returncode == 1
    assert "submit it again" in again.stderr


def test_dry_run_shows_defaults_or_the_refusal(cluster: CliCluster) -> None:
    before = cluster.corral("queue", "--all", "-o", "name").stdout
    told = cluster.corral("submit", "--dry-run", "--gpus", "2", "--", "true").stdout
    assert "14 per node (default: share per GPU of node gpu01)" in told
    assert "115G per node (default: share per GPU of node gpu01)" in told
    refused = cluster.corral("submit", "--dry-run", "--gpus", "9", "--", "true")
    assert refused.returncode == 5
    assert refused.stderr.startswith("corral: --gpus: can never be placed")
    assert cluster.corral("queue", "--all", "-o", "name").stdout == before
    alone = cluster.corral("submit", "--dry-run", "--gpus", "2", "--", "true", CORRAL_URL="unix:///nowhere")
    assert alone.returncode == 0
    assert "the default of the cluster" in alone.stdout
