"""`python -m benchmarks.farm PLACE`: one SSH server that acts as many hosts.

The agent on each channel is a few lines: it sends a hello with eight GPUs, and answers every ping. The rest
is real: a TCP connection, a handshake, a login and a channel for each host.
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

from wire.agent.frames import GpuFacts, Hello, Leave, NodeFacts, Ping, Pong, pack, unpack

BYTES = 120
"""Where struct tcp_info has bytes_acked and bytes_received."""


class Farm:
    """All open connections."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self.pings = 0

    def bytes(self) -> int:
        """Bytes over all connections so far, in both directions, as TCP counts them."""
        total = 0
        for connection in self.connections:
            line: socket.socket = connection.get_extra_info("socket")
            with suppress(OSError):
                told = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES + 16)
                total += sum(struct.unpack_from("QQ", told, BYTES))
        return total

    async def speak(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """As a host that has the agent, and as the agent: options, hello, pongs, goodbye."""
        _, told = loads(await process.stdin.readline())
        process.stdout.write(f"{''.join(told['word'])} {dumps(['ready', 'home'])}\n".encode())
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


class Doorman(asyncssh.SSHServer):
    """Accepts every client with the key."""

    def __init__(self, farm: Farm, key: asyncssh.SSHKey) -> None:
        self._farm, self._key = farm, key
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """One more host is visited."""
        self._connection = conn
        self._farm.connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        """One less."""
        if self._connection is not None:
            self._farm.connections.discard(self._connection)

    def public_key_auth_supported(self) -> bool:
        """With keys alone."""
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """There is one."""
        return key == self._key


def hello(name: str) -> Hello:
    """The hello of a host with eight GPUs."""
    gpus = tuple(
        GpuFacts(index, f"GPU-{name}-{index}", "NVIDIA H100 80GB HBM3", 81_559, index // 4)
        for index in range(8)
    )
    return Hello(
        name, "0.1.0", f"boot-{name}", "1", NodeFacts(128_000, 1 << 21, gpus, 2), clock=time.monotonic()
    )


async def main(place: Path) -> None:
    """Serve until stdin ends; each line on it is answered with the counters so far."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    farm = Farm(place)
    key = asyncssh.read_public_key(place / "id.pub")
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[place / "host_key"],
        server_factory=lambda: Doorman(farm, key),
        process_factory=farm.speak,
        encoding=None,
        backlog=1_024,
    )
    print(server.get_port(), flush=True)
    asking = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(asking), sys.stdin
    )
    while await asking.readline():
        counted = {"bytes": farm.bytes(), "pings": farm.pings, "connections": len(farm.connections)}
        print(dumps(counted), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
