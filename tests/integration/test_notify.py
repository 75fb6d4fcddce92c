"""Notifications on a real controller: webhooks that fail and are tried again, and a killed controller."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path

from tests.receivers import Hook, hook
from tests.systems import System
from wire.job.spec import JobSpec
from wire.notify import OutboxView

SECRET = "whsec_" + base64.b64encode(b"a key of the webhook").decode()


def failing(system: System, *, name: str = "train") -> str:
    """Submit a job that fails, and return its label."""
    with system.client() as client:
        job = client.submit(JobSpec(("sh", "-c", "exit 3"), name=name)).ids[0]
    system.await_jobs([job])
    return str(job)


def with_hook(system: System, url: str) -> System:
    secret = Path(system.place) / "hook.key"
    secret.touch(0o600)
    secret.write_text(SECRET + "\n")
    system.sections["notify"] = {
        "sinks": {"ops": {"kind": "webhook", "url": url, "secret_file": str(secret), "timeout_s": 1.0}},
        "rules": {"failed": {"when": ["mine.failed"], "sink": "ops"}},
    }
    return system


def outbox(system: System) -> OutboxView:
    with system.client() as client:
        return client.outbox()


def signed(headers: dict[str, str], body: bytes) -> bool:
    """Check the signature as the specification of Standard Webhooks says."""
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.new(b"a key of the webhook", text, hashlib.sha256).digest()).decode()
    return headers["webhook-signature"] == f"v1,{wanted}"


def await_requests(system: System, receiver: Hook, number: int) -> None:
    system.until(lambda: len(receiver.requests) >= number, f"{number} requests: {receiver.requests}")


def test_a_webhook_that_fails_is_tried_again_with_the_same_id(build: Callable[..., System]) -> None:
    with hook() as receiver:
        system = with_hook(build("gpu01"), receiver.url).start()
        receiver.orders.extend([500, "cut", "hang"])
        job = failing(system)
        await_requests(system, receiver, 4)
        ids = {headers["webhook-id"] for headers, _ in receiver.requests}
        assert len(ids) == 1
        assert all(signed(*each) for each in receiver.requests)
        body = receiver.bodies()[0]
        assert (body["format"], body["id"], body["cluster"]) == (1, *ids, "corral")
        [notice] = body["notices"]
        assert (notice["word"], notice["job"], notice["user"]) == ("mine.failed", job, "root")
        assert "exit code 3" in notice["text"]
        assert f"corral logs {job}" in notice["next_step"]
        system.until(lambda: outbox(system).waiting == 0, "the outbox is empty")
        assert len(receiver.requests) == 4
        [sink] = json.loads(system.corral("notify", "-o", "json"))["sinks"]
        assert (sink["delivered"], sink["failed"], sink["target"]) == (1, 3, "127.0.0.1")
        metrics = metrics_of(system)
        assert 'corral_notify_delivered_total{sink="ops"} 1' in metrics
        assert 'corral_notify_failed_total{sink="ops"} 3' in metrics


def metrics_of(system: System) -> str:
    import http.client
    import socket

    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(system.socket))
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


def test_a_message_survives_kill_9_between_commit_and_delivery(build: Callable[..., System]) -> None:
    with hook() as away:
        port = away.port
    # Nothing listens on the port now, so that the message waits.
    system = with_hook(build("gpu01"), f"http://127.0.0.1:{port}/hook").start()
    job = failing(system)
    system.until(lambda: outbox(system).waiting == 1, "the message is in the outbox")
    [waiting] = outbox(system).messages
    system.kill()
    with hook(port) as receiver:
        receiver.orders.append("hang")
        system.start()
        await_requests(system, receiver, 1)
        # The receiver has the message, but the controller is killed before the answer: the message is
        # repeated with its id.
        system.kill()
        system.start()
        await_requests(system, receiver, 2)
        assert {body["id"] for body in receiver.bodies()} == {waiting.id}
        assert {body["notices"][0]["job"] for body in receiver.bodies()} == {job}
        assert all(signed(*each) for each in receiver.requests)
        system.until(lambda: outbox(system).waiting == 0, "the outbox is empty")
        # A delivered message is not sent again by the next controller.
        system.stop()
        system.start()
        failing(system, name="second")
        await_requests(system, receiver, 3)
        assert receiver.bodies()[-1]["notices"][0]["subject"] == "job 2 failed"
        assert len(receiver.requests) == 3


def test_a_refused_message_is_a_dead_letter_until_it_is_retried(build: Callable[..., System]) -> None:
    with hook() as receiver:
        system = with_hook(build("gpu01"), receiver.url).start()
        receiver.orders.append(403)
        failing(system)
        system.until(lambda: outbox(system).dead == 1, "the message was given up")
        assert "given up" in system.corral("notify", "outbox")
        [dead] = outbox(system).messages
        assert dead.error == "127.0.0.1 answered 403: as ordered"
        # The dead letter is in the store.
        system.stop()
        system.start()
        assert [each.id for each in outbox(system).messages] == [dead.id]
        system.corral("notify", "retry", dead.id)
        await_requests(system, receiver, 2)
        system.until(lambda: not outbox(system).messages, "the outbox is empty")
        system.corral("notify", "test", "ops")
        assert receiver.bodies()[-1]["notices"][0]["word"] == "test"
