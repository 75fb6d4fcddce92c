"""Several real controllers on one PostgreSQL database, with one set of nodes. Tests kill, stop and cut them
off.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import tomli_w
from sqlalchemy import make_url

from tests import groups
from tests.agent.agent_process import remove_socket
from tests.controller.store.scratch import scratch
from tests.limits import PATIENCE_S
from tests.programs import Program
from tests.systems import NODE, System
from wire.api.service.controllers import ControllersView
from wire.http.client import Client, Refused, Unreachable


class DatabaseProxy:
    """Forwards TCP connections to the socket of the database server, until cut() is called."""

    def __init__(self, target: str | int) -> None:
        self.target = target
        """The path of the server's socket, or a port of this machine. Later connections go there."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._flows = threading.Event()
        self._flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Pass on no more bytes, without closing a connection, like a network that drops all packets."""
        self._flows.clear()

    def heal(self) -> None:
        """Pass on bytes again."""
        self._flows.set()

    def close(self) -> None:
        self._listener.close()
        for line in list(self._open):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = self._connect()
                except OSError:  # The server is down.
                    near.close()
                    continue
                for source, sink in ((near, far), (far, near)):
                    self._open.add(source)
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _connect(self) -> socket.socket:
        if isinstance(self.target, int):
            return socket.create_connection(("127.0.0.1", self.target))
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(self.target)
        except OSError:
            far.close()
            raise
        return far

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self._flows.wait()
                sink.sendall(data)
        for line in (source, sink):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()
            self._open.discard(line)


class Member:
    """One of the controllers, with its own socket, state directory and log."""

    def __init__(self, place: Path, name: str, url: str, program: Sequence[str]) -> None:
        self.name = name
        self.program = program
        self.place = place / name
        self.place.mkdir()
        self.socket = self.place / "corral.sock"
        self.log = self.place / "controller.log"
        self.store_url = url
        self.process: Program | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def client(self) -> Client:
        """A client that knows only this controller."""
        return Client(self.url)


class SeveralControllers(System):
    """Controllers `a`, `b`, … on one database. The client of this system knows all their addresses."""

    def __init__(
        self,
        place: Path,
        database: str,
        nodes: Iterable[str] = ("gpu01",),
        count: int = 2,
        program: Sequence[str] = ("controller",),
    ) -> None:
        super().__init__(place, nodes, program)
        self._database = database
        self.proxies: dict[str, DatabaseProxy] = {}
        self.members = [Member(place, name, self._url_for(name), program) for name in "abcdef"[:count]]
        del self.sections["controller"]
        for name in nodes:
            self.sections["nodes"][name] = {**NODE, "spool": str(place / "nodes" / name)}
        (place / "nodes").mkdir(mode=0o700)

    @property
    def store_url(self) -> str:
        return self._database

    def move_database(self, url: str) -> None:
        """Let the controllers reach another server under the addresses that they know."""
        self._database = url
        for proxy in self.proxies.values():
            proxy.target = _socket_of(url)

    def _url_for(self, name: str) -> str:
        parsed = make_url(self._database)
        proxy = self.proxies[name] = DatabaseProxy(_socket_of(self._database))
        return f"postgresql://{parsed.username}@127.0.0.1:{proxy.port}/{parsed.database}?sslmode=disable"

    def begin(self, *members: Member) -> None:
        """Start these controllers, or all, without waiting."""
        for member in members or self.members:
            config = member.place / "scheduler.toml"
            paths = {"state_dir": str(member.place / "state"), "socket": str(member.socket)}
            sections = {**self.sections, "controller": paths, "store": {"url": member.store_url}}
            config.write_text(tomli_w.dumps(sections))
            member.process = Program([*member.program, "--config", str(config)], member.log)

    def start(self) -> System:
        """Start all controllers, and wait until one leads, all answer, and all nodes are up."""
        self.begin()
        for member in self.members:
            self.until(lambda member=member: self.answers(member), f"{member.name} answers")
        self.leader()
        self.await_nodes(*self.sections["nodes"])
        return self

    def answers(self, member: Member) -> bool:
        """Whether this controller answers."""
        with suppress(Unreachable), member.client() as client:
            return client.health().status == "ok"
        return False

    def view(self, member: Member) -> ControllersView | None:
        """The controllers, as this controller lists them; None if it does not answer."""
        with suppress(Unreachable, Refused), member.client() as client:
            return client.controllers()
        return None

    def leader(self) -> Member:
        """Wait until one controller leads and knows it, and return it."""
        found: list[Member] = []

        def led() -> bool:
            for member in self.members:
                view = self.view(member) if member.runs else None
                if view is not None and any(each.this and each.role == "leader" for each in view.controllers):
                    found.append(member)
                    return True
            return False

        self.until(led, "a controller leads")
        return found[0]

    def standby(self) -> Member:
        """A controller that does not lead."""
        leader = self.leader()
        return next(member for member in self.members if member is not leader and member.runs)

    def client(self) -> Client:
        return Client(",".join(member.url for member in self.members))

    def await_answer(self) -> None:
        self.until(lambda: any(self.answers(member) for member in self.members), "a controller answers")

    def log_end(self) -> str:
        logs = ((member.name, member.log) for member in self.members if member.log.exists())
        return "\n".join(
            f"{name}: {line}"
            for name, log in logs
            for line in log.read_text(errors="replace").splitlines()[-15:]
        )

    def stop(self) -> int:
        """End all controllers that run by SIGTERM, and return the highest exit code."""
        ending = [each.process for each in self.members if each.runs and each.process is not None]
        for process in ending:
            process.send(signal.SIGTERM)
        return max(process.wait(PATIENCE_S) for process in ending)

    def end(self) -> None:
        for member in self.members:
            if member.process is not None:
                member.process.send(signal.SIGKILL)
                member.process.wait(PATIENCE_S)
        for proxy in self.proxies.values():
            proxy.close()
        deadline = time.monotonic() + PATIENCE_S
        while (left := self.processes()) and time.monotonic() < deadline:
            for each in left:
                each.kill()
            time.sleep(0.01)
        assert not left
        for member in self.members:
            log = member.log.read_text(errors="replace") if member.log.exists() else ""
            _, found, trace = log.partition("Traceback")
            assert not found, f"{member.name} has logged an error: {trace[:8_000]}\n{self.log_end()}"
        for name in self.sections["nodes"]:
            groups.remove(name, self.place / "nodes" / name)
            remove_socket(self.place / "nodes" / name)


def _socket_of(url: str) -> str:
    return f"{make_url(url).query['host']}/.s.PGSQL.5432"


@contextmanager
def several_controllers(
    database: str,
    nodes: Sequence[str] = ("gpu01",),
    count: int = 2,
    program: Sequence[str] = ("controller",),
) -> Iterator[SeveralControllers]:
    """Controllers that are not started yet. Their processes and files are gone afterwards."""
    with scratch() as place:
        made = SeveralControllers(place, database, nodes, count, program)
        try:
            yield made
        finally:
            made.end()
