"""Failures of an API server that a real one does not show on request, played by a small HTTP server."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from controller.engines.contract import EngineScope, EngineUnavailable
from controller.engines.kubernetes import watched_list
from controller.engines.kubernetes.kube_access import ClusterAccess
from controller.engines.kubernetes.kube_api import KubeApi, KubeRefusal
from controller.engines.kubernetes.kube_engine import KubernetesEngine
from controller.engines.kubernetes.kube_options import KubernetesEngineType
from controller.engines.kubernetes.watched_list import WatchedList
from controller.engines.tags import prefix_of

PATIENCE_S = 60.0


class Script:
    """Answers each request with the next answer: a status with a body, or lines of a watch."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.queries: list[dict[str, str]] = []
        self.stay = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        if not self.answers:
            await self.stay.wait()
        status, body = self.answers.pop(0)
        if not isinstance(body, list):
            return web.json_response(body, status=status, headers={"Retry-After": "0"})
        answer = web.StreamResponse()
        await answer.prepare(request)
        for each in body:
            await answer.write(json.dumps(each).encode() + b"\n")
        return answer


@pytest.fixture
async def server() -> AsyncIterator[tuple[Script, KubeApi]]:
    script = Script()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.handle)
    async with TestServer(app) as started:
        api = KubeApi(lambda: ClusterAccess(str(started.make_url("/")).rstrip("/"), None, lambda: "t"), 30.0)
        yield script, api
        script.answers += [(200, {})] * 3
        script.stay.set()
        await api.close()


def pod(uid: str, version: str = "1") -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": version}}


def page(*uids: str, version: str, more: str = "") -> dict[str, Any]:
    return {"items": [pod(each) for each in uids], "metadata": {"resourceVersion": version, "continue": more}}


def watched(api: KubeApi) -> WatchedList[str]:
    return WatchedList(api, "/pods", {}, lambda found: str(found["metadata"]["uid"]))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_busy_server_is_asked_again(server: tuple[Script, KubeApi]) -> None:
    script, api = server
    script.answers = [(429, {}), (503, {}), (200, {"kind": "Pod"})]
    assert await api.call("GET", "/pods/a") == {"kind": "Pod"}
    script.answers = [(500, {"message": "etcd has no leader"})] * 5
    with pytest.raises(EngineUnavailable, match="answered 500 5 times: etcd has no leader"):
        await api.call("GET", "/pods/a")


@pytest.mark.parametrize(
    ("status", "message", "problem"),
    [
        (401, "Unauthorized", "does not accept the credentials"),
        (
            403,
            'pods is forbidden: User "u" cannot list resource "pods"',
            'a right is missing: .*list resource "pods"',
        ),
        (403, "exceeded quota: gpu", "the API server refuses: exceeded quota"),
    ],
)
async def test_refusals_name_the_missing_right(
    server: tuple[Script, KubeApi], status: int, message: str, problem: str
) -> None:
    script, api = server
    script.answers = [(status, {"message": message, "reason": "Forbidden"})]
    with pytest.raises(KubeRefusal) as raised:
        await api.call("GET", "/pods")
    raised.match(message[:20])
    assert re.search(problem, raised.value.problem)
    assert len(script.queries) == 1


async def test_a_list_begins_again_if_the_server_drops_its_pages(server: tuple[Script, KubeApi]) -> None:
    script, api = server
    script.answers = [
        (200, page("a", version="5", more="next")),
        (410, {"reason": "Expired"}),
        (200, page("a", "b", version="9", more="next")),
        (200, page("c", version="9")),
    ]
    found, version = await api.list_all("/pods", {"labelSelector": "x=y"})
    assert ([each["metadata"]["uid"] for each in found], version) == (["a", "b", "c"], "9")
    assert [each.get("continue", "") for each in script.queries] == ["", "next", "", "next"]
    assert {each["labelSelector"] for each in script.queries} == {"x=y"}


async def test_a_watch_resumes_at_the_last_bookmark_and_relists_after_410(
    server: tuple[Script, KubeApi],
) -> None:
    script, api = server
    script.answers = [
        (200, page("a", version="5")),
        (200, [{"type": "ADDED", "object": pod("b", "6")}, {"type": "DELETED", "object": pod("a", "7")}]),
        (200, [{"type": "BOOKMARK", "object": pod("", "20")}]),
        (200, [{"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}]),
        (200, page("c", version="30")),
    ]
    objects = watched(api)
    await objects.current()
    await until(lambda: len(script.answers) == 1)
    versions = [each["resourceVersion"] for each in script.queries if "watch" in each]
    assert versions == ["5", "7", "20"]
    await until(lambda: objects.lists == 1)

    async def relisted() -> None:
        while (await objects.current())[0] != ["c"]:
            await asyncio.sleep(0.01)

    async with asyncio.timeout(PATIENCE_S):
        await relisted()
    assert objects.lists == 2
    await objects.close()


async def test_a_made_object_is_listed_at_once_and_a_removed_one_does_not_come_back(
    server: tuple[Script, KubeApi],
) -> None:
    script, api = server
    script.answers = [(200, page("a", version="5"))]
    objects = watched(api)
    await objects.current()
    objects.put(pod("b"))
    objects.remove("a")
    script.answers = [(200, [{"type": "MODIFIED", "object": pod("a", "6")}])]
    script.stay.set()
    await until(lambda: not script.answers)
    assert (await objects.current())[0] == ["b"]
    await objects.close()


async def test_the_age_of_a_look_is_that_of_its_oldest_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watches of Pods and of nodes get a bookmark, the watch of other Pods gets none."""
    monkeypatch.setattr(watched_list, "FRESH_S", 1e9)
    told, stay = asyncio.Event(), asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response(page(version="5"))
        answer = web.StreamResponse()
        await answer.prepare(request)
        await (stay if request.path == "/api/v1/pods" else told).wait()
        with suppress(ConnectionError):
            await answer.write(json.dumps({"type": "BOOKMARK", "object": pod("", "6")}).encode() + b"\n")
            await stay.wait()
        return answer

    app = web.Application()
    app.router.add_route("GET", "/{path:.*}", handle)
    async with TestServer(app) as started:
        (tmp_path / "config").write_text(kubeconfig(str(started.make_url("/"))))
        (tmp_path / "config").chmod(0o600)
        scope = EngineScope("kube", prefix_of("0123456789abcdef"), str(tmp_path))
        engine = KubernetesEngineType(kubeconfig=str(tmp_path / "config")).connect(scope)
        assert isinstance(engine, KubernetesEngine)
        await engine.look()
        begun = time.monotonic()
        told.set()
        await until(lambda: engine._pods._heard > begun and engine._nodes._heard > begun)
        passed = time.monotonic() - begun
        assert (await engine.look()).age_s >= passed
        stay.set()
        await engine.close()


def kubeconfig(server: str) -> str:
    """A kubeconfig file for this address."""
    return json.dumps(
        {
            "current-context": "main",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        }
    )


async def test_a_watch_that_breaks_is_replaced_by_a_list(server: tuple[Script, KubeApi]) -> None:
    script, api = server
    script.answers = [(200, page("a", version="5")), (403, {"message": "cannot watch"})]
    objects = watched(api)
    assert (await objects.current())[0] == ["a"]
    await until(lambda: not script.answers)
    script.answers = [(200, page("b", version="6"))]
    async with asyncio.timeout(PATIENCE_S):
        while (await objects.current())[0] != ["b"]:
            await asyncio.sleep(0.01)
    await objects.close()
