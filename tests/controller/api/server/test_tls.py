"""TLS with the controller's own authority: clients pin it, and trust no other authority for the address."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pydantic import ValidationError

from controller.access.certificates import OwnAuthority
from controller.api.server import listeners
from controller.config.tables.service import ApiSection
from tests.controller.api.running_controller import start_controller
from tests.controller.api.server.test_tokens import make
from tests.limits import PATIENCE_S
from tests.programs import run_corral
from wire.http import pins
from wire.http.certificate_authority import read_authority
from wire.http.client import Client, Unreachable

AUTO = {"listen": "127.0.0.1:0", "tls": "auto"}


@pytest.fixture(autouse=True)
def own_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def whoami(url: str, token: str, ca: str = "") -> str:
    with Client(url, token=token, ca=ca) as client:
        return client.whoami().user


@contextmanager
def other_server(context: ssl.SSLContext) -> Iterator[tuple[str, list[bytes]]]:
    """A server with another certificate: its URL, and what clients sent to it."""
    got: list[bytes] = []
    line = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                plain, _ = line.accept()
                plain.settimeout(PATIENCE_S)
                with suppress(OSError), context.wrap_socket(plain, server_side=True) as secure:
                    got.append(secure.recv(65_536))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{line.getsockname()[1]}", got
    finally:
        line.shutdown(socket.SHUT_RDWR)
        line.close()
        thread.join()


async def test_client_pins_the_authority_and_keeps_it_over_a_restart(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    async with start_controller(tmp_path / "lab", api=AUTO) as api:
        url = api.server.tcp_url
        _, token = await make(api, "read")
        with pytest.raises(Unreachable, match="certificate is not accepted") as refused:
            await asyncio.to_thread(whoami, url, token)
        assert f"corral config trust {url}" in refused.value.hint
        pem = await asyncio.to_thread(read_authority, url)
        pins.pin(url, pem)
        assert await asyncio.to_thread(whoami, url, token)
        directory = api.daemon.config.state_dir / "tls"
        assert pins.fingerprint(pem) == pins.fingerprint((directory / "ca.pem").read_text())
        assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    port = url.rpartition(":")[2]
    async with start_controller(tmp_path / "lab", api={**AUTO, "listen": f"127.0.0.1:{port}"}):
        assert await asyncio.to_thread(whoami, url, token)


async def test_pinned_client_trusts_no_other_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another authority of the same kind, nor one that the whole system trusts."""
    own, other = (OwnAuthority(tmp_path / name, ["127.0.0.1"]) for name in ("own", "other"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "other" / "ca.pem"))
    with other_server(other.context) as (url, got):
        # The system trusts the other authority, so a client without a pin sends its token.
        with pytest.raises(Unreachable):
            await asyncio.to_thread(whoami, url, "secret-1")
        assert b"secret-1" in b"".join(got)
        got.clear()
        pins.pin(url, own.pem.decode())
        with pytest.raises(Unreachable, match="not of the authority that is pinned"):
            await asyncio.to_thread(whoami, url, "secret-2")
        with pytest.raises(Unreachable):
            await asyncio.to_thread(whoami, url, "secret-3", str(tmp_path / "own" / "ca.pem"))
        assert b"secret" not in b"".join(got)


async def test_trust_shows_no_fingerprint_that_a_user_could_copy(tmp_path: Path) -> None:
    other = OwnAuthority(tmp_path / "other", ["127.0.0.1"])

    async def trust(*words: str) -> tuple[int, str]:
        done = await asyncio.to_thread(run_corral, "config", "trust", url, *words)
        assert own.fingerprint not in done.stdout + done.stderr or done.returncode == 0
        return done.returncode, done.stderr

    async with start_controller(api=AUTO) as api:
        assert api.server._own_authority is not None
        url, own = api.server.tcp_url, api.server._own_authority
        for words in ((), ("--fingerprint", other.fingerprint)):
            code, shown = await trust(*words)
            assert (code, "controller's log" in shown) == (2, True)
        assert (await trust("--fingerprint", own.fingerprint))[0] == 0
        pins.pin(url, other.pem.decode())
        code, shown = await trust("--fingerprint", own.fingerprint)
        assert (code, "--replace" in shown) == (2, True)
        assert (await trust("--replace", "--fingerprint", own.fingerprint))[0] == 0


def test_plain_tcp_beyond_loopback_is_refused() -> None:
    for listen in ("0.0.0.0:7070", "10.0.0.1:7070", "[::]:7070", "head1:7070"):
        with pytest.raises(ValidationError, match="tokens must not be sent without TLS"):
            ApiSection(listen=listen)
        ApiSection(listen=listen, tls="auto")
    for listen in ("127.0.0.1:7070", "[::1]:7070", "localhost:7070", ""):
        ApiSection(listen=listen)


async def test_silent_connections_do_not_keep_clients_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that begin no handshake are few and short, and clients with a token are answered."""
    monkeypatch.setattr(listeners, "MOST_OF_ADDRESS", 20)
    monkeypatch.setattr(listeners, "HANDSHAKE_S", 1.0)
    async with start_controller(api=AUTO) as api:
        url = api.server.tcp_url
        _, token = await make(api, "read")
        pins.pin(url, await asyncio.to_thread(read_authority, url))
        target = "127.0.0.1", int(url.rpartition(":")[2])
        silent = [await asyncio.open_connection(*target) for _ in range(100)]
        acceptor = api.server._acceptors[0]
        assert len(acceptor._tasks) <= 20
        async with asyncio.timeout(PATIENCE_S):
            for reader, _ in silent:
                with suppress(OSError):
                    assert await reader.read() == b""
            while acceptor._tasks:
                await asyncio.sleep(0.01)
        assert await asyncio.to_thread(whoami, url, token)
        assert not acceptor._handshakes._open
        for _, writer in silent:
            writer.close()


async def test_silent_connections_of_many_addresses_take_few_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each further connection closes the oldest one, also if several are accepted at once."""
    monkeypatch.setattr(listeners, "MOST_HANDSHAKES", 20)
    async with start_controller(api=AUTO) as api:
        port = int(api.server.tcp_url.rpartition(":")[2])
        silent = [
            await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.1.{number + 1}", 0))
            for number in range(100)
        ]
        async with asyncio.timeout(PATIENCE_S):
            for reader, _ in silent[:80]:
                with suppress(OSError):
                    assert await reader.read() == b""
        handshakes = api.server._acceptors[0]._handshakes._open
        assert sum(handshakes.values()) == len(api.server._acceptors[0]._tasks) == 20
        for _, writer in silent:
            writer.close()


async def test_connections_of_one_address_without_a_token_are_limited() -> None:
    async with start_controller(api={"listen": "127.0.0.1:0", "max_per_address": 3}) as api:
        target = "127.0.0.1", int(api.server.tcp_url.rpartition(":")[2])
        _, token = await make(api, "read")
        kept = [await asyncio.open_connection(*target) for _ in range(3)]
        ask = f"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection(*target)
        writer.write(ask)
        assert b" 503 " in await reader.readline()
        # A connection that has sent a token does not count, so there is room for another one.
        kept[0][1].write(ask)
        assert b" 200 " in await kept[0][0].readline()
        reader, other = await asyncio.open_connection(*target)
        other.write(ask)
        assert b" 200 " in await reader.readline()
        for each in (writer, other, *(line for _, line in kept)):
            each.close()
