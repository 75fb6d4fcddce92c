"""Jobs save their state before they are stopped, and the checkpoint is reported and passed on."""

from __future__ import annotations

import json
import os
import pwd
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.checkpoints import directory
from agent.checkpoints.watcher import CheckpointWatcher
from agent.event_loop import EventLoop
from agent.processes import process_tree
from tests import users
from tests.agent.agent_process import AgentProcess, eventually
from tests.limits import PATIENCE_S
from wire.agent.orders import Start, Stop
from wire.agent.reports import Checkpoint

Run = Callable[..., AgentProcess]
SAVE = (
    "sh",
    "-c",
    "cd $CORRAL_CHECKPOINT_DIR && printf 12345 > .new && mv .new step",
)
LISTENS = "trap '{on} exit 0' USR1; echo ready; while :; do sleep 0.1; done"
DEAF = "trap '' TERM USR1; echo ready; while :; do sleep 0.1; done"


def begin(agent: AgentProcess, script: str, **order: object) -> Start:
    """A job that is ready to be stopped."""
    made = agent.start(1, "sh", "-c", script, workdir=str(agent.spool), **order)
    eventually(lambda: agent.log(1).startswith(b"ready\n"))
    return made


def preempt(agent: AgentProcess, checkpoint_s: float = 60.0, grace_s: float = 60.0) -> None:
    agent.send(Stop(1, 1, grace_s, "preempted", checkpoint_s))


def folder(agent: AgentProcess) -> Path:
    return agent.spool / "corral-checkpoints" / "1"


def test_checkpoint_command_saves_and_the_next_attempt_gets_the_checkpoint(run: Run) -> None:
    agent = run()
    begin(agent, "echo ready; exec sleep 1000", checkpoint_command=SAVE)
    preempt(agent)
    ended = agent.ended(1)
    assert (ended.signal, ended.why) == (signal.SIGTERM, "preempted")
    assert ended.checkpoint is not None
    assert (ended.checkpoint.path, ended.checkpoint.size) == (str(folder(agent) / "step"), 5)
    agent.start(1, "sh", "-c", "cat $CORRAL_CHECKPOINT", attempt=2, checkpoint=ended.checkpoint)
    assert agent.ended(1, 2).code == 0
    assert agent.log(1, attempt=2) == b"12345"


def test_checkpoint_signal_reaches_only_processes_with_a_handler(run: Run) -> None:
    """The sleeping child has no handler: the signal would kill it."""
    agent = run()
    script = "sleep 1000 & " + LISTENS.format(
        on="kill -0 $! && mkdir $CORRAL_CHECKPOINT_DIR/a && echo x > $CORRAL_CHECKPOINT_DIR/a/b;"
    )
    begin(agent, script, checkpoint_signal="USR1", grace_s=0.0)
    preempt(agent)
    ended = agent.ended(1)
    assert (ended.code, ended.why) == (0, "preempted")
    assert ended.checkpoint is not None
    assert (ended.checkpoint.path, ended.checkpoint.size) == (str(folder(agent) / "a"), 2)


def test_checkpoint_after_a_signal_is_reported(run: Run) -> None:
    agent = run()
    begin(agent, LISTENS.format(on="echo abc > $CORRAL_CHECKPOINT_DIR/b;"), checkpoint_signal="USR1")
    preempt(agent)
    saved = agent.ended(1).checkpoint
    assert saved is not None
    assert (saved.path, saved.size) == (str(folder(agent) / "b"), 4)


def test_stopped_process_is_continued_to_save(run: Run) -> None:
    agent = run()
    begin(agent, LISTENS.format(on="echo abc > $CORRAL_CHECKPOINT_DIR/b;"), checkpoint_signal="USR1")
    pid = agent.started(1).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    preempt(agent)
    assert agent.ended(1).checkpoint is not None


def test_job_without_a_signal_handler_is_stopped_at_once(run: Run) -> None:
    agent = run()
    begin(agent, "echo ready; exec sleep 1000", checkpoint_signal="USR1")
    preempt(agent, checkpoint_s=86_400.0)
    ended = agent.ended(1)
    assert (ended.signal, ended.checkpoint) == (signal.SIGTERM, None)


def test_interrupted_save_is_no_checkpoint(run: Run) -> None:
    """The save hangs, and so does the job: it is killed in the end, and the previous checkpoint counts."""
    agent = run()
    begin(agent, DEAF, checkpoint_command=("sh", "-c", "echo half > $CORRAL_CHECKPOINT_DIR/new; sleep 1000"))
    (folder(agent) / "old").write_text("whole")
    os.utime(folder(agent) / "old", (1_000, 1_000))
    preempt(agent, checkpoint_s=0.3, grace_s=0.1)
    ended = agent.ended(1)
    assert ended.signal == signal.SIGKILL
    assert (folder(agent) / "new").exists()
    assert ended.checkpoint == Checkpoint(str(folder(agent) / "old"), 5, 1_000.0)


def test_failed_save_is_reported_in_the_log_of_the_job(run: Run) -> None:
    agent = run()
    begin(
        agent,
        "echo ready; exec sleep 1000",
        checkpoint_command=("sh", "-c", "echo half > $CORRAL_CHECKPOINT_DIR/new; exit 3"),
    )
    preempt(agent)
    assert agent.ended(1).checkpoint is None
    assert agent.log(1, "stderr") == b"corral: the checkpoint command failed with exit code 3\n"


def test_missing_checkpoint_command_does_not_delay_the_stop(run: Run) -> None:
    agent = run()
    begin(agent, "echo ready; exec sleep 1000", checkpoint_command=("no-such-program",))
    preempt(agent, checkpoint_s=86_400.0)
    assert agent.ended(1).signal == signal.SIGTERM
    assert agent.log(1, "stderr").startswith(b"corral: no checkpoint was made: cannot run no-such-program: ")


def test_cancel_does_not_wait_for_a_checkpoint(run: Run) -> None:
    agent = run()
    begin(agent, "echo ready; exec sleep 1000", checkpoint_command=("sleep", "1000"))
    preempt(agent, checkpoint_s=86_400.0)
    agent.send(Stop(1, 1, 60.0, "cancelled"))
    assert agent.ended(1).why == "preempted"


def test_checkpoint_of_a_job_without_settings_is_found(run: Run) -> None:
    agent = run()
    keeps = "cd $CORRAL_CHECKPOINT_DIR; for n in 1 2 3; do echo $n > s$n; touch -d @$n s$n; done; exit 9"
    agent.start(1, "sh", "-c", keeps, checkpoint_dir=f"{agent.spool}/kept", checkpoint_keep=2)
    ended = agent.ended(1)
    assert ended.code == 9
    assert ended.checkpoint == Checkpoint(f"{agent.spool}/kept/1/s3", 2, 3.0)
    assert sorted(os.listdir(agent.spool / "kept" / "1")) == ["s2", "s3"]


def test_hostile_checkpoint_names_are_skipped(run: Run) -> None:
    agent = run()
    names = r'"$(printf "a\nb")" "$(printf "\033[2J")" "$(printf "\377")" .hidden'
    script = f"cd $CORRAL_CHECKPOINT_DIR; touch {names}; ln -s /etc/passwd link"
    agent.start(1, "sh", "-c", script, checkpoint_dir=str(agent.spool))
    ended = agent.ended(1)
    assert (ended.code, ended.checkpoint) == (0, None)


def test_checkpoint_is_reported_by_the_next_agent(run: Run) -> None:
    first = run()
    begin(first, LISTENS.format(on="echo abc > $CORRAL_CHECKPOINT_DIR/b;"), checkpoint_signal="USR1")
    supervisor = first.supervisor(1)
    os.kill(supervisor, signal.SIGSTOP)
    preempt(first)
    eventually((first.spool / "attempts" / "1.1" / "stop").exists)
    first.kill()
    os.kill(supervisor, signal.SIGCONT)
    second = run()
    reported_checkpoint = next(
        (each for each in second.hello().attempts if each.ended_at), None
    ) or second.ended(1)
    assert reported_checkpoint.checkpoint is not None


def test_warning_signal_is_sent_before_the_time_limit(run: Run) -> None:
    agent = run()
    script = "trap 'echo warned' USR2; echo ready; while :; do sleep 0.1; done"
    agent.start(1, "sh", "-c", script, time_limit_s=1.5, warn_signal="USR2", warn_s=1.0)
    ended = agent.ended(1)
    assert ended.why == "time_limit"
    assert agent.log(1) == b"ready\nwarned\n"


@users.as_other_users
def test_checkpoints_belong_to_the_user_of_the_job(run: Run, tmp_path: Path) -> None:
    """The directory is made, the command run and the result looked at as the user, never as root."""
    other = pwd.getpwnam("nobody")
    for place in (*tmp_path.parents[:2], tmp_path):
        place.chmod(0o755)
    if not all(place.stat().st_mode & stat.S_IXOTH for place in tmp_path.parents):
        pytest.skip("the temporary directory is nobody else's to enter")
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", other.pw_uid, other.pw_gid)
    agent = run(run_as_self=False)
    agent.start(
        1,
        "sh",
        "-c",
        "echo ready; exec sleep 1000",
        user=other.pw_name,
        checkpoint_command=SAVE,
        checkpoint_dir=f"{tmp_path}/theirs",
    )
    eventually(lambda: agent.log(1) == b"ready\n")
    preempt(agent)
    saved = agent.ended(1).checkpoint
    assert saved is not None
    seen = os.stat(saved.path)
    assert (seen.st_uid, stat.S_IMODE(seen.st_mode)) == (other.pw_uid, 0o644)
    (tmp_path / "ours").mkdir(mode=0o700)
    agent.start(2, "true", user=other.pw_name, checkpoint_dir=f"{tmp_path}/ours")
    why = f"launch_failed: cannot make the checkpoint directory {tmp_path}/ours/2: Permission denied"
    assert agent.ended(2).why == why


def test_checkpoint_is_reported_while_the_job_runs(run: Run, tmp_path: Path) -> None:
    agent = run("--jobs", json.dumps({"checkpoint_look_s": 0.1}))
    await_go = "while [ ! -e .go ]; do sleep 0.05; done"
    script = f"cd $CORRAL_CHECKPOINT_DIR; echo one > step-1; {await_go}; echo two > step-2; sleep 1000"
    agent.start(1, "sh", "-c", script, checkpoint_dir=str(tmp_path / "saved"), workdir=str(tmp_path))
    first = agent.until(lambda _: reported_checkpoint(agent, "step-1"))
    assert first.size == 4
    (tmp_path / "saved/1/.go").touch()
    assert agent.until(lambda _: reported_checkpoint(agent, "step-2")).at >= first.at
    assert all(each.ended_at is None for each in agent.reports(1))


def reported_checkpoint(agent: AgentProcess, name: str) -> Checkpoint | None:
    found = [each.checkpoint for each in agent.reports(1) if each.checkpoint is not None]
    return next((each for each in found if each.path.endswith(name)), None)


def test_growing_file_is_not_reported_as_a_checkpoint(run: Run, tmp_path: Path) -> None:
    agent = run("--jobs", json.dumps({"checkpoint_look_s": 0.1}))
    grows = "while [ ! -e go ]; do echo more >> $CORRAL_CHECKPOINT_DIR/step-1; sleep 0.01; done; sleep 1000"
    agent.start(1, "sh", "-c", grows, checkpoint_dir=str(tmp_path / "saved"), workdir=str(tmp_path))
    step = tmp_path / "saved/1/step-1"
    eventually(lambda: step.exists() and step.stat().st_size > 200)
    size = step.stat().st_size
    (tmp_path / "go").touch()
    assert agent.until(lambda _: reported_checkpoint(agent, "step-1")).size >= size


def test_new_attempt_gets_the_newest_checkpoint_on_disk_instead_of_a_deleted_one(
    run: Run, tmp_path: Path
) -> None:
    """The attempt before saved once more after its connection was cut, and deleted the checkpoint that the
    controller knows.
    """
    folder = tmp_path / "saved"
    (folder / "1").mkdir(parents=True)
    for number, name in enumerate(("step-20", "step-25", ".half")):
        (folder / "1" / name).write_text(name)
        os.utime(folder / "1" / name, (number, number))
    agent = run()
    show = ("sh", "-c", 'echo "${CORRAL_CHECKPOINT-none}"')
    gone = Checkpoint(f"{folder}/1/step-5", 1, 0.5)
    newest = Checkpoint(f"{folder}/1/step-20", 1, 0.5)
    agent.start(1, *show, attempt=2, checkpoint_dir=str(folder), checkpoint=gone)
    assert agent.ended(1, 2).code == 0
    agent.start(1, *show, attempt=3, checkpoint_dir=str(folder), checkpoint=newest)
    assert agent.ended(1, 3).code == 0
    agent.start(1, *show, attempt=4, checkpoint_dir=str(folder))  # the controller does not know this one
    assert agent.ended(1, 4).code == 0
    agent.start(2, *show, attempt=2, checkpoint_dir=str(folder), checkpoint=gone)
    assert agent.ended(2, 2).code == 0
    reported_checkpoint = [
        agent.log(job, attempt=attempt) for job, attempt in ((1, 2), (1, 3), (1, 4), (2, 2))
    ]
    assert reported_checkpoint == [
        f"{folder}/1/step-25\n".encode(),
        f"{folder}/1/step-20\n".encode(),
        f"{folder}/1/step-25\n".encode(),
        b"none\n",
    ]


def test_surplus_checkpoints_are_deleted_although_the_deletion_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan has sent its answer long before it has deleted the old checkpoint."""

    def delete_slowly(*args: Any) -> None:
        time.sleep(0.5)
        delete(*args)

    delete = directory.delete_surplus
    monkeypatch.setattr(directory, "delete_surplus", delete_slowly)
    for number, name in enumerate(("old", "new")):
        (tmp_path / name).write_text("saved")
        os.utime(tmp_path / name, (number, number))
    launch = LaunchSpec("1.1", str(tmp_path))
    launch.checkpoint_dir, launch.checkpoint_keep = str(tmp_path), 1
    loop, reported, running = EventLoop(), list[str](), {(1, 1)}
    before = set(process_tree.children(os.getpid()))
    watcher = CheckpointWatcher(
        *(loop, 0.05, lambda: running, lambda _: launch, lambda _, found: reported.append(found.path))
    )
    watcher.start()
    run_until(loop, lambda: not (tmp_path / "old").exists())
    assert reported == [str(tmp_path / "new")]
    running.clear()
    run_until(loop, lambda: set(process_tree.children(os.getpid())) <= before)


def run_until(loop: EventLoop, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        loop.run_once()
