"""A real dockerd with all files, its socket and its containers below one directory; tests may kill it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.agent import images
from tests.agent.images import IMAGE

UP_S = 60.0


class DockerDaemon:
    """Containers outlive it (live-restore), as on hosts where docker is upgraded under running jobs."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.command = (str(shutil.which("docker")), "--host", f"unix://{place}/sock")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the daemon, and wait until it answers."""
        for stale in (
            "pid",
            "exec/containerd/containerd.pid",
        ):  # otherwise dockerd waits for a containerd that is gone
            (self.place / stale).unlink(missing_ok=True)
        options = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false"]
        options += ["--exec-opt", "native.cgroupdriver=cgroupfs", "--live-restore"]
        places = [f"--data-root={self.place}/data", f"--exec-root={self.place}/exec"]
        with (self.place / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["dockerd", *places, f"--pidfile={self.place}/pid", *self.command[1:], *options],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + UP_S
        while self.ask("version").returncode:
            gone, late = self.process.poll() is not None, time.monotonic() > deadline
            if gone or late:
                self.kill()
                pytest.skip(f"dockerd does not work here: {(self.place / 'log').read_text()[-500:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """kill -9. The containers keep running."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
        self._end_containerd()

    def stop(self) -> None:
        """Remove all containers, end the daemon, and unmount its mounts."""
        if self.process is not None and self.process.poll() is None:
            names = self.names()
            if names:
                self.ask("rm", "--force", *names)
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        self.kill()
        for point in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            where = point.split(" ")[1]
            if where.startswith(f"{self.place}/"):
                subprocess.run(["umount", "--lazy", where], check=False, capture_output=True)

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One docker command."""
        return subprocess.run([*self.command, *words], capture_output=True, text=True, check=False, cwd="/")

    def names(self) -> list[str]:
        """All containers, running or not."""
        return self.ask("ps", "--all", "--format", "{{.Names}}").stdout.split()

    def _end_containerd(self) -> None:
        with suppress(OSError, ValueError):
            pid = int((self.place / "exec/containerd/containerd.pid").read_text())
            if "containerd" in Path(f"/proc/{pid}/comm").read_text():
                os.kill(pid, signal.SIGKILL)


@contextmanager
def dying_at(daemon: DockerDaemon, request: bytes) -> Iterator[tuple[str, ...]]:
    """A docker command whose daemon is killed when it is first asked for this, before it has answered."""
    asked = re.compile(rb"POST /v[0-9.]+/containers/" + request)
    path, died = daemon.place / "dying", threading.Event()

    def pass_on(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if asked.match(data) and not died.is_set():
                    died.set()
                    daemon.kill()
                    break
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        if died.is_set():
            source.close()

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(f"{daemon.place}/sock")
                except OSError:
                    client.close()
                    continue
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=pass_on, args=pair, daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        try:
            yield daemon.command[0], "--host", f"unix://{path}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            path.unlink()


@contextmanager
def docker_daemon() -> Iterator[DockerDaemon]:
    """A running dockerd with the test image; skips the test if it cannot run here."""
    missing = [each for each in ("dockerd", "docker", "containerd", "runc") if shutil.which(each) is None]
    if missing:
        pytest.skip(f"no {missing[0]} here; 'apt-get install docker.io' brings it")
    if os.geteuid() != 0:
        pytest.skip("only root can start dockerd")
    with images.place() as place:
        daemon = DockerDaemon(place)
        daemon.start()
        try:
            archive = place / "root.tar"
            images.pack(archive)
            done = daemon.ask("import", str(archive), IMAGE)
            assert done.returncode == 0, done.stderr
            tried = daemon.ask("run", "--rm", "--network=host", "--pull=never", IMAGE, "true")
            if tried.returncode:
                pytest.skip(f"docker cannot run containers here: {tried.stderr.strip()[-300:]}")
            yield daemon
        finally:
            daemon.stop()
