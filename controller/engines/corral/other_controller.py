"""Sends requests to the controller of another cluster, each in a thread of the engine, because the API client
waits for its answers.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from controller.engines.contract import EngineUnavailable
from wire import trusted_paths
from wire.http.client import Client, Refused, Unreachable

T = TypeVar("T")
MOST_REQUESTS = 4
"""The most requests that run at the same time. Requests for logs do not count."""
MOST_PIECES = 8
"""The most pieces of a log that wait for their reader."""


class OtherController:
    """The connections to one other controller.

    1. A request runs in one of MOST_REQUESTS threads, with a connection that no other request uses at the
       same time.
    2. A connection that was lost is closed, and the next request opens another one.
    3. A log gets a thread and a connection of its own, because a job may write nothing for days. At most
       MOST_PIECES pieces wait for a slow reader.
    """

    def __init__(self, url: str, token_file: str, ca: str, timeout_s: float) -> None:
        self.url = url
        self._token_file, self._ca, self._timeout_s = token_file, ca, timeout_s
        self._threads = ThreadPoolExecutor(MOST_REQUESTS, thread_name_prefix="other-corral")
        self._idle: list[Client] = []
        self._open: set[Client] = set()

    async def call(self, work: Callable[[Client], T]) -> T:
        """Run `work` with a connection in a thread, and return its result. Raise EngineUnavailable if the
        controller cannot be reached, and Refused if it refuses the request.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._with_client, work)

    def _with_client(self, work: Callable[[Client], T]) -> T:
        try:
            client = self._idle.pop() if self._idle else self._new_client()
        except Unreachable as error:
            raise self._unavailable(error) from None
        try:
            answer = work(client)
        except Unreachable as error:
            self._drop(client)
            raise self._unavailable(error) from None
        except Refused:
            self._idle.append(client)
            raise
        except BaseException:
            self._drop(client)
            raise
        self._idle.append(client)
        return answer

    async def pieces(self, read: Callable[[Client], Iterator[bytes]]) -> AsyncIterator[bytes]:
        """Run `read` in a thread of its own, and yield the pieces of the log that it yields. Raise
        EngineUnavailable or Refused as `call` does. The thread ends soon after this iterator was closed.
        """
        loop = asyncio.get_running_loop()
        found: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        room = threading.Semaphore(MOST_PIECES)
        stopped = threading.Event()
        clients: list[Client] = []

        def give(piece: bytes | Exception | None) -> None:
            with suppress(RuntimeError):  # because the event loop is closed when the controller stops
                loop.call_soon_threadsafe(found.put_nowait, piece)

        def run() -> None:
            try:
                clients.append(self._new_client())
                if stopped.is_set():
                    return
                for piece in read(clients[0]):
                    room.acquire()
                    if stopped.is_set():
                        return
                    give(piece)
                give(None)
            except Unreachable as error:
                give(self._unavailable(error))
            except Exception as error:
                give(error)
            finally:
                for each in clients:
                    self._drop(each)

        threading.Thread(target=run, name="other-corral-log", daemon=True).start()
        try:
            while (piece := await found.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                room.release()
                yield piece
        finally:
            stopped.set()
            room.release()
            for each in clients:
                each.close()

    def close(self) -> None:
        """Close all connections. Requests that are under way then fail."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for client in list(self._open):
            client.close()

    def _new_client(self) -> Client:
        token = self._token() if self._token_file else ""
        client = Client(self.url, timeout_s=self._timeout_s, token=token, ca=self._ca)
        self._open.add(client)
        return client

    def _token(self) -> str:
        try:
            with open(
                trusted_paths.open_file(os.path.expanduser(self._token_file)), encoding="ascii"
            ) as file:
                return file.readline().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unreachable(
                self.url,
                f"the token file {self._token_file} cannot be read: {error}",
                "Set token_file to a file with the token of the other controller, of mode 0600.",
            ) from None

    def _drop(self, client: Client) -> None:
        self._open.discard(client)
        client.close()

    def _unavailable(self, error: Unreachable) -> EngineUnavailable:
        return EngineUnavailable(f"{error}. {error.hint}" if error.hint else str(error))
