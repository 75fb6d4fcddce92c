"""A pooler before a PostgreSQL server, and a server with a streaming standby server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psycopg

from tests.controller.store import servers
from tests.controller.store.servers import Absent, PostgresUnderTest
from tests.limits import PATIENCE_S

POOLER = """
[databases]
* = host={directory}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = {mode}
logfile = {log}
"""


class Pooler:
    """pgbouncer in session or transaction mode, with its own settings otherwise."""

    def __init__(self, server: PostgresUnderTest, mode: str) -> None:
        found = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
        if found is None:
            raise Absent("pgbouncer is not installed")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._server = server
        self._config = server.directory / f"pgbouncer-{self.port}.ini"
        users, log = self._config.with_suffix(".users"), self._config.with_suffix(".log")
        users.write_text('"corral" ""\n')
        self._config.write_text(
            POOLER.format(directory=server.directory, port=self.port, users=users, mode=mode, log=log)
        )
        self._command = [found, "-q", str(self._config)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stderr=subprocess.DEVNULL, **servers.unprivileged(self._server.directory)
        )

    def url(self, database: str) -> str:
        """The URL of a database of the server through the pooler, when the pooler answers."""
        name = database.partition("?")[0].rpartition("/")[2]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return f"postgresql://corral@127.0.0.1:{self.port}/{name}?sslmode=disable"

    def stop(self) -> None:
        """Kill the pooler. All its connections end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)


class WithStandby(PostgresUnderTest):
    """A server with a streaming standby server, which can be made to lag behind and be promoted."""

    standby: Path
    """The directory of the standby server's socket."""

    def add_standby(self) -> None:
        self.standby = self.directory / "standby"
        self.standby.mkdir()
        programs, data = servers.server_programs(), self.standby / "data"
        account = servers.unprivileged(self.standby)
        copy = ("-h", self.directory, "-U", "corral", "-D", data, "-R", "-X", "stream", "-c", "fast")
        servers.run_as(account, programs / "pg_basebackup", "--no-sync", *copy)
        options = f"-c listen_addresses= -c unix_socket_directories={self.standby} -c fsync=off"
        command = (programs / "pg_ctl", "-D", data, "-l", self.standby / "log", "-w", "-t", "60")
        self._control_standby = partial(servers.run_as, account, *command, "-o", options)
        self._control_standby("start")

    def lag(self) -> None:
        """Let the standby server receive nothing more."""
        self._on_standby("ALTER SYSTEM SET primary_conninfo = ''")
        self._on_standby("SELECT pg_reload_conf()")

    def receives(self) -> bool:
        """Whether the standby server receives what the primary server writes."""
        return bool(self._on_standby("SELECT count(*) FROM pg_stat_wal_receiver"))

    def promote(self) -> None:
        """Kill the primary server, and promote the standby server."""
        self.stop()
        self._on_standby("SELECT pg_promote()")

    def end_standby(self) -> None:
        with suppress(Absent):
            self._control_standby("-m", "immediate", "stop")

    def _on_standby(self, statement: str) -> int:
        with psycopg.connect(f"host={self.standby} user=corral dbname=postgres", autocommit=True) as server:
            done = server.execute(statement.encode())
            row = done.fetchone() if done.description else None
            return int(row[0]) if row is not None and row[0] is not None else 0


@contextmanager
def with_standby() -> Iterator[WithStandby]:
    """Start a server and its standby server, or raise Absent."""
    with servers.postgres(WithStandby) as server:
        assert isinstance(server, WithStandby)
        server.add_standby()
        try:
            yield server
        finally:
            server.end_standby()
