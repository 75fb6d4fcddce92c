"""Another configuration for a running controller: by SIGHUP and by `corral config apply`, and back to the
previous one.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import tomli_w

from controller.config import load, policy_config
from controller.core.model.events.controller import ConfigApplied
from controller.registry import build_pipeline
from controller.sim.replay.history import history_of
from controller.sim.replay.journal import read_journal
from controller.sim.replay.replayer import Replay
from tests.programs import run_corral
from tests.systems import NODE, PATIENCE_S, System
from wire.names import JobState, NodeState


def corral(system: System, *words: str, code: int = 0) -> tuple[str, str]:
    """stdout and stderr of a command that must end with this code."""
    done = run_corral(*words, environment={**os.environ, "CORRAL_URL": f"unix://{system.socket}"})
    assert done.returncode == code, (words, done)
    return done.stdout, done.stderr


def send_sighup(system: System, told: str) -> None:
    """Send SIGHUP, and wait until the log has one more line with this text."""
    before = system.log.read_text().count(told)
    system.controller.send(signal.SIGHUP)
    system.until(lambda: system.log.read_text().count(told) > before, told)


def test_sighup_applies_what_can_change_and_names_the_rest(build: Callable[..., System]) -> None:
    system = build("gpu01").start()
    pid = system.controller.pid
    system.corral("submit", "--gpus", "8", "--time", "1h", "--", "sleep", "1000")
    system.await_jobs([1], JobState.RUNNING)
    [job] = system.processes("job")
    for limit in ("3h", "1h"):  # `priority` starts job 2 before job 3, `shortest` job 3 before job 2
        system.corral("submit", "--gpus", "8", "--time", limit, "--", "sleep", "1000")
    system.sections["scheduler"] = {"order": "shortest"}
    system.sections["queues"] = {"short": {"max_time_limit_s": 60.0}}
    system.sections["api"] = {"max_body": 2048}
    system.sections["nodes"]["gpu02"] = {**NODE, "gpus": "simulated:2xA100", "labels": {"rack": "r7"}}
    system.config.write_text(tomli_w.dumps(system.sections))
    send_sighup(system, "configuration read again")
    system.await_nodes("gpu01", "gpu02")
    assert system.controller.pid == pid
    assert system.controller.poll() is None
    assert 'scheduler.order: "priority" -> "shortest"' in system.log_end()
    assert "api.max_body has changed and needs a restart of the controller" in system.log_end()
    corral(system, "submit", "--queue", "short", "--time", "1h", "--", "true", code=2)
    assert [each.pid for each in system.processes("job")] == [job.pid], "what runs goes on"
    system.corral("job", "cancel", "1")
    system.await_jobs([3], JobState.RUNNING)
    assert system.jobs()[2].state is JobState.QUEUED

    # A node that the file no longer names stays as long as it has a job, and takes no new one.
    del system.sections["nodes"]["gpu02"]
    system.sections["nodes"]["gpu03"] = system.sections["nodes"].pop("gpu01")
    system.config.write_text(tomli_w.dumps(system.sections))
    send_sighup(system, "configuration read again")
    with system.client() as client:
        nodes = {node.name: node.state for node in client.nodes().nodes}
    assert nodes["gpu01"] is NodeState.DRAINED
    assert "gpu02" not in nodes
    assert "node gpu01 still has 1 job: 3; it is drained" in system.log.read_text()
    system.await_jobs([2], JobState.RUNNING)  # on gpu03
    assert system.jobs()[3].state is JobState.RUNNING


def test_invalid_file_changes_nothing_and_is_reported_by_line(build: Callable[..., System]) -> None:
    system = build("gpu01").start()
    good = system.config.read_text()
    system.config.write_text(f'{good}\n[scheduler]\norder = "nosuch"\nordr = 1\nbackfill_depth = 0\n')
    first = len(good.splitlines()) + 3
    send_sighup(system, "nothing was changed")
    assert system.controller.poll() is None
    told = system.log.read_text()
    for line, what in enumerate(("there is no order 'nosuch'", "there is no such key", "must be"), first):
        assert f"{system.config}:{line}: " in told
        assert what in told
    with system.client() as client:
        assert client.config().since is not None
        assert [each.kind for each in client.events().events].count("ConfigApplied") == 1
    out, error = corral(system, "config", "diff", code=2)
    assert out == ""
    assert error.count(f"{system.config}:") == 3


def test_config_apply_asks_survives_a_restart_and_can_be_undone(
    build: Callable[..., System], tmp_path: Path
) -> None:
    system = build("gpu01").start()
    system.config.chmod(0o640)
    former = system.config.read_text()
    other = tmp_path / "other.toml"
    other.write_text(f'# fifo since the meeting\n{former}\n[scheduler]\norder = "fifo"\n')
    system.corral("submit", "--gpus", "8", "--time", "1h", "--", "sleep", "1000")
    system.await_jobs([1], JobState.RUNNING)
    system.corral("submit", "--gpus", "8", "--time", "1h", "--", "true")
    system.corral("submit", "--gpus", "8", "--time", "1h", "--priority", "high", "--", "true")
    _, asked = corral(system, "config", "apply", str(other), code=2)
    assert "scheduler.order" in asked
    assert "1 would start later, 1 sooner" in asked
    assert "--yes" in asked
    assert system.config.read_text() == former, "without an answer nothing is done"
    out, _ = corral(system, "config", "apply", str(other), "--dry-run", "-o", "json")
    assert '"key":"scheduler.order"' in out
    assert system.config.read_text() == former
    corral(system, "config", "apply", str(other), "--yes")
    assert system.config.read_text() == other.read_text()
    assert stat.S_IMODE(system.config.stat().st_mode) == 0o640
    assert corral(system, "config", "diff")[0].count("\n") == 1
    assert corral(system, "config", "apply", str(other), "--dry-run")[1] == "There are no changes.\n"
    with system.client() as client:
        view = client.config()
        assert (view.by, view.previous, view.file) == ("root", True, str(system.config))
        [event] = [each for each in client.events().events if each.text.startswith("root applied")]
        assert event.data["changed"] == ["scheduler.order"]
        assert "policy" not in event.data

    kept = system.config.read_text()
    assert system.stop() == 0
    system.sections["scheduler"] = {"order": "fifo"}
    system.start()  # the same configuration, written differently
    assert load(system.config).scheduler.order.name == "fifo" == policy_config_of(system).scheduler.order.name
    assert kept != system.config.read_text()
    corral(system, "config", "apply", "--previous", "--yes")
    assert system.config.read_text() == kept, "the text before this one, comments and all"
    assert system.jobs()[1].state is JobState.RUNNING


def policy_config_of(system: System) -> object:
    """The configuration in the journal."""
    applied = [event for event in read_journal(system.store_url) if isinstance(event, ConfigApplied)]
    return policy_config(applied[-1].policy)


def test_journal_with_two_configurations_is_replayed_with_both(build: Callable[..., System]) -> None:
    system = build("gpu01").start()
    system.corral("submit", "--gpus", "8", "--time", "1h", "--", "sleep", "1000")
    system.await_jobs([1], JobState.RUNNING)
    for limit in ("3h", "1h"):
        system.corral("submit", "--gpus", "8", "--time", limit, "--", "sleep", "1000")
    first = load(system.config)
    system.sections["scheduler"] = {"order": "shortest"}
    system.sections["overcommit"] = {"cpu": 2.0}
    system.config.write_text(tomli_w.dumps(system.sections))
    send_sighup(system, "configuration read again")
    system.corral("job", "cancel", "1")
    system.await_jobs([3], JobState.RUNNING)
    with system.client() as client:
        [node] = client.nodes().nodes
        assert node.cpu_milli == 2 * 64_000
    assert system.stop() == 0
    journal = read_journal(system.store_url)
    again = Replay(
        history_of(journal),
        build_pipeline(first),
        policies=lambda policy: build_pipeline(policy_config(policy)),
    )
    again.run()
    assert again.as_recorded == again.placements == 2
    under_the_first = Replay(history_of(journal), build_pipeline(first))
    under_the_first.run()
    assert under_the_first.as_recorded == 1, "the first configuration would have started job 2 next"


def test_closed_terminal_ends_a_foreground_controller(build: Callable[..., System]) -> None:
    system = build("gpu01")
    system.config.write_text(tomli_w.dumps(system.sections))
    ours, theirs = pty.openpty()
    with system.log.open("wb") as log:
        controller = subprocess.Popen(
            [sys.executable, "-P", "-m", "controller", "--config", str(system.config)],
            stdin=theirs,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    os.close(theirs)
    try:
        system.until(lambda: "ready" in system.log.read_text(), "the controller is ready")
        controller.send_signal(signal.SIGHUP)  # with a terminal: the file is read again
        system.until(lambda: "configuration read again" in system.log.read_text(), "it is read again")
        assert controller.poll() is None
        os.close(ours)
        controller.send_signal(signal.SIGHUP)  # as the kernel and the shell do when it has gone
        assert controller.wait(PATIENCE_S) == 0
        assert "stopped" in system.log.read_text()
    finally:
        if controller.poll() is None:
            controller.kill()
            controller.wait()


def test_configuration_in_effect_is_shown_with_the_source_of_each_key(build: Callable[..., System]) -> None:
    system = build("gpu01").start()
    system.sections["scheduler"] = {"order": "fifo"}
    system.sections["api"] = {"max_body": 2048}
    system.config.write_text(tomli_w.dumps(system.sections))
    corral(system, "config", "apply", "--yes")
    out, note = corral(system, "config", "show")
    line = system.config.read_text().splitlines().index('order = "fifo"') + 1
    assert re.search(rf'scheduler\.order +"fifo" +{re.escape(str(system.config))}:{line}\n', out)
    assert "(after a restart: 2048)" in out
    assert "keys with default values not shown" in note
    out, _ = corral(system, "config", "show", "-o", "jsonpath={.settings[?(@.key=='scheduler.order')].value}")
    assert out == '"fifo"\n'
    _, error = corral(system, "config", "show", "scheduller", code=3)
    assert "there is no key 'scheduller' with a value" in error
    assert "Did you mean 'scheduler'?" in error
