"""The socket file: open to all users when it appears, and another process's file is never removed."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from controller.api.server.listeners import UnixSocket, open_tcp
from tests.controller.api.running_controller import start_controller


async def test_every_local_user_may_connect(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        made = UnixSocket(tmp_path / "run" / "c.sock")
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o666
    made.remove()
    made.line.close()
    assert not made.path.exists()


async def test_socket_of_a_killed_controller_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.listen()
    dead.close()
    made = UnixSocket(path)
    made.remove()
    made.line.close()


async def test_socket_of_a_running_controller_is_kept(tmp_path: Path) -> None:
    async with start_controller(tmp_path) as api:
        with pytest.raises(OSError, match="another controller listens on this socket"):
            UnixSocket(api.socket)
        assert (await api.get("/v1/health"))[0] == 200
    assert not api.socket.exists()


async def test_socket_of_a_busy_controller_is_kept(tmp_path: Path) -> None:
    busy = socket.socket(socket.AF_UNIX)
    busy.bind(str(tmp_path / "c.sock"))
    busy.listen(0)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for line in waiting:
        line.setblocking(False)
        line.connect_ex(str(tmp_path / "c.sock"))
    with pytest.raises(OSError, match="another controller listens on this socket"):
        UnixSocket(tmp_path / "c.sock")
    for line in [busy, *waiting]:
        line.close()


async def test_file_at_the_socket_path_is_kept_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    path.write_text("precious")
    with pytest.raises(OSError, match="exists and is not a socket"):
        UnixSocket(path)
    assert path.read_text() == "precious"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="exists and is not a socket"):
        UnixSocket(path)


async def test_socket_file_of_another_process_is_not_removed(tmp_path: Path) -> None:
    made = UnixSocket(tmp_path / "c.sock")
    made.path.unlink()
    successor = UnixSocket(tmp_path / "c.sock")
    made.remove()
    assert successor.path.exists()
    for each in (made, successor):
        each.line.close()


@pytest.mark.parametrize(
    ("path", "message"),
    [("x" * 200, "too long for a socket"), ("no/such/directory/c.sock", "No such file or directory")],
)
async def test_invalid_socket_path_is_refused_with_a_reason(tmp_path: Path, path: str, message: str) -> None:
    with pytest.raises(OSError, match=message):
        UnixSocket(tmp_path / path)


def test_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen there: Address already in use.*127.0.0.1:{port}"):
            open_tcp(f"127.0.0.1:{port}")


async def test_failed_start_closes_its_tcp_port(tmp_path: Path) -> None:
    (tmp_path / "c.sock").write_text("in the way")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(OSError, match="exists and is not a socket"):
        async with start_controller(tmp_path, api={"listen": f"127.0.0.1:{port}"}):
            pass
    open_tcp(f"127.0.0.1:{port}").close()
