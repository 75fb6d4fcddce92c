"""Runs one terminal UI process for one browser tab, and copies bytes between the process and the tab."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from aiohttp import WSMsgType
from aiohttp.web import WebSocketResponse

from wire.text import printable

DRIVER: Final = "tui.web.driver:BrowserDriver"
KILL_S: Final = 5.0
READY: Final = b"__GANGLION__\n"
"""The line that Textual's web driver writes before its first packet."""
LEAST, MOST = 1, 500
"""The least and the greatest number of columns and rows of a terminal."""
ERRORS: Final = 4_096


class BrowserSession:
    """One browser tab and its process `corral tui`.

    1. Start the process with pipes. `TEXTUAL_DRIVER` makes its Textual send packets instead of escape
       sequences: one letter, four bytes for the length, the payload.
    2. Copy the data packets (D) of the process to the WebSocket, and keys and sizes of the terminal from the
       WebSocket to the process.
    3. When the process ends, close the WebSocket. If the process ended before its first packet, show its
       error messages in the tab.
    4. When the WebSocket ends, close the stdin of the process, which ends the process (tui/web/driver.py).
       After KILL_S seconds kill the process.

    Invariant: after `run` has returned or was cancelled, the process has ended.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], socket: WebSocketResponse):
        self._command, self._environment, self._socket = command, environment, socket

    async def run(self, width: int, height: int) -> None:
        """Run the process until it ends or the WebSocket is closed. The terminal begins with this size."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**self._environment, "COLUMNS": str(_cells(width)), "ROWS": str(_cells(height))},
            # Start a new session, because Ctrl-C in the terminal of the server must reach only the server.
            # The server then ends all its processes.
            start_new_session=True,
        )
        errors = asyncio.create_task(_last_errors(process))
        output = asyncio.create_task(self._show(process, errors))
        try:
            await self._obey(process)
        finally:
            await _end(process)
            for task in (output, errors):
                task.cancel()
            await asyncio.gather(output, errors, return_exceptions=True)

    async def _show(self, process: Process, errors: asyncio.Task[bytes]) -> None:
        """Copy the output of the process to the WebSocket, and close the WebSocket at the end."""
        output = process.stdout
        assert output is not None
        with suppress(ConnectionError):
            try:
                while (line := await output.readline()) != READY:
                    if not line:
                        return await self._show_errors(await errors)
                while True:
                    kind = await output.readexactly(1)
                    payload = await output.readexactly(int.from_bytes(await output.readexactly(4), "big"))
                    if kind == b"D":
                        await self._socket.send_bytes(payload)
            except (asyncio.IncompleteReadError, ValueError):
                pass  # The process has ended, or has written something that is no packet.
            finally:
                await self._socket.close()

    async def _show_errors(self, errors: bytes) -> None:
        lines = errors.decode(errors="replace").splitlines() or ["the terminal UI has ended"]
        await self._socket.send_bytes("\r\n".join(printable(line, 500) for line in lines).encode())

    async def _obey(self, process: Process) -> None:
        """Pass keys and terminal sizes from the WebSocket to the process, until the WebSocket ends."""
        pipe = process.stdin
        assert pipe is not None
        with suppress(ConnectionError):
            async for message in self._socket:
                if message.type is not WSMsgType.TEXT:
                    continue
                packet = _packet(message.data)
                if packet == ("ping", b""):
                    await self._socket.send_json(["pong", json.loads(message.data)[1]])
                elif packet is not None:
                    kind, payload = packet
                    pipe.write(kind.encode() + len(payload).to_bytes(4, "big") + payload)
                    await pipe.drain()


def _packet(text: str) -> tuple[str, bytes] | None:
    """Translate a message of the page, such as ["stdin", "q"], to the kind and the payload of a packet for
    the process. Return None if the message has an unknown form. The kind "ping" is for the server itself.
    """
    try:
        name, *rest = json.loads(text)
        if name == "stdin":
            return "D", str(rest[0]).encode(errors="replace")
        if name == "resize":
            size = {side: _cells(int(rest[0][side])) for side in ("width", "height")}
            return "M", json.dumps({"type": "resize", **size}).encode()
        if name in ("focus", "blur"):
            return "M", json.dumps({"type": name}).encode()
        return ("ping", b"") if name == "ping" else None
    except (ValueError, TypeError, KeyError, IndexError):
        return None


async def _last_errors(process: Process) -> bytes:
    """Return the last bytes of the error messages of the process, after the process has closed its stderr."""
    assert process.stderr is not None
    last = b""
    while piece := await process.stderr.read(ERRORS):
        last = (last + piece)[-ERRORS:]
    return last


def _cells(number: int) -> int:
    return min(max(number, LEAST), MOST)


async def _end(process: Process) -> None:
    """Close the stdin of the process, which ends the process. Kill it if it does not end within KILL_S
    seconds.
    """
    assert process.stdin is not None
    process.stdin.close()
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), KILL_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
