"""`corral web`, against a real controller: who gets in, and what the page loads."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from tests.browser import CHROMIUM, MISSING, chromium, until
from tests.limits import PATIENCE_S
from tests.systems import System, system
from wire.job.spec import JobSpec
from wire.names import JobState

pytest.importorskip("textual_serve", reason="the package textual-serve is not installed")
in_browser = pytest.mark.skipif(not CHROMIUM, reason=MISSING)


class Web:
    """A running `corral web`."""

    def __init__(self, cluster: System, *words: str) -> None:
        state = {"CORRAL_URL": f"unix://{cluster.socket}", "XDG_STATE_HOME": str(cluster.place)}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cli", "web", "--port", "0", *words],
            env={**os.environ, **state},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.link = self.next_link()
        self.address = self.link.partition("/?")[0]

    def next_link(self) -> str:
        """Read the link that is printed next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(self.process.stderr.read())
        return line

    def children(self) -> list[int]:
        """The terminal UI processes."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def cluster() -> Iterator[System]:
    with system("gpu01", "gpu02") as made:
        made.start()
        with made.client() as client:
            (first,) = client.submit(JobSpec(("sleep", "600"), name="shown-job", gpus=8, workdir="/")).ids
        made.await_jobs([first], JobState.RUNNING)
        yield made


@pytest.fixture
def served(cluster: System) -> Iterator[Web]:
    made = Web(cluster)
    yield made
    if made.process.poll() is None:
        made.stop()


def alive(pids: list[int]) -> list[int]:
    """The processes that have not ended."""
    return [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists()]


async def test_a_link_works_once_and_then_the_cookie_is_needed(served: Web) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as stranger:
        for path in ("/", "/page.js", "/static/js/textual.js", "/ws", "/?token=wrong", "/?token="):
            async with stranger.get(served.address + path) as answer:
                assert (path, answer.status) == (path, 403)
        async with stranger.get(served.link, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            assert "HttpOnly; Path=/; SameSite=Lax" in answer.headers["Set-Cookie"]
        async with stranger.get(served.address) as answer:
            assert answer.status == 200
            page = await answer.text()
    async with aiohttp.ClientSession() as second, second.get(served.link) as answer:
        assert answer.status == 403
        assert "was used before" in await answer.text()
    assert served.next_link() != served.link
    assert not re.findall(r"https?://|src=\"//", page)
    assert URL(served.address).host == "127.0.0.1"


async def test_a_name_that_an_attacker_resolves_to_loopback_is_refused(served: Web) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        for host in (
            "evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "",
        ):
            async with browser.get(served.link, headers={"Host": host}) as answer:
                assert (host, answer.status) == (host, 403)
        async with browser.get(
            served.link.replace("127.0.0.1", "localhost"), headers={"Host": "localhost:1"}
        ) as answer:
            assert answer.status == 200


async def test_a_websocket_of_another_site_is_refused(served: Web) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        await browser.get(served.link)
        for origin in (
            {},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
        ):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await browser.ws_connect(served.address + "/ws", headers=origin)
            assert refused.value.status == 403
        assert served.children() == []
        async with browser.ws_connect(served.address + "/ws", headers={"Origin": served.address}) as socket:
            assert await socket.receive_bytes(timeout=PATIENCE_S)
            assert len(served.children()) == 1


async def test_the_terminal_ui_ends_if_the_server_is_killed(served: Web) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        await browser.get(served.link)
        async with browser.ws_connect(served.address + "/ws", headers={"Origin": served.address}) as socket:
            await socket.receive_bytes(timeout=PATIENCE_S)
            children = served.children()
            assert len(children) == 1
            served.process.send_signal(signal.SIGKILL)
            served.process.wait(PATIENCE_S)

            async def ended() -> bool:
                return not alive(children)

            await until(ended, lambda: f"{children} have ended")


@in_browser
async def test_a_browser_shows_the_queue_and_obeys_keys(served: Web) -> None:
    async with chromium() as browser:
        tab, other = await browser.tab(), await browser.tab(800, 500)
        await tab.go(served.link)
        await tab.see("● live", "every GPU", "read-only")
        await tab.press("1")
        await tab.see("shown-job", "● running", "8/16 GPUs")
        await tab.press("2")
        await tab.see("NUMA 1", "gpu02")
        assert {URL(address).authority for address in tab.requests} == {URL(served.address).authority}

        # The link is void in another browser, and the next link opens a second terminal UI.
        await other.go(served.link)
        await other.see("403", "was used before")
        await other.go(served.next_link())
        await other.see("● live", "every GPU")
        children = served.children()
        assert len(children) == 2

        await tab.close()

        async def one_left() -> bool:
            return len(alive(children)) == 1

        await until(one_left, lambda: "one terminal UI has ended")
        await other.press("1")
        await other.see("shown-job")
        assert served.stop() == 0
        assert alive(children) == []
        await other.see("The terminal UI of this tab has ended")


@in_browser
async def test_with_write_the_browser_can_change_the_cluster(cluster: System) -> None:
    served = Web(cluster, "--write")
    async with chromium() as browser:
        tab = await browser.tab()
        await tab.go(served.link)
        shown = await tab.see("● live", "every GPU")
        assert "read-only" not in shown
        await tab.press("2")
        await tab.see("gpu02", "NUMA 1")
        await tab.press("D")
        await tab.see("Drain gpu01?", "$ corral nodes drain gpu01")
    assert served.stop() == 0


@pytest.mark.parametrize(
    ("words", "url", "code", "error"),
    [
        (("--host", "0.0.0.0"), "", 2, "'0.0.0.0' is no loopback address"),
        (("--port", "PORT"), "", 1, "cannot listen on 127.0.0.1 port PORT"),
        ((), "unix:///nowhere", 7, "no controller at unix:///nowhere"),
    ],
    ids=["not loopback", "port in use", "no controller"],
)
def test_errors_name_the_remedy(
    served: Web, cluster: System, words: tuple[str, ...], url: str, code: int, error: str
) -> None:
    port = served.address.rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cli", "web", *(word.replace("PORT", port) for word in words)],
        env={**os.environ, "CORRAL_URL": url or f"unix://{cluster.socket}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code
    assert error.replace("PORT", port) in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
