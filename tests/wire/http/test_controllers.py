"""A client of several controllers, each with a real socket: leaders, standbys, and those that are down."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import pytest

from tests.wire.conftest import MakePeer
from tests.wire.http.peer import Line
from wire.api.jobs import Submitted
from wire.api.problem import Problem
from wire.api.service.cluster import Health
from wire.codec import encode
from wire.http import controllers
from wire.http.client import Client, Refused, Unreachable
from wire.job.spec import JobSpec


def health(seq: int) -> Health:
    return Health("ok", "0.1.0", 1.0, seq, "ada", "user")


def answers(body: object, status: int = 200, **headers: str) -> Callable[[Line], None]:
    """Answers every request on the connection alike, with these headers."""
    data = json.dumps(encode(body)).encode()
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())

    def script(line: Line) -> None:
        while True:
            line.read()
            line.send(f"HTTP/1.1 {status} X\r\n{lines}Content-Length: {len(data)}\r\n\r\n".encode() + data)

    return script


def refers_to(leader: str) -> Callable[[Line], None]:
    """A standby that refuses a change and names the leader."""
    return answers(Problem("not_leader", "this controller does not lead"), 307, Location=leader)


def hangs_up(line: Line) -> None:
    line.read()


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_controller_that_is_down_is_passed_over(peer: MakePeer) -> None:
    up = peer(answers(health(7)))
    with Client(f"{closed_port()}, {up.url}") as client:
        assert client.health().seq == 7
        assert client.health().seq == 7
    assert up.connections == 1


def test_change_goes_to_the_leader_that_the_standby_names(peer: MakePeer) -> None:
    leader = peer(answers(Submitted((4,), "4")))
    standby = peer(refers_to(leader.url))
    for urls in (standby.url, f"{standby.url},{leader.url}"):
        with Client(urls) as client:
            assert client.submit(JobSpec(command=("true",))).ids == (4,)
    assert [request.method for request in leader.requests] == ["POST", "POST"]


def test_question_is_asked_again_at_the_leader(peer: MakePeer) -> None:
    leader = peer(answers(health(9)))
    standby = peer(answers(health(8), Corral_Leader=leader.url))
    with Client(f"{standby.url},{leader.url}") as client:
        assert client.health().seq == 9
    with Client(standby.url) as client:
        assert client.health().seq == 8


def test_answer_of_the_standby_is_used_if_the_leader_is_down(peer: MakePeer) -> None:
    down = closed_port()
    standby = peer(answers(health(8), Corral_Leader=down))
    with Client(f"{standby.url},{down}") as client:
        assert client.health().seq == 8


def test_change_that_may_have_been_carried_out_is_not_repeated(peer: MakePeer) -> None:
    lost, other = peer(hangs_up), peer(answers(Submitted((4,), "4")))
    with Client(f"{lost.url},{other.url}") as client, pytest.raises(Unreachable) as failure:
        client.cancel(4)
    assert "may have been carried out" in failure.value.hint
    assert other.requests == []


def test_request_without_a_leader_is_given_up(peer: MakePeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "PATIENCE_S", 0.5)
    standby = peer(answers(Problem("no_leader", "no controller leads at present"), 503))
    with Client(standby.url) as client, pytest.raises(Refused, match="no controller leads"):
        client.cancel(4)
    assert len(standby.requests) > 1


def test_token_is_not_sent_to_an_address_of_another_kind(peer: MakePeer) -> None:
    """A standby at http names a leader at another scheme, which the user has not given."""
    standby = peer(refers_to("ssh://elsewhere"))
    with Client(standby.url, token="secret") as client, pytest.raises(Refused, match="does not lead"):
        client.cancel(4)


def test_token_is_not_sent_to_an_address_that_a_controller_names(peer: MakePeer) -> None:
    """Behind a forwarded port, a named loopback address is a program on the client's own host."""
    leader = peer(answers(Problem("not_found", "nothing here"), 404))
    standby = peer(refers_to(leader.url))
    with Client(standby.url, token="secret") as client, pytest.raises(Refused, match="does not lead"):
        client.cancel(4)
    assert leader.requests == []
    with (
        Client(f"{standby.url},{leader.url}", token="secret") as client,
        pytest.raises(Refused, match="nothing"),
    ):
        client.cancel(4)
    assert len(leader.requests) == 1


def test_address_that_is_no_url_is_refused() -> None:
    with pytest.raises(Unreachable, match="not an address"):
        Client("http://127.0.0.1:1,nonsense")
