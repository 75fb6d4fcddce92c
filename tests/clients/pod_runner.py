"""A stand-in for the kubelet of one node: runs the containers of Pods as processes of this host.

Arguments: the address of the API server, a token, the node as JSON, a directory for output, and the files of
a certificate and its key. Its process has a session of its own, and the processes of Pods end with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import ssl
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

MERGE = {"Content-Type": "application/merge-patch+json"}
MISSING_IMAGE = "missing"
"""A Pod whose image has this name waits with ImagePullBackOff."""


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Node:
    """The Pods of one node. Each Pod with this node's name runs once, in a task of its own."""

    def __init__(
        self, session: aiohttp.ClientSession, server: str, shape: dict[str, Any], folder: Path
    ) -> None:
        self.session, self.server, self.folder = session, server, folder
        self.name, self.cpus, self.gpus = shape["name"], shape["cpus"], shape["gpus"]
        self.labels = shape["labels"]
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.deleted: dict[str, asyncio.Event] = {}
        self.grace: dict[str, int] = {}
        self.running: dict[str, tuple[int, int]] = {}
        self.names: dict[str, tuple[str, str]] = {}
        """The namespace and the name of each Pod."""

    async def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        """Make a request, and repeat it while the API server does not answer."""
        while True:
            with suppress(aiohttp.ClientError, OSError):
                async with self.session.request(
                    method, self.server + path, json=body, headers=headers
                ) as answer:
                    if answer.status < 500 and answer.status != 429:
                        return answer.status, await answer.json()
            await asyncio.sleep(0.2)

    async def register(self, port: int) -> None:
        metadata = {"name": self.name, "labels": {"kubernetes.io/hostname": self.name, **self.labels}}
        await self.call("POST", "/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": metadata})
        capacity = {"cpu": str(self.cpus), "memory": "64Gi", "pods": "500", "nvidia.com/gpu": str(self.gpus)}
        while True:
            condition = {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "lastHeartbeatTime": now(),
            }
            status = {
                "capacity": capacity,
                "allocatable": capacity,
                "conditions": [condition],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            }
            await self.call("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": status}, MERGE)
            await asyncio.sleep(5)

    async def follow(self) -> None:
        """List and watch the Pods of this node. Begin again if the watch ends."""
        query = f"/api/v1/pods?fieldSelector=spec.nodeName={self.name}"
        while True:
            _, listed = await self.call("GET", query)
            for pod in listed["items"]:
                self.take(pod)
            version = listed["metadata"]["resourceVersion"]
            with suppress(aiohttp.ClientError, OSError):
                async with self.session.get(
                    f"{self.server}{query}&watch=1&resourceVersion={version}",
                    timeout=aiohttp.ClientTimeout(total=None),
                ) as answer:
                    async for line in answer.content:
                        event = json.loads(line)
                        if event["type"] in ("ADDED", "MODIFIED"):
                            self.take(event["object"])
            await asyncio.sleep(0.2)

    def take(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self.tasks:
            self.deleted[uid] = asyncio.Event()
            self.names[uid] = pod["metadata"]["namespace"], pod["metadata"]["name"]
            self.tasks[uid] = asyncio.create_task(self.run(pod, uid))
        if pod["metadata"].get("deletionTimestamp"):
            self.grace[uid] = int(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
            self.deleted[uid].set()

    async def status(
        self, pod: dict[str, Any], phase: str, state: dict[str, Any] | None, **more: Any
    ) -> None:
        meta, container = pod["metadata"], pod["spec"]["containers"][0]
        body: dict[str, Any] = {"phase": phase, "hostIP": "127.0.0.1", **more}
        if state is not None:
            body["containerStatuses"] = [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": "running" in state,
                    "restartCount": 0,
                    "state": state,
                }
            ]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        await self.call("PATCH", path, {"metadata": {"uid": meta["uid"]}, "status": body}, MERGE)

    async def run(self, pod: dict[str, Any], uid: str) -> None:
        if (pod.get("status") or {}).get("phase", "Pending") == "Pending":
            await self.start(pod, uid)
        await self.deleted[uid].wait()
        (self.folder / uid).unlink(
            missing_ok=True
        )  # because a kubelet removes the containers of deleted Pods
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        await self.call("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})

    async def start(self, pod: dict[str, Any], uid: str) -> None:
        container = pod["spec"]["containers"][0]
        requests = container["resources"].get("requests", {})
        cpu = int(requests.get("cpu", "0m").removesuffix("m")) * (
            1 if requests.get("cpu", "")[-1:] == "m" else 1_000
        )
        wanted = cpu, int(requests.get("nvidia.com/gpu", 0))
        used = [sum(each[kind] for each in self.running.values()) for kind in (0, 1)]
        for kind, have, what in ((0, self.cpus * 1_000, "cpu"), (1, self.gpus, "nvidia.com/gpu")):
            if used[kind] + wanted[kind] > have:
                await self.status(
                    pod, "Failed", None, reason=f"OutOf{what}", message=f"Node has not enough {what}"
                )
                return
        if MISSING_IMAGE in container["image"]:
            waiting = {
                "reason": "ImagePullBackOff",
                "message": f'Back-off pulling image "{container["image"]}"',
            }
            await self.status(pod, "Pending", {"waiting": waiting})
            return
        self.running[uid] = wanted
        try:
            await self.execute(pod, uid, container)
        finally:
            del self.running[uid]

    async def execute(self, pod: dict[str, Any], uid: str, container: dict[str, Any]) -> None:
        security = pod["spec"].get("securityContext") or {}
        words = [each.replace("$$", "$") for each in container["command"]]
        began = now()
        with open(self.folder / uid, "wb") as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd="/",
                    env={
                        "PATH": os.environ["PATH"],
                        **{
                            each["name"]: each["value"].replace("$$", "$")
                            for each in container.get("env", ())
                        },
                    },
                    start_new_session=True,
                    user=security.get("runAsUser"),
                    group=security.get("runAsGroup"),
                    extra_groups=security.get("supplementalGroups", []),
                    preexec_fn=die_with_parent,
                )
            except OSError as error:
                ended = {"exitCode": 128, "reason": "StartError", "message": str(error), "startedAt": began}
                await self.status(pod, "Failed", {"terminated": {**ended, "finishedAt": now()}})
                return
        await self.status(pod, "Running", {"running": {"startedAt": began}}, startTime=began)
        limit = container["resources"].get("limits", {}).get("memory", "0Mi").removesuffix("Mi")
        stopper = asyncio.create_task(self.stop_when_deleted(uid, process.pid))
        watcher = asyncio.create_task(self.watch_memory(process.pid, int(limit)))
        code = await process.wait()
        stopper.cancel()
        watcher.cancel()
        reason = (
            "OOMKilled"
            if watcher.done() and not watcher.cancelled()
            else "Completed"
            if code == 0
            else "Error"
        )
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        ended = {
            "exitCode": code if code >= 0 else 128 - code,
            "reason": reason,
            "startedAt": began,
            "finishedAt": now(),
        }
        await self.status(pod, "Succeeded" if code == 0 else "Failed", {"terminated": ended})

    async def stop_when_deleted(self, uid: str, pid: int) -> None:
        await self.deleted[uid].wait()
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)
            waited = 0.0
            while waited < self.grace[uid]:  # because a later delete may make the grace shorter
                await asyncio.sleep(0.1)
                waited += 0.1
            os.killpg(pid, signal.SIGKILL)

    async def watch_memory(self, pid: int, limit_mib: int) -> None:
        """Kill a process that uses more memory than its limit, as the kernel does in a container."""
        while True:
            await asyncio.sleep(0.1)
            with suppress(OSError):
                text = Path(f"/proc/{pid}/status").read_text()
                sizes = [int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")]
                if limit_mib and sizes and sizes[0] > limit_mib * 1_024:
                    os.killpg(pid, signal.SIGKILL)
                    return

    async def log(self, request: web.Request) -> web.StreamResponse:
        """Answer GET /containerLogs/NAMESPACE/POD/CONTAINER, which the API server passes on."""
        wanted = request.match_info["namespace"], request.match_info["pod"]
        found = [uid for uid, name in self.names.items() if name == wanted and (self.folder / uid).exists()]
        if not found:
            return web.Response(status=404, text="container not found")
        answer = web.StreamResponse()
        await answer.prepare(request)
        with (self.folder / found[-1]).open("rb") as file:
            while True:
                running = found[-1] in self.running
                piece = file.read(65_536)
                if piece:
                    await answer.write(piece)
                elif not running or request.query.get("follow") != "true":
                    return answer
                else:
                    await asyncio.sleep(0.05)


async def main() -> None:
    server, token, shape, folder, certificate, key = sys.argv[1:]
    headers = {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(ssl=False, limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector, read_bufsize=1 << 22) as session:
        node = Node(session, server, json.loads(shape), Path(folder))
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", node.log)
        runner = web.AppRunner(app)
        await runner.setup()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        async with asyncio.TaskGroup() as group:
            group.create_task(node.register(port))
            group.create_task(node.follow())


asyncio.run(main())
