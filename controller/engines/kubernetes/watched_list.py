"""Keeps a list of Kubernetes objects up to date with a watch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

from controller.engines.contract import EngineUnavailable
from controller.engines.kubernetes.kube_api import KubeApi, KubeRefusal

FRESH_S = 30.0
"""Seconds after the last message of a watch for which its list counts as current."""

RESUME_PAUSE_S = 0.2
"""Seconds between the end of a watch and the next watch."""

T = TypeVar("T")


class WatchedList(Generic[T]):
    """The objects of one list of the API server, by uid. `reduce` returns the part of an object to keep.

    1. `current` returns the objects in memory if the watch is open, and the server has sent an event or a
       bookmark within FRESH_S. Otherwise `current` reads the list from the server, in pages. So a watch that
       dies without an error is noticed.
    2. After a list has been read, a task watches the list from its version on. If the server ends the watch,
       the task resumes it at the version of the last event or bookmark.
    3. If the server no longer has this version (410 Gone), or the connection breaks, the task ends, and
       the next `current` reads the list again.

    Invariant: an answer of `current` is at most FRESH_S old, and not older than the age that it names.

    Cost: in a cluster with changes, one request every five minutes; without changes, one list every FRESH_S.
    """

    def __init__(
        self,
        api: KubeApi,
        path: str,
        query: Mapping[str, str],
        reduce: Callable[[Mapping[str, Any]], T],
        changed: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> None:
        """`changed` is called with each object of a list that was read, and with each object that the watch
        shows as new or changed.
        """
        self._api, self._path, self._query = api, path, query
        self._reduce, self._changed = reduce, changed
        self._objects: dict[str, T] = {}
        self._removed: set[str] = set()
        self._version = ""
        self._heard = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self.lists = 0
        """How often the list was read from the server."""

    async def current(self) -> tuple[list[T], float]:
        """Return the objects, and the age of the answer in seconds."""
        async with self._turn:
            age = time.monotonic() - self._heard
            if self._task is None or self._task.done() or age > FRESH_S:
                await self._read()
                age = 0.0
        return list(self._objects.values()), age

    def put(self, found: Mapping[str, Any]) -> None:
        """Add an object that was just made, before the watch shows it."""
        uid = found["metadata"]["uid"]
        if uid not in self._objects and uid not in self._removed:
            self._objects[uid] = self._reduce(found)

    def remove(self, uid: str) -> None:
        """Remove an object that was just deleted, before the watch shows its end."""
        if self._objects.pop(uid, None) is not None:
            self._removed.add(uid)

    async def close(self) -> None:
        """End the watch."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _read(self) -> None:
        await self.close()
        began = time.monotonic()
        items, version = await self._api.list_all(self._path, self._query)
        self.lists += 1
        self._removed.clear()
        self._objects = {each["metadata"]["uid"]: self._reduce(each) for each in items}
        for each in items:
            self._changed(each)
        self._version, self._heard = version, began
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        """Watch the list until the connection breaks or the version is gone (steps 2 and 3)."""
        with suppress(EngineUnavailable, KubeRefusal, ValueError):
            while True:
                async for event in self._api.watch(self._path, self._query, self._version):
                    self._apply(event)
                await asyncio.sleep(RESUME_PAUSE_S)

    def _apply(self, event: Mapping[str, Any]) -> None:
        found = event["object"]
        self._version = str(found["metadata"]["resourceVersion"])
        self._heard = time.monotonic()
        kind, uid = event["type"], found["metadata"].get("uid", "")
        if kind == "DELETED":
            self._objects.pop(uid, None)
            self._removed.discard(uid)
        elif kind in ("ADDED", "MODIFIED") and uid not in self._removed:
            self._objects[uid] = self._reduce(found)
            self._changed(found)
