"""Health checks: a command in the allocation of a job, or a URL, with failures that count and timeouts."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.agent_process import AgentProcess, eventually
from wire.agent.reports import HealthReport
from wire.job.health import HealthCheck

Run = Callable[..., AgentProcess]


def reports(agent: AgentProcess, count: int) -> list[tuple[bool, str]]:
    """The first reports about the health of job 1, when there are this many."""

    def found(said: list[object]) -> list[tuple[bool, str]] | None:
        known = [(each.healthy, each.why) for each in said if isinstance(each, HealthReport)]
        return known if len(known) >= count else None

    return agent.until(found)  # type: ignore[arg-type]


def check(*command: str, **more: object) -> HealthCheck:
    fast = {"every_s": 0.1, "timeout_s": 30.0, "failures": 2, "start_s": 0.0}
    return HealthCheck(command, **{**fast, **more})  # type: ignore[arg-type]


@pytest.fixture
def server() -> Iterator[str]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/well?now" else 503)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


def test_the_health_command_runs_with_the_environment_of_the_job(run: Run, tmp_path: Path) -> None:
    agent = run()
    script = 'test "$MINE" = yes && test -e well || { echo it is ill; exit 3; }'
    (tmp_path / "well").touch()
    agent.start(
        1, "sleep", "1000", env={"MINE": "yes"}, workdir=str(tmp_path), health=check("sh", "-c", script)
    )
    assert reports(agent, 1) == [(True, "")]
    (tmp_path / "well").unlink()
    assert reports(agent, 2)[1] == (False, "exit code 3: it is ill")
    (tmp_path / "well").touch()
    assert reports(agent, 3)[2] == (True, "")


def test_failures_after_the_start_count_only_when_a_check_has_passed(run: Run, tmp_path: Path) -> None:
    agent, script = run(), "echo >>tries; test -e well"
    health = check("sh", "-c", script, start_s=86_400.0)
    agent.start(1, "sleep", "1000", workdir=str(tmp_path), health=health)
    tries = tmp_path / "tries"
    eventually(lambda: tries.exists() and len(tries.read_text()) > health.failures + 1)
    (tmp_path / "well").touch()
    assert reports(agent, 1) == [(True, "")]
    (tmp_path / "well").unlink()
    assert reports(agent, 2)[1] == (False, "exit code 1")


def test_a_check_that_takes_too_long_fails_and_is_ended(run: Run, tmp_path: Path) -> None:
    agent = run()
    health = check("sh", "-c", "exec >/dev/null 2>&1; sleep 1000", timeout_s=0.2, failures=1)
    agent.start(1, "sleep", "1000", workdir=str(tmp_path), health=health)
    assert reports(agent, 1) == [(False, "no answer within 0.2 s")]


def test_a_url_is_requested_from_the_node(run: Run, server: str) -> None:
    agent = run()
    agent.start(1, "sleep", "1000", health=check(url=f"{server}/well?now"))
    assert reports(agent, 1) == [(True, "")]


def test_an_error_of_the_server_is_the_reason(run: Run, server: str) -> None:
    agent = run()
    agent.start(1, "sleep", "1000", health=check(url=f"{server}/ill"))
    assert reports(agent, 1) == [(False, "HTTP status 503")]


def test_only_the_first_node_of_a_job_is_checked(run: Run, tmp_path: Path) -> None:
    agent = run()
    agent.start(2, "sleep", "1000", rank=1, health=check("touch", str(tmp_path / "second")))
    agent.start(1, "sleep", "1000", health=check("touch", str(tmp_path / "first")))
    assert reports(agent, 1) == [(True, "")]
    assert not (tmp_path / "second").exists()
