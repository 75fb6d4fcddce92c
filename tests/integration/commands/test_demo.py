"""The demo ends by itself with success, and leaves no processes and files, however it ends."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.limits import PATIENCE_S

DEMO = [sys.executable, "-P", "-u", "-m", "cli", "demo"]
QUICK_DEMO = """
import functools, runpy, sys
from cli.demo import demo
demo.submit_all = functools.partial(demo.submit_all, stretch=0.3)
sys.argv = ["cli", "demo"]
runpy.run_module("cli", run_name="__main__")
"""
"""The demo with jobs that run for less than a third of their time."""
PLACE = re.compile(r"/\S*corral-demo-\w+")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user's environment, with settings that must not reach the demo's controller."""
    misleading = {"CORRAL_CONTROLLER__SOCKET": "/nowhere/x.sock", "CORRAL_URL": "unix:///nowhere/x.sock"}
    # the UI saves its filters here, not in the home of the user who runs the test
    own = {"XDG_STATE_HOME": str(tmp_path)}
    return {**os.environ, **misleading, **own, "TERM": "xterm-256color"}


def left_of(place: str) -> list[str]:
    """Return processes that have the directory as an argument or work in it, and the directory itself if it
    exists.
    """
    found = [place] if os.path.exists(place) else []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            inside = entry.name.isdigit() and os.readlink(entry / "cwd").startswith(place)
        except OSError:
            continue
        if place.encode() in words or inside:
            found.append(f"{entry.name} {words!r}")
    return found


def begin(environment: dict[str, str], *, quick: bool = False) -> subprocess.Popen[str]:
    """Start the demo without a terminal."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", QUICK_DEMO] if quick else DEMO,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_until(demo: subprocess.Popen[str], words: str) -> str:
    """Read lines up to one with these words. Returns the directory of the demo."""
    assert demo.stdout is not None
    place = ""
    for line in demo.stdout:
        named = PLACE.search(line)
        place = place or (named[0] if named else "")
        if words in line:
            return place
    raise AssertionError(f"the demo ended without saying {words!r}")


@pytest.mark.slow
def test_demo_without_a_terminal_ends_with_success(environment: dict[str, str]) -> None:
    demo = begin(environment, quick=True)
    place = read_until(demo, "Starting a controller")
    out, err = demo.communicate(timeout=PATIENCE_S)
    assert (demo.returncode, err) == (0, "")
    assert "whole-genome: refused at once, as expected: can never be placed" in out
    summary = out[out.index("USER ") :]
    assert re.findall(r"^(\w+) ", summary, re.MULTILINE)[1:7] == ["ada", "bo", "chen", "dina", "emil", "all"]
    assert re.search(r"^all +39 +37 +1 +1 ", summary, re.MULTILINE)
    assert left_of(place) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("Starting a controller", signal.SIGINT),
        ("are up", signal.SIGTERM),
    ],
)
def test_demo_interrupted_at_any_moment_leaves_nothing(
    environment: dict[str, str], words: str, number: signal.Signals
) -> None:
    demo = begin(environment)
    place = read_until(demo, words)
    demo.send_signal(number)
    demo.send_signal(number)
    _, err = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 128 + number
    assert "its files are removed" in err
    assert left_of(place) == []


@pytest.mark.slow
def test_demo_reports_a_dead_controller_and_ends_its_jobs(environment: dict[str, str]) -> None:
    demo = begin(environment)
    place = read_until(demo, "2 s ")
    [controller] = [word.split()[0] for word in left_of(place) if "controller" in word and word[0].isdigit()]
    os.kill(int(controller), signal.SIGKILL)
    _, err = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 1
    assert "the controller ended with code -9" in err
    assert left_of(place) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["q", "hang up"])
def test_demo_on_a_terminal_opens_the_ui_and_ends_with_it(environment: dict[str, str], how: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(DEMO[0], DEMO, environment)
    seen = ""
    # The UI shows this once it has loaded the cluster: a job that runs on one of the nodes.
    deadline = time.monotonic() + PATIENCE_S
    while not re.search(r"\x1b\[\?1049h.*gpu0[1-4]", seen, re.DOTALL):
        assert select.select([terminal], [], [], deadline - time.monotonic())[0], seen[-2000:]
        seen += os.read(terminal, 65_536).decode(errors="replace")
    named = PLACE.search(seen)
    assert named is not None
    if how == "q":
        os.write(terminal, b"q")
        assert "\x1b[?1049l" in _rest_of(terminal), "the screen is given back"
    else:
        os.close(terminal)
    _, status = os.waitpid(pid, 0)
    expected = {"q": 0, "hang up": 129}
    assert os.waitstatus_to_exitcode(status) == expected[how]
    assert left_of(named[0]) == []


@pytest.mark.slow
def test_demo_in_a_browser_prints_a_link_and_ends_with_ctrl_c(environment: dict[str, str]) -> None:
    pytest.importorskip("textual_serve", reason="the package textual-serve is not installed")
    demo = subprocess.Popen(
        [*DEMO, "--web"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert demo.stdout is not None
    place = link = ""
    while not link:
        line = demo.stdout.readline()
        assert line, "the demo ended without a link"
        place = place or (PLACE.search(line) or [""])[0]
        link = line.strip() if line.startswith("http://127.0.0.1:") else ""
    with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(link) as page:
        assert b'id="terminal"' in page.read()
    os.killpg(demo.pid, signal.SIGINT)
    _, err = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 130
    assert "its files are removed" in err
    assert left_of(place) == []


def _rest_of(terminal: int) -> str:
    seen = b""
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # Linux reports with this error that the other end is closed
            return seen.decode(errors="replace")
        if not piece:
            return seen.decode(errors="replace")
        seen += piece
