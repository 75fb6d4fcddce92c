"""Controllers on other machines: through TLS with a certificate of one's own authority, and through ssh."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests import processes
from tests.controller.nodes.openssh_server import OpenSshServer, lacking, running_openssh_server
from tests.programs import run_corral
from tests.systems import System
from wire.http.client import Client, Unreachable


def corral(home: Path, *words: str, code: int = 0, **environment: str) -> tuple[str, str]:
    """stdout and stderr of a command, run with an empty home directory."""
    known = ("CORRAL_URL", "CORRAL_CONFIG", "CORRAL_TOKEN", "CORRAL_CA", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(known)}
    done = run_corral(*words, environment={**kept, "HOME": str(home), **environment}, place=home)
    assert done.returncode == code, (words, done)
    return done.stdout, done.stderr


class Authority:
    """Signs certificates, with openssl."""

    def __init__(self, place: Path, name: str) -> None:
        self.place, self.ca, self.key = place, place / f"{name}.pem", place / f"{name}.key"
        self._run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                  "-keyout", self.key, "-out", self.ca, "-subj", f"/CN={name}", "-days", "2")  # fmt: skip

    def certificate(self, host: str) -> ssl.SSLContext:
        """A certificate for a server of this name."""
        key, request, signed = (self.place / f"{host}.{kind}" for kind in ("key", "csr", "pem"))
        self._run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                  "-keyout", key, "-out", request, "-subj", f"/CN={host}")  # fmt: skip
        names = self.place / f"{host}.ext"
        names.write_text(f"subjectAltName=DNS:{host}\n")
        self._run("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.key, "-CAcreateserial",
                  "-out", signed, "-days", "2", "-extfile", names)  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(signed, key)
        return context

    @staticmethod
    def _run(*words: object) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


@contextmanager
def terminated(target: tuple[str, int], context: ssl.SSLContext) -> Iterator[int]:
    """A proxy that has TLS in front of a plain address; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65_536):
                sink.sendall(piece)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve(line: socket.socket) -> None:
        with suppress(OSError):
            secure = context.wrap_socket(line, server_side=True)
            plain = socket.create_connection(target)
            threading.Thread(target=pump, args=(secure, plain), daemon=True).start()
            pump(plain, secure)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def children(parent: int) -> list[processes.Process]:
    """The processes that this one has started."""
    found = []
    for name in Path("/proc").iterdir():
        if name.name.isdigit():
            with suppress(OSError):
                if int((name / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    found.append(processes.process(int(name.name)))
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as line:
        port: int = line.getsockname()[1]
        return port


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
def test_https_with_a_private_certificate_authority(build: Callable[..., System], tmp_path: Path) -> None:
    system = build("gpu01")
    port = free_port()
    system.sections["api"] = {"listen": f"127.0.0.1:{port}"}
    system.start()
    token = system.state / "token"
    ours, strange = Authority(tmp_path, "ours"), Authority(tmp_path, "strange")
    with terminated(("127.0.0.1", port), ours.certificate("localhost")) as secure:
        url = f"https://localhost:{secure}"
        out, error = corral(tmp_path, "--url", url, "queue", code=7)
        assert "its certificate is not accepted" in error
        assert "CORRAL_CA" in error
        out, error = corral(tmp_path, "--url", url, "queue", code=7, CORRAL_CA=str(strange.ca))
        assert "its certificate is not accepted" in error
        out, error = corral(
            tmp_path, "--url", f"https://127.0.0.1:{secure}", "queue", code=7, CORRAL_CA=str(ours.ca)
        )
        assert "its certificate is not accepted" in error, "it is for another name"
        corral(tmp_path, "config", "add", "lab", url, "--ca", str(ours.ca), "--token-file", str(token))
        out, _ = corral(tmp_path, "submit", "--", "true")
        assert out == "1\n"
        out, _ = corral(tmp_path, "run", "--", "echo", "through TLS")  # asks, and follows the stream
        assert out == "through TLS\n"
        out, error = corral(tmp_path, "config", "list")
        assert f"Commands here use {url} (context lab)" in error
    with terminated(("127.0.0.1", port), ours.certificate("localhost")) as secure:
        out, error = corral(tmp_path, "--url", f"http://localhost:{secure}", "queue", code=7)
    out, error = corral(tmp_path, "--url", f"https://localhost:{port}", "queue", code=7)
    assert "no TLS connection" in error
    assert "http://" in error


@pytest.fixture
def ssh_server() -> Iterator[OpenSshServer]:
    """An OpenSSH server with a user, on the loopback interface."""
    missing = lacking()
    if missing or shutil.which("ssh") is None:
        pytest.skip(missing or "there is no ssh here")
    with running_openssh_server() as server:
        yield server


def ssh_command(server: OpenSshServer) -> str:
    known = server.place / "known"
    key = server.host_key.export_public_key().decode()
    known.write_text(f"[127.0.0.1]:{server.port} {key}")
    return f"ssh -F none -o BatchMode=yes -o UserKnownHostsFile={known} -i {server.identity}"


def test_ssh_url_reaches_the_head_node(
    build: Callable[..., System], ssh_server: OpenSshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = build("gpu01").start()
    os.chmod(system.place, 0o755)
    monkeypatch.setenv("CORRAL_SSH_COMMAND", ssh_command(ssh_server))
    url = f"ssh://{ssh_server.user}@127.0.0.1:{ssh_server.port}{system.socket}"
    corral(tmp_path, "config", "add", "head", url)
    out, _ = corral(tmp_path, "submit", "--hold", "--", "true")
    assert out == "1\n"
    assert system.jobs()[1].user == ssh_server.user, "the controller knows who asks, without a token"
    out, error = corral(tmp_path, "nodes", "drain", "gpu01", code=4)
    assert "only operators" in error
    with Client(url) as client, Client(url) as another:
        assert client.health().user == another.health().user == ssh_server.user
        ours = [each for each in children(os.getpid()) if "-L" in each.words]
        assert len(ours) == 1, "one tunnel for all clients of a process"
        ours[0].kill()
        status = Path(f"/proc/{ours[0].pid}/stat")
        system.until(lambda: status.read_text().rpartition(")")[2].split()[0] == "Z", "ssh is dead")
        assert client.health().user == ssh_server.user, "a tunnel that broke is opened again"
    _, error = corral(tmp_path, "--url", f"ssh://{ssh_server.user}@127.0.0.1:{free_port()}", "queue", code=7)
    assert "ssh: " in error
    assert "Connection refused" in error
    _, error = corral(tmp_path, "--url", f"ssh://nosuch@127.0.0.1:{ssh_server.port}", "queue", code=7)
    assert "Permission denied" in error
    _, error = corral(
        tmp_path,
        "--url",
        f"ssh://{ssh_server.user}@127.0.0.1:{ssh_server.port}/nothing.sock",
        "queue",
        code=7,
    )
    assert "Check that a controller listens at /nothing.sock on that host" in error


def test_tunnel_ends_with_its_client_in_any_case(
    build: Callable[..., System], ssh_server: OpenSshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = build("gpu01").start()
    os.chmod(system.place, 0o755)
    monkeypatch.setenv("CORRAL_SSH_COMMAND", ssh_command(ssh_server))
    monkeypatch.setenv("CORRAL_URL", f"ssh://{ssh_server.user}@127.0.0.1:{ssh_server.port}{system.socket}")
    watching = subprocess.Popen(
        [sys.executable, "-P", "-m", "cli", "events", "-f"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert watching.stdout is not None
    watching.stdout.readline()
    [tunnel] = [each for each in children(watching.pid) if "-L" in each.words]
    watching.kill()
    watching.wait()
    system.until(lambda: not Path(f"/proc/{tunnel.pid}").exists(), "ssh has ended")


def test_missing_ssh_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_SSH_COMMAND", "/nonexistent/ssh")
    with pytest.raises(Unreachable, match="/nonexistent/ssh"), Client("ssh://head") as client:
        client.health()
