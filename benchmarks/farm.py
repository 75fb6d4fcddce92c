"""Acts as many hosts with one SSH server: `python -m benchmarks.farm DIRECTORY`. The directory has the keys
of the server and of its clients.

The agent on each channel is simulated by a few lines: it sends a hello with eight GPUs, and answers every
ping. The TCP connection, the handshake, the login and the channel of each host are real.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
import sys
import time
from contextlib import suppress
from json import dumps, loads
from pathlib import Path

import asyncssh

from wire.agent.frames import pack, unpack
from wire.agent.orders import Leave, Ping
from wire.agent.reports import GpuFacts, Hello, NodeFacts, Pong

BYTES = 120
"""Offset in bytes of the field bytes_acked in the struct tcp_info of Linux. The field
bytes_received follows.
"""


class Farm:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self.pings = 0

    def bytes(self) -> int:
        """Return the number of bytes that TCP has transferred on the open connections, in both directions."""
        total = 0
        for connection in self.connections:
            line: socket.socket = connection.get_extra_info("socket")
            with suppress(OSError):
                info = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES + 16)
                total += sum(struct.unpack_from("QQ", info, BYTES))
        return total

    async def act_as_host(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Answer like a host on which the agent is installed, and then like the agent: send a hello, and
        answer pings until the controller sends Leave.
        """
        _, message = loads(await process.stdin.readline())
        process.stdout.write(f"{''.join(message['word'])} {dumps(['ready', 'home'])}\n".encode())
        options = loads(await process.stdin.readline())
        name = options[options.index("--name") + 1]
        process.stdout.write(pack(hello(name)))
        while line := await process.stdin.readline():
            frame = unpack(line)
            if isinstance(frame, Ping):
                self.pings += 1
                process.stdout.write(pack(Pong(frame.beat, time.monotonic())))
            elif isinstance(frame, Leave):
                break
        process.exit(0)


class KeyOnlyServer(asyncssh.SSHServer):
    """An SSH server that accepts any user name with the key of the benchmark."""

    def __init__(self, farm: Farm, key: asyncssh.SSHKey) -> None:
        self._farm, self._key = farm, key
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._farm.connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._farm.connections.discard(self._connection)

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key == self._key


def hello(name: str) -> Hello:
    """Return the hello (first message) of an agent on a host with eight GPUs."""
    gpus = tuple(
        GpuFacts(index, f"GPU-{name}-{index}", "NVIDIA H100 80GB HBM3", 81_559, index // 4)
        for index in range(8)
    )
    return Hello(
        name, "0.1.0", f"boot-{name}", "1", NodeFacts(128_000, 1 << 21, gpus, 2), clock=time.monotonic()
    )


async def main(place: Path) -> None:
    """Serve SSH on a free port, print the port, and continue until stdin ends. For each line on stdin, print
    the numbers of bytes, pings and connections so far. `place` is the directory with the keys.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    farm = Farm(place)
    key = asyncssh.read_public_key(place / "id.pub")
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[place / "host_key"],
        server_factory=lambda: KeyOnlyServer(farm, key),
        process_factory=farm.act_as_host,
        encoding=None,
        backlog=1_024,
    )
    print(server.get_port(), flush=True)
    requests = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(requests), sys.stdin
    )
    while await requests.readline():
        counted = {"bytes": farm.bytes(), "pings": farm.pings, "connections": len(farm.connections)}
        print(dumps(counted), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
